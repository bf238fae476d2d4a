"""XXH3-64 of many rows of one length above 240 bytes. Seed 0, default secret.

The specification reads stripe after stripe. What the stripes of one 1,024-byte block do to
the accumulators is a plain sum, so it is taken as one reduction over the block; only the
scramble between blocks has an order.
"""

import torch

from engine_adapters.digest.spec import signed
from engine_adapters.digest.words import MASK32, fold_pairs, words_of, xor_shift
from engine_adapters.digest.xxh3_constants import (
    PRIME32_1,
    PRIME32_2,
    PRIME32_3,
    PRIME64_1,
    PRIME64_2,
    PRIME64_3,
    PRIME64_4,
    PRIME64_5,
    constants,
    secret_words,
)
from engine_adapters.digest.xxh3_short import avalanche

LANES = 8
STRIPE = 64
STRIPES_PER_BLOCK = 16
BLOCK = STRIPE * STRIPES_PER_BLOCK

# Offsets into the 192 bytes of the secret.
SCRAMBLE_SECRET = 128
LAST_STRIPE_SECRET = 121
MERGE_SECRET = 11

START = (
    PRIME32_3,
    PRIME64_1,
    PRIME64_2,
    PRIME64_3,
    PRIME64_4,
    PRIME32_2,
    PRIME64_5,
    PRIME32_1,
)


def hash_long(rows: torch.Tensor) -> torch.Tensor:
    """uint8[n, length] -> int64[n]; length above 240."""
    length, device = rows.shape[1], rows.device
    # The last block holds 1 to 1,024 bytes. Its last stripe is the row's last 64 bytes, which
    # may overlap the stripe before and has a secret of its own.
    blocks = (length - 1) // BLOCK
    last_block = blocks * BLOCK
    stripes = (length - last_block - 1) // STRIPE
    acc = constants(START, device)
    if blocks:
        acc = _full_blocks(rows[:, :last_block], acc)
    if length % STRIPE == 0:
        tail = rows[:, last_block:]
    else:
        tail = torch.cat(
            (rows[:, last_block : last_block + stripes * STRIPE], rows[:, -STRIPE:]),
            dim=1,
        )
    offsets = (*range(0, 8 * stripes, 8), LAST_STRIPE_SECRET)
    stripe_words = words_of(tail).view(-1, stripes + 1, LANES)
    acc = _accumulate(stripe_words, secret_words(offsets, LANES, device)).add_(acc)
    acc.bitwise_xor_(secret_words((MERGE_SECRET,), LANES, device))
    merged = fold_pairs(acc.view(-1, LANES // 2, 2)).sum(1)
    return avalanche(merged.add_(signed(length * PRIME64_1)))


def _full_blocks(rows: torch.Tensor, acc: torch.Tensor) -> torch.Tensor:
    device = rows.device
    words = words_of(rows).view(rows.shape[0], -1, STRIPES_PER_BLOCK, LANES)
    offsets = tuple(range(0, 8 * STRIPES_PER_BLOCK, 8))
    sums = _accumulate(words, secret_words(offsets, LANES, device))
    scramble = secret_words((SCRAMBLE_SECRET,), LANES, device)
    for block in sums.unbind(1):
        acc = xor_shift(acc + block, 47).bitwise_xor_(scramble).mul_(PRIME32_1)
    return acc


def _accumulate(words: torch.Tensor, secret: torch.Tensor) -> torch.Tensor:
    """int64[..., stripes, 8] -> int64[..., 8]: what these stripes add to the accumulators."""
    keyed = words ^ secret
    low = keyed & MASK32
    products = keyed.bitwise_right_shift_(32).bitwise_and_(MASK32).mul_(low)
    plain = words.sum(-2)
    # Each word also goes, unkeyed, to the neighbour of its lane.
    neighbours = plain.unflatten(-1, (LANES // 2, 2)).flip(-1).flatten(-2)
    return products.sum(-2).add_(neighbours)
