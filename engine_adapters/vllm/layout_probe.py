"""Asks vLLM's CPU kernel how it fills a block, instead of believing the shape.

The CPU engine has several instruction sets ("vec", "amx", "neon", ...) that fill a block of
the same shape differently. Known keys and values are written into a scratch cache by the
engine's own operation and read back by the layout.
"""

from typing import Any

import torch

from engine_adapters.vllm.errors import UnsupportedLayoutError
from engine_adapters.vllm.layouts import AttentionShape, make_layout

_BLOCKS = 2


def check_cpu_layout(name: str, layer: Any, tensor: torch.Tensor, shape: AttentionShape) -> None:
    """Raises UnsupportedLayoutError if rows do not come back as they were written.

    vLLM 0.26 to 0.32: `cpu_attn_reshape_and_cache`; the instruction set is named on the layer
    or, before 0.29, on its implementation.
    """
    isa = getattr(layer, "isa", None) or getattr(getattr(layer, "impl", None), "isa", None)
    if isa is None:
        raise UnsupportedLayoutError(
            name, "no CPU instruction set named by the engine", "report it"
        )
    block_size = tensor.shape[2]
    scratch = torch.zeros((_BLOCKS, *tensor.shape[1:]), dtype=tensor.dtype)
    tokens = _BLOCKS * block_size
    sizes = (shape.head_size, shape.head_size_v)
    key, value = (_known(tokens, shape.heads, size, tensor.dtype) for size in sizes)
    _write(key, value, scratch, isa)
    rows = make_layout({name: scratch}, shape).gather(torch.arange(tokens))[:, 0]
    expected = torch.cat((key.flatten(1), value.flatten(1)), dim=1).contiguous()
    if not torch.equal(rows, expected.view(torch.uint8)):
        raise UnsupportedLayoutError(
            name,
            f"CPU instruction set {isa!r}, {tensor.dtype}, head size {shape.head_size}, which "
            "fills blocks in an order that is not known here",
            "report it with the machine's CPU model",
        )


def _known(tokens: int, heads: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randn((tokens, heads, size), generator=generator).to(dtype)


def _write(key: torch.Tensor, value: torch.Tensor, scratch: torch.Tensor, isa: str) -> None:
    from vllm import _custom_ops as ops  # noqa: PLC0415 - engine

    blocks, heads, block_size, _ = scratch.shape
    key_cache, value_cache = scratch.view(blocks, heads, block_size * 2, -1).chunk(2, dim=2)
    slots = torch.arange(blocks * block_size)
    ops.cpu_attn_reshape_and_cache(key, value, key_cache, value_cache, slots, isa)
