"""Digests of rows by slot: the narrow place where a fused kernel goes one day."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from engine_adapters.digest.rows import token_digests
from engine_adapters.report.columns import Array, DeferredColumn
from engine_adapters.vllm.layouts import KvLayout

Slots = npt.NDArray[np.int64]

# Rows gathered at once: what a digest may take of memory beside its own scratch.
CHUNK_BYTES = 8 * 1024 * 1024


class RowDigester(Protocol):
    """Digests [slots][digests per token] of one KV group, as memory is when called."""

    def after_step(self, slots: Slots) -> Array | DeferredColumn:
        """Of the rows that a step just wrote. On a device: ordered after its work, not waited
        for; what is returned is resolved on the sender's thread.
        """

    def now(self, slots: Slots) -> Array:
        """Of live memory, for an attestation. Bounded scratch; waits for the device."""


class TorchDigester:
    """Gathers rows by the layout and digests them with torch, on the KV's device."""

    def __init__(
        self, layout: KvLayout, layers: Sequence[int], digest_layers: Sequence[int]
    ) -> None:
        self._layout = layout
        self._layers = tuple(layers)
        self._digest_layers = tuple(digest_layers)
        row_bytes = max(1, layout.row_bytes * len(self._layers))
        self._chunk = max(1, CHUNK_BYTES // row_bytes)

    def after_step(self, slots: Slots) -> Array | DeferredColumn:
        digests = self._digests(slots)
        if digests.device.type == "cpu":
            return self._host(digests)
        host = torch.empty(digests.shape, dtype=digests.dtype, device="cpu", pin_memory=True)
        host.copy_(digests, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()

        def resolve() -> Array:
            copied.synchronize()
            return self._host(host)

        return resolve

    def now(self, slots: Slots) -> Array:
        return self._host(self._digests(slots).cpu())

    def _digests(self, slots: Slots) -> torch.Tensor:
        on_device = torch.from_numpy(slots).to(self._layout.device)
        parts = [
            token_digests(self._layout.gather(part), self._layers, self._digest_layers)
            for part in on_device.split(self._chunk)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    def _host(digests: torch.Tensor) -> Array:
        array: Array = digests.numpy()
        return array
