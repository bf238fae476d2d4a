"""The ledger in one SQLite file: the parts put together, opened and closed."""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from . import control
from .connections import limit_pages, translate
from .errors import FlushTimeoutError, LedgerError
from .fold import Decoder
from .journal import Journal
from .keeping import Keeping
from .opening import Opened, open_store
from .recording import Recording
from .settings import LedgerSettings
from .upkeep import Upkeep
from .values import VerifyReport
from .verify import verify_connection

_CLOSE_S = 10.0


class SqliteLedger(Recording, Journal, Keeping):
    """See `interface.Ledger`. Thread-safe. Made by `open_ledger`; close it or use `with`."""

    def __init__(
        self,
        path: Path,
        settings: LedgerSettings,
        opened: Opened,
        decode: Decoder,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(path, settings, opened, decode, clock)
        self._closed = False
        self._retention_lock = threading.Lock()
        self._upkeep = Upkeep(self.snapshot, self.apply_retention, settings.retention_interval_s)
        self._writer.start()
        self._upkeep.start()
        if opened.lost_tail is not None:
            self._put_control(control.lost_tail_record(opened.lost_tail, clock()))

    @property
    def refuses(self) -> LedgerError | None:
        """Why nothing can be appended just now (no room, failed writer); None: all is well."""
        return self._writer.refuses

    @property
    def waiting_bytes(self) -> int:
        """What was accepted and is not durable."""
        return self._writer.waiting_bytes

    @property
    def size_bytes(self) -> int:
        """Size of the file and its write-ahead log on the disk."""
        sizes = 0
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                sizes += self.path.with_name(self.path.name + suffix).stat().st_size
        return sizes

    def limit_file(self, max_file_bytes: int | None) -> None:
        """Changes the limit on the file's size; None: only the disk's. Raises LedgerError."""
        self._awaited(
            self._writer.submit(lambda inside: limit_pages(inside.connection, max_file_bytes))
        )

    def verify(self) -> VerifyReport:
        """Walks everything that is durable. Appends go on meanwhile, retention waits."""
        with suppress(LedgerError):
            self.flush(self.settings.read_flush_s)
        with self._retention_lock, self._readers.lend() as connection:
            return verify_connection(connection, self.path, self._decode)

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Commits what waits and lets go of the file. What could not be committed in time was
        never acknowledged. Closing twice is closing once. Raises FlushTimeoutError when the
        disk does not answer: the file is then still held.
        """
        if self._closed:
            return
        self._closed = True
        self._upkeep.close(timeout_s)
        ended = self._writer.close(timeout_s)
        self._readers.close()
        if not ended:
            # It is inside SQLite: the file stays locked until it, or the process, ends.
            raise FlushTimeoutError(timeout_s, self._writer.waiting_bytes)
        try:
            self._store.close()
        except sqlite3.Error as error:
            raise translate(self.path, error, self.settings.max_file_bytes) from error
        finally:
            self._file_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_ledger(
    path: Path,
    settings: LedgerSettings | None = None,
    *,
    decode: Decoder | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> SqliteLedger:
    """Opens or creates a ledger for writing; one process at a time. `decode` None: the wire's.

    New folders have mode 0700, files 0600. Raises LedgerVersionError and LedgerCorruptError
    (the file was not touched), LedgerLockedError, LedgerNotWritableError, LedgerFullError.
    """
    settings = LedgerSettings() if settings is None else settings
    if decode is None:
        from sidecar.wire.payload import decode_payload  # noqa: PLC0415 - only who replays needs it

        decode = decode_payload
    return SqliteLedger(path, settings, open_store(path, settings), decode, clock)
