"""Digests of KV rows, all at once, on the device where the rows are.

Nothing here waits for the device or reads a value back, so it can be queued behind the step
that writes the rows.
"""

import functools
from collections.abc import Iterator, Sequence

import torch

from engine_adapters.digest.errors import LayersError, RowsError
from engine_adapters.digest.spec import LAYER_ODD, check_layers
from engine_adapters.digest.stock import stock_row_digests
from engine_adapters.digest.words import mix64
from engine_adapters.digest.xxh3_constants import constants
from engine_adapters.digest.xxh3_long import hash_long
from engine_adapters.digest.xxh3_short import hash_short

# Bytes hashed at once. Scratch memory is about three times as much. On the CPU it is chosen
# to stay in a core's second-level cache, elsewhere to fill the device.
CHUNK_BYTES_CPU = 512 << 10
CHUNK_BYTES_DEVICE = 16 << 20

MAX_SHORT = 240


def row_digests(rows: torch.Tensor) -> torch.Tensor:
    """XXH3_64 of each row, bit for bit what the `xxhash` package gives.

    uint8[..., row_bytes] with any strides, on any device, row_bytes >= 0, to int64[...] on the
    same device: the bit patterns of the unsigned digests. Scratch memory is bounded.

    Raises RowsError if the rows are not uint8 or have no dimension.
    """
    if rows.dtype != torch.uint8:
        raise RowsError(f"rows are {rows.dtype}; view them as torch.uint8 first")
    if rows.dim() == 0:
        raise RowsError("rows have no dimension; give uint8[..., row_bytes]")
    shape = rows.shape[:-1]
    if shape.numel() == 0:
        return rows.new_empty(shape, dtype=torch.int64)
    chunk_bytes = CHUNK_BYTES_CPU if rows.device.type == "cpu" else CHUNK_BYTES_DEVICE
    chunk_rows = max(1, chunk_bytes // max(1, rows.shape[-1]))
    parts = [_hash(part) for part in _chunks(rows, chunk_rows)]
    digests = parts[0] if len(parts) == 1 else torch.cat(parts)
    return digests.view(shape)


def fold_tokens(
    row_digests: torch.Tensor,
    layers: Sequence[int],
    digest_layers: Sequence[int],
) -> torch.Tensor:
    """Folds the row digests of each token's layers into its digests.

    int64[tokens, layers] to int64[tokens, len(digest_layers)]. `layers` is the model's layer
    number of each column, `digest_layers` how many columns each digest folds, in order (as
    `spec.split_layers` makes them).

    Raises LayersError where shapes and counts do not fit.
    """
    shares = tuple(digest_layers)
    check_layers(len(layers), shares)
    if row_digests.dim() != 2 or row_digests.shape[1] != len(layers):
        raise LayersError(
            f"row digests have shape {tuple(row_digests.shape)}; expected [tokens, {len(layers)}]",
        )
    mixed = mix64(row_digests + _layer_terms(tuple(layers), row_digests.device))
    if len(shares) == len(layers):
        return mixed
    digests = mixed.new_zeros((mixed.shape[0], len(shares)))
    return digests.index_add_(1, _digest_of_column(shares, mixed.device), mixed)


def token_digests(
    rows: torch.Tensor,
    layers: Sequence[int],
    digest_layers: Sequence[int],
) -> torch.Tensor:
    """Digests of tokens from their rows: `fold_tokens(row_digests(rows), ...)`.

    uint8[tokens, layers, row_bytes] to int64[tokens, len(digest_layers)]; raises as both do.
    Rows of the CPU that lie together are hashed by the `xxhash` package, which is several times
    faster there and gives the same bits (benchmarks/digest_rows.py measures both).
    """
    on_cpu = rows.device.type == "cpu" and rows.dtype == torch.uint8
    if on_cpu and rows.is_contiguous() and rows.numel():
        shape = rows.shape[:-1]
        digests = stock_row_digests(rows.view(shape.numel(), -1)).view(shape)
        return fold_tokens(digests, layers, digest_layers)
    return fold_tokens(row_digests(rows), layers, digest_layers)


def _hash(rows: torch.Tensor) -> torch.Tensor:
    return hash_long(rows) if rows.shape[1] > MAX_SHORT else hash_short(rows)


def _chunks(rows: torch.Tensor, chunk_rows: int) -> Iterator[torch.Tensor]:
    """uint8[n, row_bytes] pieces in order; what has to be copied is copied by the piece."""
    row_bytes = rows.shape[-1]
    count = rows.shape[:-1].numel()
    if count <= chunk_rows or rows.is_contiguous():
        flat = rows.reshape(count, row_bytes)
        yield from flat.split(chunk_rows)
    elif rows.dim() == 2:
        yield from rows.split(chunk_rows)
    else:
        step = max(1, chunk_rows // (count // rows.shape[0]))
        for part in rows.split(step):
            whole = part[0] if step == 1 else part
            yield from _chunks(whole, chunk_rows)


@functools.lru_cache(maxsize=64)
def _layer_terms(layers: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return constants(tuple((layer + 1) * LAYER_ODD for layer in layers), device)


@functools.lru_cache(maxsize=64)
def _digest_of_column(shares: tuple[int, ...], device: torch.device) -> torch.Tensor:
    columns = (digest for digest, share in enumerate(shares) for _ in range(share))
    return constants(tuple(columns), device)
