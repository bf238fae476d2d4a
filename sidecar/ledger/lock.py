"""One writing process per ledger, by an advisory lock that dies with its process."""

import fcntl
import os
from pathlib import Path

from .errors import LedgerLockedError, LedgerNotWritableError


class LedgerLock:
    """Held from construction to `release`. Raises LedgerLockedError, LedgerNotWritableError."""

    def __init__(self, database: Path) -> None:
        path = database.with_name(database.name + ".lock")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerNotWritableError(database, str(error)) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise LedgerLockedError(database, holder) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._fd)
