"""Opening a ledger file for writing: checks, lock, what was known, what was lost."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from . import registry
from .connections import open_writer, translate
from .errors import LedgerCorruptError, LedgerNotWritableError
from .lock import LedgerLock
from .registry import Registry
from .schema import file_version, refuse_newer
from .settings import LedgerSettings
from .tip import TipFile, read_tip
from .transaction import Store
from .values import LostTail


@dataclass(frozen=True, slots=True)
class Opened:
    lock: LedgerLock
    store: Store
    registry: Registry
    lost_tail: LostTail | None


def open_store(path: Path, settings: LedgerSettings) -> Opened:
    """Raises LedgerVersionError and LedgerCorruptError (nothing was touched), LedgerLockedError,
    LedgerNotWritableError.
    """
    refuse_newer(path, file_version(path))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerNotWritableError(path, str(error)) from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise LedgerNotWritableError(path, f"folder {path.parent} is read-only")
    lock = LedgerLock(path)
    try:
        return _open_locked(path, settings, lock)
    except BaseException:
        lock.release()
        raise


def _open_locked(path: Path, settings: LedgerSettings, lock: LedgerLock) -> Opened:
    # Read before the database, which may only be ahead of it.
    tip = read_tip(path)
    connection = open_writer(path, settings)
    try:
        known, chains = registry.load(connection)
    except sqlite3.Error as error:
        connection.close()
        raise translate(path, error) from error
    except registry.DECODE_ERRORS as error:
        connection.close()
        raise LedgerCorruptError(path, f"control log: {error!r}") from error
    lost = None
    if tip is not None and tip.record_id > chains.record_id:
        lost = LostTail(chains.record_id + 1, tip.record_id)
        # Ids of lost events are not given again: cuts that name them keep their meaning.
        chains.record_id = tip.record_id
    try:
        tip_file = TipFile(path)
    except OSError as error:
        connection.close()
        raise LedgerNotWritableError(path, str(error)) from error
    store = Store(path, connection, tip_file, chains, settings.durability)
    return Opened(lock, store, known, lost)
