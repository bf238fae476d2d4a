"""The one thread that writes. Everything else hands it batches and jobs.

A batch is acknowledged after its commit and in the order in which it was put. When there is no
room it stays in memory, is tried again, and nothing new is taken meanwhile. Jobs (snapshots,
retention) have transactions of their own and go before batches, so that retention can make
room for what waits.
"""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import structlog

from .connections import translate
from .control import ControlRecord
from .errors import (
    LedgerClosedError,
    LedgerError,
    LedgerFullError,
    LedgerLockedError,
    LedgerNotWritableError,
    QueueFullError,
)
from .settings import LedgerSettings
from .transaction import Row, Store, Transaction

T = TypeVar("T")
_log = structlog.get_logger(__name__)
# What may pass: what waits is kept and tried again.
_RETRIED = (LedgerFullError, LedgerLockedError, LedgerNotWritableError)


class Committed(NamedTuple):
    """What a commit made durable of one generation of a source."""

    source_id: int
    generation: int
    seq: int
    payload_bytes: int


@dataclass(slots=True)
class Batch:
    """What is put in one call: rows of one source, or control records with their future."""

    rows: list[Row]
    weight: int
    controls: tuple[ControlRecord, ...] = ()
    done: "Future[int] | None" = None


@dataclass(slots=True)
class _Job:
    run: Callable[[Transaction], Any]
    done: "Future[Any]" = field(default_factory=Future)


class Writer:
    """Uses the store alone from `start` until `close` returns. Thread-safe."""

    def __init__(
        self,
        store: Store,
        settings: LedgerSettings,
        on_commit: Callable[[list[Committed]], None],
    ) -> None:
        self._store = store
        self._path = store.path
        self._settings = settings
        self._on_commit = on_commit
        self._changed = threading.Condition()
        self._queue: deque[Batch] = deque()
        self._pending: list[Batch] = []
        self._jobs: deque[_Job] = deque()
        self._when_room: list[Callable[[], None]] = []
        self._waiting_bytes = 0
        self._oldest = 0.0
        self._urgent = False
        self._refuses: LedgerError | None = None
        self._closing = False
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    @property
    def refuses(self) -> LedgerError | None:
        """Why nothing is taken just now; None: all is well."""
        return self._refuses

    def put(self, batch: Batch) -> None:
        """Queues without blocking. Raises QueueFullError, LedgerFullError, LedgerClosedError."""
        with self._changed:
            self.check(batch.weight)
            if not self._queue and not self._pending:
                self._oldest = time.monotonic()
            self._queue.append(batch)
            self._waiting_bytes += batch.weight
            self._urgent |= batch.done is not None
            self._changed.notify_all()

    def check(self, weight: int) -> None:
        """Raises what `put` would raise. A batch larger than the queue passes when it is empty."""
        if self._refuses is not None:
            raise self._refuses
        if self._closing:
            raise LedgerClosedError(self._path)
        limit = self._settings.queue_bytes
        if self._waiting_bytes and self._waiting_bytes + weight > limit:
            raise QueueFullError(self._waiting_bytes, limit)

    def submit(self, job: Callable[[Transaction], T]) -> "Future[T]":
        """Runs a job in a transaction of its own, also while batches wait for room."""
        entry = _Job(job)
        with self._changed:
            if self._closing:
                raise LedgerClosedError(self._path)
            self._jobs.append(entry)
            self._changed.notify_all()
        return entry.done

    def when_room(self, callback: Callable[[], None]) -> None:
        """Calls back once, from the writer's thread, when at most half the queue is in use."""
        with self._changed:
            self._when_room.append(callback)
            self._changed.notify_all()

    def hurry(self) -> "Future[int]":
        """A future that is done when everything put before is durable."""
        batch = Batch([], 0, done=Future())
        with self._changed:
            if self._closing:
                raise LedgerClosedError(self._path)
            self._queue.append(batch)
            self._urgent = True
            self._changed.notify_all()
        if batch.done is None:
            raise AssertionError
        return batch.done

    def close(self, timeout_s: float) -> bool:
        """Commits what waits, if that can be done, and ends the thread; whether it has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:  # noqa: BLE001 - whatever it was, callers have to hear of it
            _log.exception("ledger_writer_failed", path=str(self._path))
            self._refuses = LedgerClosedError(self._path, f"its writer failed: {error}")
            self._refuses.__cause__ = error
        self._abandon()

    def _turn(self) -> bool:
        with self._changed:
            while not self._due():
                self._changed.wait(self._nap())
            jobs, self._jobs = self._jobs, deque()
            if not self._pending:
                self._pending, self._queue = list(self._queue), deque()
                self._urgent = False
            closing = self._closing
        for job in jobs:
            self._run_job(job)
        if self._pending:
            self._commit_pending()
        self._call_room()
        return not closing or (bool(self._queue) and not self._pending)

    def _due(self) -> bool:
        if self._closing or self._jobs or (self._when_room and self._has_room()):
            return True
        if self._pending:
            return time.monotonic() - self._oldest >= self._settings.full_retry_s
        if not self._queue:
            return False
        waited = time.monotonic() - self._oldest
        return (
            self._urgent
            or waited >= self._settings.batch_interval_s
            or self._waiting_bytes >= self._settings.batch_bytes
        )

    def _nap(self) -> float | None:
        if self._pending:
            return self._settings.full_retry_s
        if self._queue:
            return max(0.0, self._oldest + self._settings.batch_interval_s - time.monotonic())
        return None

    def _commit_pending(self) -> None:
        batches = self._pending
        try:
            committed = self._write(batches)
        except sqlite3.Error as error:
            problem = translate(self._path, error, self._settings.max_file_bytes)
            if not isinstance(problem, _RETRIED):
                raise problem from error
            if self._refuses is None:
                _log.warning("ledger_refuses", path=str(self._path), error=str(problem))
            self._oldest = time.monotonic()
            self._refuses = problem
            return
        with self._changed:
            self._pending = []
            self._waiting_bytes -= sum(batch.weight for batch in batches)
            self._refuses = None
            self._oldest = time.monotonic()
        self.commits += 1
        if committed:
            self._on_commit(committed)
        for batch in batches:
            if batch.done is not None:
                batch.done.set_result(self._store.chains.control_id)

    def _write(self, batches: list[Batch]) -> list[Committed]:
        rows = [row for batch in batches for row in batch.rows]
        synced = any(batch.controls for batch in batches)
        store = self._store
        with store.synced_transaction() if synced else store.transaction() as transaction:
            transaction.insert(rows)
            for batch in batches:
                for record in batch.controls:
                    transaction.control(record)
        newest: dict[tuple[int, int], tuple[int, int]] = {}
        for row in rows:
            size = newest.get((row.source, row.generation), (0, 0))[1] + len(row.payload)
            newest[row.source, row.generation] = (row.seq + row.span - 1, size)
        return [Committed(*log, seq, size) for log, (seq, size) in newest.items()]

    def _run_job(self, job: _Job) -> None:
        try:
            with self._store.transaction() as transaction:
                result = job.run(transaction)
        except sqlite3.Error as error:
            problem = translate(self._path, error, self._settings.max_file_bytes)
            job.done.set_exception(problem)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever submitted the job
            job.done.set_exception(error)
        else:
            job.done.set_result(result)
            # It may have made room.
            self._oldest = 0.0

    def _has_room(self) -> bool:
        return self._refuses is None and 2 * self._waiting_bytes <= self._settings.queue_bytes

    def _call_room(self) -> None:
        with self._changed:
            if not self._has_room():
                return
            callbacks, self._when_room = self._when_room, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001 - it is the callback's error, and it is logged
                _log.exception("ledger_room_callback_failed")

    def _abandon(self) -> None:
        """Nothing more will be written: say so to everybody who waits."""
        with self._changed:
            self._closing = True
            lost = [*self._pending, *self._queue]
            jobs = list(self._jobs)
            self._pending, self._queue, self._jobs = [], deque(), deque()
            problem = self._refuses or LedgerClosedError(self._path)
        for done in [batch.done for batch in lost] + [job.done for job in jobs]:
            if done is not None and not done.done():
                done.set_exception(problem)
        callbacks, self._when_room = self._when_room, []
        for callback in callbacks:
            callback()
