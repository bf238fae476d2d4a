"""The tip file: the newest committed ids, kept beside the database.

SQLite drops a damaged or truncated end of its write-ahead log without a word, and a chain
cannot miss what comes after its last link. The tip file is written after every commit, so a
ledger that ends before its tip has lost acknowledged records.
"""

import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"TWTIP\0\0\1"
_BODY = struct.Struct("<8sQQ")
_CHECK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Tip:
    record_id: int
    control_id: int


def tip_path(database: Path) -> Path:
    return database.with_name(database.name + ".tip")


def pack(tip: Tip) -> bytes:
    return _checked(_BODY.pack(MAGIC, tip.record_id, tip.control_id))


def unpack(data: bytes) -> Tip | None:
    """None: the bytes are not a whole tip."""
    if len(data) != _BODY.size + _CHECK_BYTES or data != _checked(data[: _BODY.size]):
        return None
    magic, record_id, control_id = _BODY.unpack_from(data)
    return Tip(record_id, control_id) if magic == MAGIC else None


def _checked(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=_CHECK_BYTES).digest()


class TipFile:
    """Owned by the one writing process. Not thread-safe: only the writer thread writes.

    Opening raises OSError.
    """

    def __init__(self, database: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(tip_path(database), flags, 0o600)
        if os.fstat(self._fd).st_size < _BODY.size + _CHECK_BYTES:
            # Takes its place on the disk now, so that a full one does not matter later.
            self.write(Tip(0, 0))

    def write(self, tip: Tip) -> None:
        """Raises OSError. One small write in place: a killed process leaves old or new."""
        os.pwrite(self._fd, pack(tip), 0)

    def close(self) -> None:
        os.close(self._fd)


def read_tip(database: Path) -> Tip | None:
    """None: there is no tip file, or it is not whole."""
    try:
        return unpack(tip_path(database).read_bytes())
    except FileNotFoundError:
        return None
