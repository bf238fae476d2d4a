"""The one narrow place that reaches into vLLM's model runner.

vLLM has no documented way for a connector to see the model, so the runner is found in the
frames that call `register_kv_caches`:

 - MRV1 (`v1/worker/gpu_model_runner.py`, CPU runner included), 0.26 to 0.32:
   `GPUModelRunner.initialize_kv_cache` calls it; generators in `requests[id].generator`.
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

from engine_adapters.digest.tensors import module_digests
from engine_adapters.report.records import WeightsRecord
from engine_adapters.vllm.sampler_watch import ReadState

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

    def find_generator(self, session_id: str) -> tuple[bool, ReadState | None]:
        """Whether the session has run on this rank, and how to read its generator, if any.

        MRV1 keeps a `torch.Generator` for a seeded request. MRV2's sampling is a function of
        seed and position, so the seed is all its state.
        """
        requests = getattr(self._runner, "requests", None)
        if requests is not None:
            state = requests.get(session_id)
            generator = getattr(state, "generator", None)
            if generator is None:
                return state is not None, None
            return True, lambda: bytes(generator.get_state().numpy())
        seeds, index_of = self._seeds()
        if seeds is None or session_id not in index_of:
            return seeds is None, None
        return True, lambda: b"seed:%d" % int(seeds[index_of[session_id]])

    def _seeds(self) -> tuple[Any, Mapping[str, int]]:
        states = getattr(getattr(self._runner, "sampler", None), "sampling_states", None)
        seeds = getattr(getattr(states, "seeds", None), "np", None)
        index_of = getattr(getattr(self._runner, "req_states", None), "req_id_to_index", None)
        return (None, {}) if index_of is None else (seeds, index_of)
