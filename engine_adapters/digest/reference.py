"""The digest by the stock `xxhash` package, row by row: slow, plain, and right by definition."""

from collections.abc import Sequence

import xxhash

from engine_adapters.digest.errors import LayersError
from engine_adapters.digest.spec import MASK64, check_layers, fold_row


def row_digest(row: bytes) -> int:
    """XXH3_64 of one row, seed 0."""
    return int(xxhash.xxh3_64_intdigest(row))


def token_digests(
    rows: Sequence[bytes],
    layers: Sequence[int],
    digest_layers: Sequence[int],
) -> list[int]:
    """Digests of one token: `rows[i]` is its row in model layer `layers[i]`.

    Raises LayersError where the lengths do not fit.
    """
    if len(rows) != len(layers):
        raise LayersError(f"{len(rows)} rows for {len(layers)} layers; give one row a layer")
    check_layers(len(layers), tuple(digest_layers))
    parts = iter(
        [fold_row(row_digest(row), layer) for row, layer in zip(rows, layers, strict=True)]
    )
    return [sum(next(parts) for _ in range(count)) & MASK64 for count in digest_layers]
