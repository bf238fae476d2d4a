"""How rows are found in vLLM's KV cache: one module per layout, picked here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from engine_adapters.vllm.errors import UnsupportedLayoutError
from engine_adapters.vllm.layouts import cpu, strided
from engine_adapters.vllm.layouts.rows import KvLayout, PartedLayout, Parts

__all__ = ["AttentionShape", "KvLayout", "PartedLayout", "make_layout", "parts_of"]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What the engine says about the layers of one KV group."""

    block_size: int
    # 1 and head_size = the latent's width for MLA.
    heads: int
    head_size: int
    head_size_v: int
    latent: bool = False


def make_layout(tensors: Mapping[str, torch.Tensor], shape: AttentionShape) -> KvLayout:
    """The layout of one group's layers, in the mapping's order.

    Raises:
        UnsupportedLayoutError: naming the first layer that cannot be read and what was seen.

    """
    layers: list[Parts] = []
    for name, tensor in tensors.items():
        parts = parts_of(name, tensor, shape)
        if layers and [part.shape for part in parts] != [part.shape for part in layers[0]]:
            raise UnsupportedLayoutError(
                name, f"{_seen(parts)} after {_seen(layers[0])}", "one group must have one shape"
            )
        layers.append(parts)
    return PartedLayout(layers)


def parts_of(name: str, tensor: torch.Tensor, shape: AttentionShape) -> Parts:
    """The layer's parts. Raises UnsupportedLayoutError."""
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedLayoutError(
            name, f"a {type(tensor).__name__}", "only attention layers' tensors are read"
        )
    parts = _parts(tensor, shape)
    if parts is None:
        raise UnsupportedLayoutError(
            name,
            f"shape {list(tensor.shape)}, strides {list(tensor.stride())}, {tensor.dtype} on "
            f"{tensor.device.type} for {shape}",
            "report it with the attention backend's name",
        )
    if shape.block_size % parts[0].shape[1]:
        # Kernel blocks may be smaller than the manager's, but must tile them: only then is a
        # slot the same number in both.
        raise UnsupportedLayoutError(
            name, f"kernel blocks of {parts[0].shape[1]} tokens", f"not in {shape.block_size}"
        )
    return parts


def _parts(tensor: torch.Tensor, shape: AttentionShape) -> Parts | None:
    dims = list(tensor.shape)
    if shape.latent:
        fits = dims[-1] == shape.head_size and (len(dims) == 3 or (len(dims) == 4 and dims[1] == 1))
        return strided.latent(tensor) if fits else None
    if len(dims) == 4 and dims[1] == shape.heads and dims[3] == shape.head_size + shape.head_size_v:
        if tensor.device.type == "cpu":
            return cpu.transposed_key(tensor) if shape.head_size == shape.head_size_v else None
        return strided.packed(tensor, shape.head_size)
    if len(dims) == 5 and shape.head_size == shape.head_size_v == dims[4]:
        return _pair(tensor, dims, shape)
    return None


def _pair(tensor: torch.Tensor, dims: Sequence[int], shape: AttentionShape) -> Parts | None:
    """[2, B, ...] or [B, 2, ...]; a shape that could be read in two ways is not read."""
    readings = []
    for axis in (0, 1):
        rest = [size for i, size in enumerate(dims) if i != axis]
        if dims[axis] != 2:
            continue
        key, value = tensor.unbind(axis)
        if rest[2] == shape.heads and shape.block_size % rest[1] == 0:
            readings.append(strided.pair_nhd(key, value))
        if rest[1] == shape.heads and shape.block_size % rest[2] == 0:
            readings.append(strided.pair_hnd(key, value))
    return readings[0] if len(readings) == 1 else None


def _seen(parts: Parts) -> str:
    return " and ".join(str(list(part.shape)) for part in parts)
