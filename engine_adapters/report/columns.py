"""Columns of integers as sources hand them over, and their way onto the wire.

Everything here runs on the sender's thread, never on the engine's.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.integer]
Column: TypeAlias = Sequence[int] | Array
# A column that is still on its way from a device: called once or more on the sender's thread,
# may wait for the device there, and must give the same array each time.
DeferredColumn: TypeAlias = Callable[[], Array]


def ints(column: Column | DeferredColumn | None) -> Sequence[int]:
    """The column as plain Python integers; nothing for None."""
    if column is None:
        return ()
    if callable(column):
        column = column()
    if isinstance(column, np.ndarray):
        plain: list[int] = column.reshape(-1).tolist()
        return plain
    return column


def u64(column: Column | None) -> Sequence[int]:
    """Digests as unsigned integers, whether they came as int64 bit patterns or as uint64."""
    if isinstance(column, np.ndarray):
        return ints(column.astype(np.uint64, copy=False))
    return [value & 0xFFFF_FFFF_FFFF_FFFF for value in ints(column)]


def digest_bytes(digests: Array | DeferredColumn) -> bytes:
    """Digests ([rows][digests], int64 or uint64) as packed little-endian u64.

    Raises:
        TypeError: the elements are not 8 bytes wide.

    """
    array = digests() if callable(digests) else digests
    if array.dtype.itemsize != 8:
        raise TypeError(f"digests must be 8 bytes wide, not {array.dtype}; pass int64 or uint64")
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def size_of(column: Column | DeferredColumn | None) -> int:
    """About how many bytes the column keeps in memory. O(1)."""
    if column is None:
        return 0
    if isinstance(column, np.ndarray):
        return column.nbytes
    if callable(column):
        return 256
    # A list holds pointers; most integers in it are shared or small.
    return 16 * len(column)
