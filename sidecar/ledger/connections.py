"""SQLite connections, and the translation of its errors into this package's."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import (
    LedgerClosedError,
    LedgerCorruptError,
    LedgerError,
    LedgerFullError,
    LedgerLockedError,
    LedgerNotWritableError,
)
from .schema import PAGE_BYTES, create, file_version, migrate, refuse_newer
from .settings import LedgerSettings

_BUSY_S = 5.0
_NOT_WRITABLE = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_IOERR,
    }
)
# 16 MiB of write-ahead log before it is brought into the file: each time costs two fsyncs.
_CHECKPOINT_PAGES = 4096


def translate(path: Path, error: sqlite3.Error, limit_bytes: int | None = None) -> LedgerError:
    """The error of this package for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_FULL:
        return LedgerFullError(path, limit_bytes)
    if primary in _NOT_WRITABLE:
        return LedgerNotWritableError(path, str(error))
    if primary == sqlite3.SQLITE_BUSY:
        return LedgerLockedError(path, "unknown")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return LedgerCorruptError(path, str(error))
    return LedgerError(f"ledger {path}: {error}")


def open_writer(path: Path, settings: LedgerSettings) -> sqlite3.Connection:
    """The one writing connection; creates or migrates the file. The caller holds the lock.

    Folders that it makes have mode 0700, files 0600. Raises LedgerVersionError,
    LedgerCorruptError, LedgerNotWritableError.
    """
    version = file_version(path)
    refuse_newer(path, version)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
    except OSError as error:
        raise LedgerNotWritableError(path, str(error)) from error
    try:
        if version is None:
            create(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {settings.durability.value}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {4 * _CHECKPOINT_PAGES * PAGE_BYTES}")
        if version is None:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        migrate(connection, path)
        limit_pages(connection, settings.max_file_bytes)
    except sqlite3.Error as error:
        connection.close()
        raise translate(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def limit_pages(connection: sqlite3.Connection, max_file_bytes: int | None) -> None:
    """Bounds the size of the database file; None: SQLite's own limit."""
    pages = 0xFFFFFFFE if max_file_bytes is None else max(1, max_file_bytes // PAGE_BYTES)
    connection.execute(f"PRAGMA max_page_count = {pages}")


def open_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection. Raises LedgerVersionError, LedgerCorruptError, LedgerError."""
    version = file_version(path)
    if version is None:
        raise LedgerCorruptError(path, "there is no file, or it is empty")
    refuse_newer(path, version)
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA trusted_schema = OFF")
    except sqlite3.Error as error:
        raise translate(path, error) from error
    return connection


class ReaderPool:
    """At most `size` reading connections, lent to one thread at a time. They never block the
    writer: records are read in bounded queries, not in one long transaction.
    """

    def __init__(self, path: Path, size: int, wait_s: float = 30.0) -> None:
        self._path = path
        self._wait_s = wait_s
        self._room = threading.BoundedSemaphore(size)
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """Raises LedgerError when no connection comes free in time, and translated errors."""
        if not self._room.acquire(timeout=self._wait_s):
            raise LedgerError(f"no reader of ledger {self._path} came free in {self._wait_s} s")
        try:
            connection = self._take()
            try:
                yield connection
            except sqlite3.Error as error:
                raise translate(self._path, error) from error
            finally:
                self._give_back(connection)
        finally:
            self._room.release()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise LedgerClosedError(self._path)
            if self._idle:
                return self._idle.pop()
        return open_reader(self._path)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()
