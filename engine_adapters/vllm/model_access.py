"""The one narrow place that reaches into vLLM's model runner.

vLLM has no documented way for a connector to see the model, so the runner is found in the
frames that call `register_kv_caches`:

 - MRV1 (`v1/worker/gpu_model_runner.py`, CPU runner included), 0.26 to 0.32:
   `GPUModelRunner.initialize_kv_cache` calls it; generators in `input_batch.generators`.
 - MRV2 (`v1/worker/gpu/model_runner.py`), 0.26 to 0.32: `ActiveKVConnector.__init__` calls it,
   called from `GPUModelRunner.initialize_kv_cache`; seeds in `sampler.sampling_states.seeds`.

Where nothing is found, weights and sampler are not attested and `reason` says so.
"""

import inspect
from collections.abc import Mapping
from types import FrameType
from typing import Any

import numpy as np
import torch
import xxhash

from engine_adapters.digest.tensors import module_digests
from engine_adapters.report.records import WeightsRecord

# MultiConnector and MRV2 each put frames of their own between.
_MOST_FRAMES = 16


def find_runner() -> Any | None:
    """The model runner among the callers, or None."""
    frame: FrameType | None = inspect.currentframe()
    for _ in range(_MOST_FRAMES):
        frame = frame.f_back if frame is not None else None
        if frame is None:
            return None
        owner = frame.f_locals.get("self")
        if hasattr(owner, "model") and hasattr(owner, "kv_cache_config"):
            return owner
    return None


class ModelAccess:
    """Weights and generators of one rank. Never raises: what is not found is absent."""

    def __init__(self, runner: Any | None) -> None:
        self._runner = runner
        model = getattr(runner, "model", None)
        self._model: torch.nn.Module | None = model if isinstance(model, torch.nn.Module) else None
        self._seen: Mapping[int, Any] = {}
        self._known: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] = _no_columns()

    @property
    def reason(self) -> str:
        """Why weights are not attested; empty if they are."""
        if self._model is not None:
            return ""
        return "model runner not found" if self._runner is None else "runner has no torch model"

    def weights(self) -> WeightsRecord | None:
        """Digests of parameters and buffers as memory is now. Waits for the device."""
        if self._model is None:
            return None
        found = module_digests(self._model)
        return WeightsRecord(
            names=[digest.name for digest in found],
            digests=np.array([digest.digest for digest in found], np.uint64),
            sizes=np.array([digest.size for digest in found], np.uint64),
        )

    def sampler(
        self, row_of: Mapping[str, int]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(rows, digests) of the generators' seeds, for sessions that have one.

        The seed and not the whole state: a generator's state after a step cannot be recorded
        before the next one, so it has no witness. Where it stands is what the continuation
        proves. MRV2's sampling is a function of seed and position, so there it is all.
        """
        generators = getattr(getattr(self._runner, "input_batch", None), "generators", None)
        if generators is not None:
            if generators != self._seen:
                self._seen = dict(generators)
                self._known = self._read_generators(generators, row_of)
            return self._known
        return self._read_seeds(row_of)

    def sampler_now(
        self, row_of: Mapping[str, int]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """As `sampler`, read again from the generators themselves."""
        self._seen = {}
        return self.sampler(row_of)

    def _read_generators(
        self, generators: Mapping[int, Any], row_of: Mapping[str, int]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        names = self._runner.input_batch.req_ids if self._runner is not None else ()
        found = [
            (row_of[names[index]], seed_digest(generator.initial_seed()))
            for index, generator in generators.items()
            if names[index] in row_of
        ]
        return _columns(found)

    def _read_seeds(
        self, row_of: Mapping[str, int]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        states = getattr(getattr(self._runner, "sampler", None), "sampling_states", None)
        seeds = getattr(getattr(states, "seeds", None), "np", None)
        index_of = getattr(getattr(self._runner, "req_states", None), "req_id_to_index", None)
        if seeds is None or index_of is None:
            return _no_columns()
        found = [
            (row, seed_digest(int(seeds[index_of[name]])))
            for name, row in row_of.items()
            if name in index_of
        ]
        return _columns(found)


def seed_digest(seed: int) -> int:
    """XXH3-64 of the seed in words, so that anybody can make it again."""
    return xxhash.xxh3_64_intdigest(b"seed:%d" % seed)


def _columns(
    found: list[tuple[int, int]],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found.sort()
    rows = np.array([row for row, _ in found], np.uint32)
    return rows, np.array([digest for _, digest in found], np.uint64)


def _no_columns() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.zeros(0, np.uint32), np.zeros(0, np.uint64)
