"""64-bit unsigned arithmetic on int64 tensors, and rows of bytes seen as words.

int64 addition, multiplication and left shift wrap, so they are already those of unsigned
words; only the right shift has to be masked. torch's own uint64 lacks most operations.
"""

import sys

import torch

from engine_adapters.digest.errors import DigestError
from engine_adapters.digest.spec import MIX_FIRST, MIX_SECOND, MIX_SHIFTS, signed

MASK32 = 0xFFFF_FFFF
WORD = 8

_MIX_FIRST = signed(MIX_FIRST)
_MIX_SECOND = signed(MIX_SECOND)

if sys.byteorder != "little":
    raise DigestError("digests read words of memory as they lie; this host is not little-endian")


def words_of(rows: torch.Tensor) -> torch.Tensor:
    """int64[n, bytes / 8] of uint8[n, bytes]; a view where alignment allows, else a copy.

    `bytes` is a multiple of 8.
    """
    aligned = (
        rows.stride(1) == 1
        and rows.stride(0) % WORD == 0
        and rows.storage_offset() % WORD == 0
        and rows.data_ptr() % WORD == 0
    )
    if not aligned:
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows.view(torch.int64)


def shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift right by `bits`, with zeros from above; 1 to 63 bits."""
    return (x >> bits).bitwise_and_((1 << 64 - bits) - 1)


def xor_shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Each element xor itself shifted right by `bits`, with zeros from above."""
    return shift_right(x, bits).bitwise_xor_(x)


def mix64(x: torch.Tensor) -> torch.Tensor:
    """`spec.mix64` of every element."""
    x = xor_shift(x, MIX_SHIFTS[0]).mul_(_MIX_FIRST)
    x = xor_shift(x, MIX_SHIFTS[1]).mul_(_MIX_SECOND)
    return xor_shift(x, MIX_SHIFTS[2])


def fold_pairs(pairs: torch.Tensor) -> torch.Tensor:
    """int64[..., 2] -> int64[...]: the 128-bit product of each pair, its high half xor its low."""
    low = pairs & MASK32
    high = shift_right(pairs, 32)
    a_low, b_low = low.unbind(-1)
    a_high, b_high = high.unbind(-1)
    # Schoolbook in 32-bit halves. No partial sum can overflow: each is at most
    # (2^32 - 1)^2 + 2 * (2^32 - 1) = 2^64 - 1.
    inner = a_high * b_low
    outer = shift_right(a_low * b_low, 32).add_(inner & MASK32).add_(a_low * b_high)
    top = (a_high * b_high).add_(shift_right(inner, 32)).add_(shift_right(outer, 32))
    first, second = pairs.unbind(-1)
    return top.bitwise_xor_(first * second)
