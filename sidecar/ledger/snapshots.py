"""Snapshots: states kept so that a replay is bounded. Never trusted without their digest."""

import enum
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import chain
from .lineage import Segment, snapshot_index
from .values import Mark


class Origin(enum.IntEnum):
    # Made by replaying the records before it.
    REPLAY = 0
    # Given from outside: what memory held when the record began or went on after a hole.
    BASELINE = 1


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot without its data; `origin` is an Origin. It holds all records up to
    (generation, seq); the newest of them has the event id `last_id`. `launched` and `committed`
    are the newest steps of these records; of a rank its step twice.
    """

    snapshot_id: int
    generation: int
    seq: int
    last_id: int
    origin: int
    launched: int
    committed: int
    digest: bytes
    size: int


_INFO = "id, generation, seq, last_id, origin, launched, committed, digest, LENGTH(data)"


def infos(connection: sqlite3.Connection, source_id: int) -> list[SnapshotInfo]:
    """Of one source, newest first."""
    rows = connection.execute(
        f"SELECT {_INFO} FROM snapshots WHERE source = ? ORDER BY last_id DESC, id DESC",  # noqa: S608
        (source_id,),
    )
    return [SnapshotInfo(*row) for row in rows.fetchall()]


def pack(state: bytes) -> bytes:
    """As it is stored. Digests do not shrink, but their slots, steps and witnesses do."""
    return zlib.compress(state, 1)


def read(connection: sqlite3.Connection, info: SnapshotInfo) -> bytes | None:
    """The state's bytes; None when they are gone or are not what their digest says."""
    row = connection.execute(
        "SELECT data FROM snapshots WHERE id = ?", (info.snapshot_id,)
    ).fetchone()
    if row is None or chain.body_digest(row[0]) != info.digest:
        return None
    try:
        return zlib.decompress(row[0])
    except zlib.error:
        return None


def exists(connection: sqlite3.Connection, info: SnapshotInfo) -> bool:
    query = "SELECT 1 FROM snapshots WHERE id = ?"
    return connection.execute(query, (info.snapshot_id,)).fetchone() is not None


def insert(connection: sqlite3.Connection, source_id: int, info: SnapshotInfo, data: bytes) -> int:
    """Writes a snapshot (its id is chosen here); inside a transaction."""
    cursor = connection.execute(
        "INSERT INTO snapshots (source, generation, seq, last_id, origin, launched, committed,"
        " digest, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            source_id,
            info.generation,
            info.seq,
            info.last_id,
            int(info.origin),
            info.launched,
            info.committed,
            info.digest,
            data,
        ),
    )
    return int(cursor.lastrowid or 0)


def usable(
    found: Iterable[SnapshotInfo],
    segments: Sequence[Segment],
    *,
    launched: int,
    committed: int,
    cut: int,
) -> list[SnapshotInfo]:
    """Those that lie on this history, at or before the boundary, and hold nothing that came
    after `cut`; newest first.
    """
    return [
        info
        for info in found
        if info.last_id <= cut
        and info.launched <= launched
        and info.committed <= committed
        and snapshot_index(segments, info.generation, info.seq) is not None
    ]


def superfluous(
    found: Sequence[SnapshotInfo], marks: Iterable[Mark], *, keep: int
) -> list[SnapshotInfo]:
    """Those that need not be kept: not among the newest `keep` of their generation, not the
    nearest before an open mark, not given from outside. `found` is newest first.
    """
    pinned = set()
    for mark in marks:
        before = (
            info
            for info in found
            if info.generation <= mark.generation and info.launched <= mark.step
        )
        nearest = next(before, None)
        if nearest is not None:
            pinned.add(nearest.snapshot_id)
    seen: dict[int, int] = {}
    spare = []
    for info in found:
        if info.origin == Origin.BASELINE:
            continue
        seen[info.generation] = seen.get(info.generation, 0) + 1
        if seen[info.generation] > keep and info.snapshot_id not in pinned:
            spare.append(info)
    return spare
