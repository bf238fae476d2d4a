"""The record of a worker in the order in which it was written."""

import sqlite3
from collections.abc import Iterator, Mapping

from . import rows
from .values import ExportedRecord, SourceEntry

_CHUNK_ROWS = 256


def exported(
    connection: sqlite3.Connection,
    sources: Mapping[int, SourceEntry],
    from_step: int,
    to_step: int,
) -> Iterator[ExportedRecord]:
    """Raises sqlite3.Error. No query stays open between records."""
    (newest,) = connection.execute("SELECT IFNULL(MAX(id), 0) FROM records").fetchone()
    last_step = to_step or (1 << 63) - 1
    # Source ids are integers from the registry.
    listed = ",".join(str(source_id) for source_id in sources)
    after = 0
    while True:
        chunk = connection.execute(
            f"SELECT {rows.COLUMNS} FROM records WHERE id > ? AND id <= ?"  # noqa: S608
            f" AND source IN ({listed}) AND step >= ? AND step <= ? ORDER BY id LIMIT ?",
            (after, newest, from_step, last_step, _CHUNK_ROWS),
        ).fetchall()
        for values in chunk:
            read = rows.read_of(values)
            row = read.row
            after = row.id
            yield ExportedRecord(
                source=sources[row.source],
                generation=row.generation,
                record_id=row.id,
                record=rows.stored_record(row),
                received_unix_ns=row.received_unix_ns,
                chain=read.link,
            )
        if len(chunk) < _CHUNK_ROWS:
            return
