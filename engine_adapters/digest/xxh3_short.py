"""XXH3-64 of many rows of one length, 0 to 240 bytes. Seed 0, default secret.

Every function takes uint8[n, length] and gives int64[n].
"""

import torch

from engine_adapters.digest.spec import signed
from engine_adapters.digest.words import MASK32, fold_pairs, shift_right, words_of, xor_shift
from engine_adapters.digest.xxh3_constants import (
    PRIME64_1,
    PRIME64_2,
    PRIME64_3,
    PRIME_MX1,
    PRIME_MX2,
    secret_word,
    secret_words,
)

PIECE = 16


def avalanche(x: torch.Tensor) -> torch.Tensor:
    """XXH3's own finaliser."""
    return xor_shift(xor_shift(x, 37).mul_(PRIME_MX1), 32)


def avalanche_xxh64(x: torch.Tensor) -> torch.Tensor:
    """The finaliser of XXH64, which XXH3 keeps for rows of up to 3 bytes."""
    x = xor_shift(x, 33).mul_(signed(PRIME64_2))
    return xor_shift(xor_shift(x, 29).mul_(PRIME64_3), 32)


def hash_0(rows: torch.Tensor) -> torch.Tensor:
    start = signed(secret_word(56) ^ secret_word(64))
    return avalanche_xxh64(rows.new_full((rows.shape[0],), start, dtype=torch.int64))


def hash_1_to_3(rows: torch.Tensor) -> torch.Tensor:
    length = rows.shape[1]
    first, middle, last = (rows[:, i].to(torch.int64) for i in (0, length >> 1, length - 1))
    combined = first << 16 | middle << 24 | last | length << 8
    secret = secret_word(0)
    return avalanche_xxh64(combined ^ (secret & MASK32 ^ secret >> 32))


def hash_4_to_8(rows: torch.Tensor) -> torch.Tensor:
    length = rows.shape[1]
    first, last = _half_word(rows[:, :4]), _half_word(rows[:, -4:])
    x = (last + (first << 32)) ^ signed(secret_word(8) ^ secret_word(16))
    x = x ^ _rotate_left(x, 49) ^ _rotate_left(x, 24)
    x = x * signed(PRIME_MX2)
    x = (shift_right(x, 35) + length) ^ x
    return xor_shift(x * signed(PRIME_MX2), 28)


def hash_9_to_16(rows: torch.Tensor) -> torch.Tensor:
    length = rows.shape[1]
    low = words_of(rows[:, :8])[:, 0] ^ signed(secret_word(24) ^ secret_word(32))
    high = words_of(rows[:, -8:])[:, 0] ^ signed(secret_word(40) ^ secret_word(48))
    swapped = low.view(torch.uint8).view(-1, 8).flip(1).view(torch.int64)[:, 0]
    return avalanche(swapped + high + length + fold_pairs(torch.stack((low, high), dim=1)))


def hash_17_to_128(rows: torch.Tensor) -> torch.Tensor:
    length = rows.shape[1]
    # The same number of pieces from either end; in the middle they may overlap.
    count = (length + 31) // 32
    pieces = torch.cat((rows[:, : PIECE * count], rows[:, length - PIECE * count :]), dim=1)
    front = [32 * i for i in range(count)]
    back = [offset + PIECE for offset in reversed(front)]
    return avalanche(_sum_of_folds(pieces, front + back) + signed(length * PRIME64_1))


def hash_129_to_240(rows: torch.Tensor) -> torch.Tensor:
    length = rows.shape[1]
    count = length // PIECE
    start = _sum_of_folds(rows[:, : 8 * PIECE], [PIECE * i for i in range(8)])
    rest = torch.cat((rows[:, 8 * PIECE : PIECE * count], rows[:, -PIECE:]), dim=1)
    end = _sum_of_folds(rest, [PIECE * i + 3 for i in range(count - 8)] + [119])
    return avalanche(avalanche(start + signed(length * PRIME64_1)) + end)


def hash_short(rows: torch.Tensor) -> torch.Tensor:
    """XXH3-64 of each row; at most 240 bytes a row."""
    length = rows.shape[1]
    if length == 0:
        return hash_0(rows)
    for limit, hash_rows in (
        (3, hash_1_to_3),
        (8, hash_4_to_8),
        (16, hash_9_to_16),
        (128, hash_17_to_128),
    ):
        if length <= limit:
            return hash_rows(rows)
    return hash_129_to_240(rows)


def _sum_of_folds(pieces: torch.Tensor, offsets: list[int]) -> torch.Tensor:
    """Sum of the folded products of all 16-byte pieces, each keyed by the secret at its offset."""
    keyed = words_of(pieces).view(-1, len(offsets), 2) ^ secret_words(
        tuple(offsets),
        2,
        pieces.device,
    )
    return fold_pairs(keyed).sum(1)


def _half_word(four_bytes: torch.Tensor) -> torch.Tensor:
    # The clone puts the bytes at an aligned address.
    four_bytes = four_bytes.clone(memory_format=torch.contiguous_format)
    return four_bytes.view(torch.int32)[:, 0].to(torch.int64) & MASK32


def _rotate_left(x: torch.Tensor, bits: int) -> torch.Tensor:
    return (x << bits) | shift_right(x, 64 - bits)
