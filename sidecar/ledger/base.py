"""What all parts of the ledger share: the file, the lock, the writer, the readers."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import TypeVar

import structlog

from .connections import ReaderPool
from .control import ControlRecord
from .errors import FlushTimeoutError
from .fold import CoreFold, Decoder
from .opening import Opened
from .registry import SourceLog
from .settings import LedgerSettings
from .values import Mark
from .writer import Batch, Committed, Writer

# (source_id, generation, newest durable seq), from the writer's thread.
DurableCallback = Callable[[int, int, int], None]

_log = structlog.get_logger(__name__)
_CONTROL_OVERHEAD = 256
_JOB_S = 120.0
T = TypeVar("T")


class LedgerBase:
    """Not used by itself: SqliteLedger is made of its subclasses."""

    def __init__(
        self,
        path: Path,
        settings: LedgerSettings,
        opened: Opened,
        decode: Decoder,
        clock: Callable[[], int],
    ) -> None:
        self.path = path
        self.settings = settings
        self.lost_tail = opened.lost_tail
        self._clock = clock
        self._decode = decode
        self._lock = threading.RLock()
        self._registry = opened.registry
        self._store = opened.store
        self._file_lock = opened.lock
        self._last_id = opened.store.chains.record_id
        self._callbacks: list[DurableCallback] = []
        self._readers = ReaderPool(path, settings.readers)
        self._writer = Writer(opened.store, settings, self._committed)

    def flush(self, timeout_s: float) -> None:
        """Returns once everything appended before the call is durable.

        Raises FlushTimeoutError, and what keeps the writer from writing.
        """
        done = self._writer.hurry()
        try:
            done.result(timeout_s)
        except FutureTimeoutError as error:
            if (refused := self._writer.refuses) is not None:
                raise refused from error
            raise FlushTimeoutError(timeout_s, self._writer.waiting_bytes) from error

    def _awaited(self, done: "Future[T]") -> T:
        """What the writer did. Raises LedgerError, FlushTimeoutError after a long time."""
        try:
            return done.result(_JOB_S)
        except FutureTimeoutError as error:
            raise FlushTimeoutError(_JOB_S, self._writer.waiting_bytes) from error

    def _log_of(self, source_id: int) -> SourceLog:
        with self._lock:
            return self._registry.log(source_id)

    def _fold(self, log: SourceLog) -> CoreFold:
        return CoreFold(log.entry, self._decode)

    def _put_control(self, *records: ControlRecord) -> "Future[int]":
        """Queues control records, all or none; the future is done when they are durable, also at
        a power cut.
        """
        done: Future[int] = Future()
        weight = sum(
            len(record.payload) + len(record.body or b"") + _CONTROL_OVERHEAD for record in records
        )
        self._writer.put(Batch([], weight, records, done))
        return done

    def _committed(self, commits: list[Committed]) -> None:
        """On the writer's thread, after every commit."""
        with self._lock:
            for commit in commits:
                log = self._registry.log(commit.source_id)
                log.durable[commit.generation] = commit.seq
                log.bytes_since_snapshot += commit.payload_bytes
            callbacks = tuple(self._callbacks)
        for commit in commits:
            self._grown(commit.source_id)
            for callback in callbacks:
                try:
                    callback(commit.source_id, commit.generation, commit.seq)
                except Exception:  # noqa: BLE001 - it is the callback's error, and it is logged
                    _log.exception("ledger_durable_callback_failed")

    def _grown(self, source_id: int) -> None:
        """A source has more durable records than before."""
        raise NotImplementedError

    def _marked(self, mark: Mark) -> None:
        """A mark was made: its window should not need a long replay."""
        raise NotImplementedError
