"""Keeping a ledger small and quick to read: snapshots and retention."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from . import chain, retention, snapshots
from .asof import Point
from .errors import LedgerError
from .fold import State, boundary
from .retention import Plan, PlannedCut
from .settings import Retention
from .snapshots import Origin, SnapshotInfo
from .states import States
from .transaction import Transaction
from .upkeep import Upkeep
from .values import Mark, RetentionReport

_NS = 1_000_000_000


class Keeping(States):
    _upkeep: Upkeep
    _retention_lock: threading.Lock

    def snapshot(self, source_id: int) -> None:
        """Keeps the newest state of a source. Raises StateNotRecordedError, LedgerError."""
        log = self._log_of(source_id)
        with self._lock:
            before = log.bytes_since_snapshot
        try:
            with self._history(source_id, log.newest) as history:
                point = history.newest()
            if point.last_id:
                self._awaited(self._keep(source_id, point, Origin.REPLAY))
        finally:
            # Also where it failed: the next try is due after as much again, not at once.
            with self._lock:
                log.bytes_since_snapshot = max(0, log.bytes_since_snapshot - before)

    def put_baseline(
        self, source_id: int, generation: int, seq: int, state: State
    ) -> "Future[int]":
        """A state that stands in for everything up to `seq` (what memory held when the record
        began late, or after a hole): later states of this generation are made from it. `seq` is
        a durable record of the generation, or the one before its first.

        The future is done when it is durable. Raises LedgerError, UnknownSourceError,
        UnknownGenerationError.
        """
        self._settle()
        log = self._log_of(source_id)
        opened = log.generation(generation)
        with self._readers.lend() as connection:
            row = connection.execute(
                "SELECT id FROM records WHERE source = ? AND generation = ? AND seq <= ?"
                " AND seq + count > ? ORDER BY seq DESC LIMIT 1",
                (source_id, generation, seq, seq),
            ).fetchone()
        if row is None and seq != opened.first_seq - 1:
            raise LedgerError(
                f"source {source_id}, generation {generation} has no durable record {seq}: "
                f"append the records before a baseline first"
            )
        last_id = opened.cut if row is None else row[0]
        point = Point(state, generation, seq, last_id, *boundary(state))
        return self._keep(source_id, point, Origin.BASELINE)

    def apply_retention(self, limits: Retention | None = None) -> RetentionReport:
        """Removes what the limits (None: the configured ones) no longer want kept.

        Works without room too: it is how room returns. Raises LedgerError.
        """
        limits = self.settings.retention if limits is None else limits
        with self._retention_lock:
            return self._apply(limits)

    def _apply(self, limits: Retention) -> RetentionReport:
        reports: list[RetentionReport] = []
        if limits.max_age_s is not None:
            oldest = self._clock() - int(limits.max_age_s * _NS)
            reports += self._cut(limits, lambda plan: plan.aged(oldest))
            reports.append(self._drop_attestations(oldest))
        reports += self._cut(limits, Plan.finished)
        while limits.max_bytes is not None and self.live_bytes() > limits.max_bytes:
            freed = self._cut(limits, Plan.oversized)
            if not any(report.records for report in freed):
                break
            reports += freed
        self._awaited(self._writer.submit(_give_back_pages))
        with self._readers.lend() as connection:
            return retention.total(reports, connection)

    def live_bytes(self) -> int:
        """Size of the file's pages in use."""
        with self._readers.lend() as connection:
            return retention.live_bytes(connection)

    def _cut(
        self, limits: Retention, choose: Callable[[Plan], list[PlannedCut]]
    ) -> list[RetentionReport]:
        with self._readers.lend() as connection:
            planned = choose(Plan(connection, self._registry, limits))
        reports = []
        for each in planned:
            log = self._log_of(each.source_id)
            removed = retention.ROWS_PER_CUT
            while removed == retention.ROWS_PER_CUT:
                job = partial(retention.cut_in, log=log, planned=each, unix_ns=self._clock())
                cut, report = self._awaited(self._writer.submit(job))
                with self._lock:
                    log.cut = cut
                removed = report.records
                reports.append(report)
        return reports

    def _drop_attestations(self, oldest_unix_ns: int) -> RetentionReport:
        dropped = self._awaited(
            self._writer.submit(
                lambda inside: retention.drop_attestations(inside.connection, oldest_unix_ns)
            )
        )
        return RetentionReport(0, 0, dropped, 0)

    def _keep(self, source_id: int, point: Point, origin: Origin) -> "Future[int]":
        data = snapshots.pack(point.state.to_bytes())
        info = SnapshotInfo(
            snapshot_id=0,
            generation=point.generation,
            seq=point.seq,
            last_id=point.last_id,
            origin=origin,
            launched=point.launched,
            committed=point.committed,
            digest=chain.body_digest(data),
            size=len(data),
        )
        log = self._log_of(source_id)
        with self._lock:
            keep = self.settings.retention.open_marks
            marks = retention.open_marks(self._registry, log.entry.worker, keep)
            marks = [mark for mark in marks if mark.incarnation == log.entry.incarnation]
            log.last_snapshot_bytes = len(data)

        def write(inside: Transaction) -> int:
            snapshot_id = snapshots.insert(inside.connection, source_id, info, data)
            found = snapshots.infos(inside.connection, source_id)
            spare = snapshots.superfluous(found, marks, keep=self.settings.snapshots_kept)
            inside.connection.executemany(
                "DELETE FROM snapshots WHERE id = ?", [(each.snapshot_id,) for each in spare]
            )
            return snapshot_id

        return self._writer.submit(write)

    def _grown(self, source_id: int) -> None:
        log = self._log_of(source_id)
        limit = max(
            self.settings.snapshot_bytes, self.settings.snapshot_ratio * log.last_snapshot_bytes
        )
        if log.bytes_since_snapshot > limit:
            self._upkeep.want_snapshot(source_id)

    def _marked(self, mark: Mark) -> None:
        for log in self._registry.logs():
            entry = log.entry
            if (entry.worker, entry.incarnation) == (mark.worker, mark.incarnation):
                self._upkeep.want_snapshot(entry.source_id)


def _give_back_pages(inside: Transaction) -> None:
    """Returns free pages at the end of the file to the disk, a bounded number at a time."""
    inside.connection.execute("PRAGMA incremental_vacuum(4096)").fetchall()
