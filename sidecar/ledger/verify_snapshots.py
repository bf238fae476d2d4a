"""Verification of snapshots: each must be what replaying the records before it gives."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from . import snapshots
from .asof import History
from .errors import LedgerError
from .fold import CoreFold, Decoder
from .lineage import lineage, snapshot_index
from .registry import SourceLog
from .snapshots import Origin, SnapshotInfo
from .values import Fault

# (fault, what, source_id, generation, seq)
Report = Callable[[Fault, str, int, int, int], None]


def check_snapshots(
    connection: sqlite3.Connection, path: Path, log: SourceLog, decode: Decoder, report: Report
) -> int:
    """Returns how many were checked. Raises sqlite3.Error.

    A snapshot is replayed from the one before it, so each record is replayed once. The oldest
    after a retention cut, and those given from outside, are checked by their digest alone.
    """
    source_id = log.entry.source_id
    found = snapshots.infos(connection, source_id)
    sound: list[SnapshotInfo] = []
    for info in reversed(found):
        where = (source_id, info.generation, info.seq)
        data = snapshots.read(connection, info)
        if data is None:
            report(Fault.SNAPSHOT, "its digest does not fit", *where)
            continue
        if info.generation not in log.generations:
            report(Fault.SNAPSHOT, "its generation is not known", *where)
            continue
        base = _base(log, info, sound)
        if info.origin == Origin.REPLAY and (base is not None or log.cut is None):
            fold = CoreFold(log.entry, decode)
            history = History(connection, path, log, fold, info.generation)
            try:
                point = history.until(base, info.last_id)
                if point.seq != info.seq or point.state.to_bytes() != data:
                    report(Fault.SNAPSHOT, "it differs from a replay", *where)
                    continue
            except LedgerError as error:
                report(Fault.REPLAY, str(error), *where)
        sound.append(info)
    return len(found)


def _base(log: SourceLog, info: SnapshotInfo, sound: list[SnapshotInfo]) -> SnapshotInfo | None:
    segments = lineage(log.generations, info.generation)
    for candidate in reversed(sound):
        on_history = snapshot_index(segments, candidate.generation, candidate.seq) is not None
        if candidate.last_id < info.last_id and on_history:
            return candidate
    return None
