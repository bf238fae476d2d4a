"""Row digests by the `xxhash` package, of rows that lie on the CPU.

One call a row, with no step of the interpreter between two calls. On one CPU thread it is several
times faster than the vectorised rows, because there the hash stays in registers.
"""

import numpy as np
import torch
import xxhash


def stock_row_digests(rows: torch.Tensor) -> torch.Tensor:
    """XXH3_64 of each row: uint8[n, row_bytes] of the CPU to int64[n].

    The bytes of one row lie together; rows may lie apart.
    """
    hashed = map(xxhash.xxh3_64_intdigest, rows.numpy())
    return torch.from_numpy(np.fromiter(hashed, np.uint64, rows.shape[0]).view(np.int64))
