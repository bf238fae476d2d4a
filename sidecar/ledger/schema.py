"""Tables, format version and migrations. docs/ledger.md describes every column.

The version stands in the file's header (`PRAGMA user_version`) and is read from the raw
header before SQLite opens the file, so that a file of a newer format is left untouched.
"""

import sqlite3
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from .errors import LedgerCorruptError, LedgerNotWritableError, LedgerVersionError

APPLICATION_ID = 0x544B5754  # "TKWT"
VERSION = 1
PAGE_BYTES = 4096

_MAGIC = b"SQLite format 3\0"
_VERSION_AT = 60
_APPLICATION_AT = 68
_HEADER_BYTES = 100

# Small columns stand before the payload, so that reading them does not walk its overflow pages.
_TABLES = """
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    source INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    count INTEGER NOT NULL,
    step INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    received_unix_ns INTEGER NOT NULL,
    chain BLOB NOT NULL,
    payload BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX records_by_seq ON records (source, generation, seq);
CREATE TABLE control (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    key TEXT NOT NULL,
    worker TEXT NOT NULL,
    unix_ns INTEGER NOT NULL,
    chain BLOB NOT NULL,
    body BLOB,
    payload BLOB NOT NULL
) STRICT;
CREATE INDEX control_by_key ON control (kind, key, id);
CREATE TABLE bodies (
    digest BLOB PRIMARY KEY,
    kind INTEGER NOT NULL,
    unix_ns INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE snapshots (
    id INTEGER PRIMARY KEY,
    source INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    launched INTEGER NOT NULL,
    committed INTEGER NOT NULL,
    digest BLOB NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX snapshots_by_source ON snapshots (source, last_id);
"""

# From version N (key) to N + 1. Each runs inside one transaction with the version's change.
Migration = Callable[[sqlite3.Connection], None]
MIGRATIONS: Mapping[int, Migration] = {}


def file_version(path: Path) -> int | None:
    """Format version in the file's raw header; None: the file is absent or empty.

    Raises LedgerCorruptError when it is not a ledger at all, LedgerNotWritableError when it
    cannot even be read.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerNotWritableError(path, str(error)) from error
    if not header:
        return None
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise LedgerCorruptError(path, "it does not begin with the header of an SQLite file")
    (application,) = struct.unpack_from(">I", header, _APPLICATION_AT)
    if application != APPLICATION_ID:
        raise LedgerCorruptError(path, f"application id {application:#010x} is not a ledger's")
    (version,) = struct.unpack_from(">I", header, _VERSION_AT)
    return int(version)


def refuse_newer(path: Path, version: int | None, supported: int = VERSION) -> None:
    """Raises LedgerVersionError for a file of a newer format."""
    if version is not None and version > supported:
        raise LedgerVersionError(path, version, supported)


def create(connection: sqlite3.Connection) -> None:
    """Lays out an empty ledger. `connection` is in autocommit mode and owns the file."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.executescript(
        f"BEGIN IMMEDIATE; {_TABLES}"
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
    )


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    *,
    target: int = VERSION,
    steps: Mapping[int, Migration] = MIGRATIONS,
) -> int:
    """Brings an older file to `target` in one transaction; returns the version that it had.

    Raises LedgerVersionError when there is no way from there; the file then stays as it was.
    """
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == target:
        return int(found)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version in range(found, target):
            if version not in steps:
                raise LedgerVersionError(path, found, target)  # noqa: TRY301 - inside the rollback
            steps[version](connection)
        connection.execute(f"PRAGMA user_version = {target}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    # The raw header is what the next program reads first: bring the change out of the WAL.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return int(found)
