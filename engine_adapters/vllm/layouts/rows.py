"""Reads rows from parts: the one way to gather, whatever the layout.

A layout module turns a layer's KV tensor into *parts*: views [blocks, block_size, heads,
channels] with any strides, K first. A row is the bytes of its parts in that order, heads in
order, each head contiguous.
"""

import itertools
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import torch

Parts: TypeAlias = tuple[torch.Tensor, ...]

# Same bytes as integers: indexing then never depends on the KV's own number format.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class KvLayout(Protocol):
    """All layers of one KV group on this rank."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's row in one layer."""

    @property
    def slots(self) -> int:
        """Slots are below this number."""

    @property
    def device(self) -> torch.device:
        """Where the KV lives."""

    def gather(self, slots: torch.Tensor) -> torch.Tensor:
        """Rows as uint8[len(slots), layers, row_bytes]; `slots` int64 on `device`."""


class PartedLayout:
    """Rows of layers whose parts have equal shapes.

    Where all layers lie at equal distances in one storage (one backing tensor for the whole
    cache: vLLM's usual case), a part of all layers is read by one indexing operation.
    """

    def __init__(self, layers: Sequence[Parts]) -> None:
        first = layers[0]
        self._block_size = int(first[0].shape[1])
        self._slots = int(first[0].shape[0]) * self._block_size
        self._device = first[0].device
        self._layers = len(layers)
        self._item = int(first[0].element_size())
        self._integers = _INTEGERS[self._item]
        self._stacks = [_stack([parts[i] for parts in layers]) for i in range(len(first))]
        self._elements = [int(part.shape[2] * part.shape[3]) for part in first]

    @property
    def row_bytes(self) -> int:
        return sum(self._elements) * self._item

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def device(self) -> torch.device:
        return self._device

    def gather(self, slots: torch.Tensor) -> torch.Tensor:
        block = torch.div(slots, self._block_size, rounding_mode="floor")
        offset = slots - block * self._block_size
        rows = torch.empty(
            (len(slots), self._layers, sum(self._elements)),
            dtype=self._integers,
            device=self._device,
        )
        at = 0
        for stack, elements in zip(self._stacks, self._elements, strict=True):
            into = rows[:, :, at : at + elements]
            for first, part in stack:
                # [layers, n, heads, channels] of a run of layers
                found = part[:, block, offset]
                into[:, first : first + len(part)].copy_(found.flatten(2).transpose(0, 1))
            at += elements
        return rows.view(torch.uint8)


def _stack(parts: Sequence[torch.Tensor]) -> list[tuple[int, torch.Tensor]]:
    """Runs of layers as (first layer, integers [layers, blocks, block_size, heads, channels])."""
    integers = [part.view(_INTEGERS[part.element_size()]) for part in parts]
    stacked = _one_view(integers)
    if stacked is not None:
        return [(0, stacked)]
    return [(i, part.unsqueeze(0)) for i, part in enumerate(integers)]


def _one_view(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """All layers in one view, if they lie at equal distances in one storage."""
    first = parts[0]
    storage = first.untyped_storage().data_ptr()
    for part in parts:
        same = part.shape == first.shape and part.stride() == first.stride()
        if not same or part.untyped_storage().data_ptr() != storage:
            return None
    offsets = [part.storage_offset() for part in parts]
    steps = {after - before for before, after in itertools.pairwise(offsets)}
    if len(steps) > 1:
        return None
    step = steps.pop() if steps else 0
    if step < 0:
        return None
    return torch.as_strided(
        first, (len(parts), *first.shape), (step, *first.stride()), first.storage_offset()
    )
