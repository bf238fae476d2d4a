"""What may go. Only whole beginnings of a source's log are removed, never single records, so
that the chain of the rest stays verifiable from the value that the cut remembers.

Sessions share their steps' records: one session cannot be removed alone. "Finished first"
therefore means that logs of earlier incarnations go before those of the living one.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from . import control, rows, snapshots
from .control import Cut
from .lineage import lineage, snapshot_index
from .registry import Registry, SourceLog
from .settings import Retention
from .snapshots import SnapshotInfo
from .transaction import Transaction
from .values import Mark, MarkOutcome, RecordKind, RetentionReport

ROWS_PER_CUT = 20_000


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """Records of a source up to `last_id` may go. `base` None: the whole log."""

    source_id: int
    last_id: int
    base: SnapshotInfo | None


def open_marks(registry: Registry, worker: str, keep: int) -> list[Mark]:
    """The newest marks of a worker whose image may still be restored."""
    marks = [
        mark
        for mark in list(registry.marks.values())
        if mark.worker == worker and mark.outcome is not MarkOutcome.FAILED
    ]
    marks.sort(key=lambda mark: mark.made_unix_ns, reverse=True)
    return marks[:keep]


def finished_incarnations(registry: Registry, worker: str) -> list[str]:
    """Earlier incarnations of a worker, oldest first. The newest one is never finished."""
    seen: dict[str, int] = {}
    for log in registry.logs():
        if log.entry.worker == worker:
            at = log.entry.registered_unix_ns
            seen[log.entry.incarnation] = min(at, seen.get(log.entry.incarnation, at))
    return sorted(seen, key=lambda name: seen[name])[:-1]


class Plan:
    """Decides on cuts from the registry, through one reading connection."""

    def __init__(
        self, connection: sqlite3.Connection, registry: Registry, limits: Retention
    ) -> None:
        self._connection = connection
        self._registry = registry
        self._limits = limits

    def finished(self) -> list[PlannedCut]:
        """Logs of incarnations beyond the limit on their number, without an open mark."""
        limit = self._limits.max_finished_incarnations
        if limit is None:
            return []
        planned = []
        for worker in self._workers():
            finished = finished_incarnations(self._registry, worker)
            for incarnation in finished[: max(0, len(finished) - limit)]:
                planned += self._whole(worker, incarnation)
        return planned

    def aged(self, oldest_unix_ns: int) -> list[PlannedCut]:
        """Beginnings received before a time: whole finished logs, of others up to a snapshot."""
        planned = []
        for log in self._registry.logs():
            newest = self._newest(log)
            if newest is None:
                continue
            if newest[1] < oldest_unix_ns and self._finished(log):
                planned.append(PlannedCut(log.entry.source_id, newest[0], None))
                continue
            for base in self._bases(log):
                if self._received(base.last_id) < oldest_unix_ns:
                    planned.append(self._up_to(log, base))
                    break
        return planned

    def oversized(self) -> list[PlannedCut]:
        """Everything that may go: first whole finished logs, and only if there are none, the
        living ones up to the newest snapshot that is not needed before.
        """
        planned = [
            cut
            for worker in self._workers()
            for incarnation in finished_incarnations(self._registry, worker)
            for cut in self._whole(worker, incarnation)
        ]
        if planned:
            return planned
        for log in self._registry.logs():
            bases = self._bases(log)
            if bases and self._newest(log) is not None:
                planned.append(self._up_to(log, bases[0]))
        return planned

    def _workers(self) -> list[str]:
        return sorted({log.entry.worker for log in self._registry.logs()})

    def _open_marks(self, log: SourceLog) -> list[Mark]:
        marks = open_marks(self._registry, log.entry.worker, self._limits.open_marks)
        return [mark for mark in marks if mark.incarnation == log.entry.incarnation]

    def _finished(self, log: SourceLog) -> bool:
        finished = finished_incarnations(self._registry, log.entry.worker)
        return log.entry.incarnation in finished and not self._open_marks(log)

    def _whole(self, worker: str, incarnation: str) -> list[PlannedCut]:
        planned = []
        for log in self._registry.logs():
            if (log.entry.worker, log.entry.incarnation) != (worker, incarnation):
                continue
            newest = self._newest(log)
            if newest is not None and self._finished(log):
                planned.append(PlannedCut(log.entry.source_id, newest[0], None))
        return planned

    def _bases(self, log: SourceLog) -> list[SnapshotInfo]:
        """Snapshots that a log may begin with, newest first. They lie on the history of the
        newest generation, which is alive; the newest of them is spared, so that a cut in the
        past can still be judged; and nothing that an open mark needs is before them.
        """
        segments = lineage(log.generations, log.newest)
        candidates = [
            info
            for info in snapshots.infos(self._connection, log.entry.source_id)
            if snapshot_index(segments, info.generation, info.seq) is not None
        ][1:]
        for mark in self._open_marks(log):
            candidates = [
                info
                for info in candidates
                if info.generation <= mark.generation and info.launched <= mark.step
            ]
        removed = log.cut.last_id if log.cut is not None else 0
        return [info for info in candidates if info.last_id > removed]

    def _up_to(self, log: SourceLog, base: SnapshotInfo) -> PlannedCut:
        newest = self._newest(log)
        # The newest record stays: it says where the log stands.
        last_id = base.last_id if newest is None else min(base.last_id, newest[0] - 1)
        return PlannedCut(log.entry.source_id, last_id, base)

    def _newest(self, log: SourceLog) -> tuple[int, int] | None:
        row = self._connection.execute(
            "SELECT id, received_unix_ns FROM records WHERE source = ?"
            " ORDER BY generation DESC, seq DESC LIMIT 1",
            (log.entry.source_id,),
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def _received(self, record_id: int) -> int:
        row = self._connection.execute(
            "SELECT received_unix_ns FROM records WHERE id = ?", (record_id,)
        ).fetchone()
        return 0 if row is None else int(row[0])


def cut_in(
    transaction: Transaction, log: SourceLog, planned: PlannedCut, unix_ns: int
) -> tuple[Cut | None, RetentionReport]:
    """Removes at most ROWS_PER_CUT records of a planned cut and writes what it removed into the
    control log: the writer is not held up for long. Call again while it removes that many.
    """
    connection, source_id = transaction.connection, planned.source_id
    nothing = RetentionReport(0, 0, 0, live_bytes(connection))
    if planned.base is not None and not snapshots.exists(connection, planned.base):
        # It was superseded since the cut was planned.
        return log.cut, nothing
    values = connection.execute(
        f"SELECT {rows.COLUMNS} FROM (SELECT * FROM records WHERE source = ? AND id <= ?"  # noqa: S608
        " ORDER BY generation, seq LIMIT ?) ORDER BY generation DESC, seq DESC LIMIT 1",
        (source_id, planned.last_id, ROWS_PER_CUT),
    ).fetchone()
    if values is None:
        return log.cut, nothing
    last = rows.read_of(values)
    cut = Cut(
        source_id=source_id,
        last_id=last.row.id,
        tips=dict(log.durable),
        chain=last.link,
        snapshot=b"" if planned.base is None else planned.base.digest,
    )
    removed = connection.execute(
        "DELETE FROM records WHERE source = ? AND (generation, seq) <= (?, ?)",
        (source_id, last.row.generation, last.row.seq),
    ).rowcount
    # A snapshot before the cut has nothing to go on from; one at the end of a whole log neither.
    useless = last.row.id if planned.base is not None else last.row.id + 1
    spare = connection.execute(
        "DELETE FROM snapshots WHERE source = ? AND last_id < ?", (source_id, useless)
    ).rowcount
    transaction.control(control.cut_record(log.entry, cut, unix_ns))
    return cut, RetentionReport(removed, spare, 0, live_bytes(connection))


def drop_attestations(connection: sqlite3.Connection, oldest_unix_ns: int) -> int:
    """Removes attested bytes that are older; their record, with their digest, stays."""
    return connection.execute(
        "DELETE FROM bodies WHERE kind = ? AND unix_ns < ?",
        (int(RecordKind.ATTESTATION), oldest_unix_ns),
    ).rowcount


def live_bytes(connection: sqlite3.Connection) -> int:
    """Size of the pages in use, without free ones."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)


def total(reports: Iterable[RetentionReport], connection: sqlite3.Connection) -> RetentionReport:
    """Sums up reports; the size is what it is now."""
    listed = list(reports)
    return RetentionReport(
        records=sum(each.records for each in listed),
        snapshots=sum(each.snapshots for each in listed),
        attestations=sum(each.attestations for each in listed),
        live_bytes=live_bytes(connection),
    )
