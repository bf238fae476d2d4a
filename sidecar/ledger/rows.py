"""Reading record rows in bounded queries, with their chain checked on the way."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import chain
from .errors import LedgerCorruptError
from .lineage import Segment
from .registry import SourceLog
from .transaction import Row
from .values import RecordKind, StoredRecord

_CHUNK_ROWS = 128
COLUMNS = "id, source, generation, seq, count, step, kind, received_unix_ns, payload, chain"


class Read(NamedTuple):
    """A row as it lies in the table, with its stored link."""

    row: Row
    link: bytes


def read_of(values: tuple[object, ...]) -> Read:
    """From a query of COLUMNS."""
    return Read(Row(*values[:9]), values[9])  # type: ignore[arg-type]


def expected_link(previous: bytes, digest: bytes, row: Row) -> bytes:
    return chain.link(previous, digest, row.id, *row[2:8], row.payload)


def link_before(connection: sqlite3.Connection, log: SourceLog, generation: int, seq: int) -> bytes:
    """The stored link of the record before (generation, seq) of a source."""
    found = connection.execute(
        "SELECT chain FROM records WHERE source = ? AND (generation, seq) < (?, ?)"
        " ORDER BY generation DESC, seq DESC LIMIT 1",
        (log.entry.source_id, generation, seq),
    ).fetchone()
    if found is not None:
        return bytes(found[0])
    return log.cut.chain if log.cut is not None else chain.genesis(log.digest)


def checked(
    connection: sqlite3.Connection,
    path: Path,
    log: SourceLog,
    segment: Segment,
    after_seq: int,
) -> Iterator[Read]:
    """Rows of a segment beyond `after_seq`, in order of seq.

    Raises LedgerCorruptError where a link does not fit or a seq is missing. No query stays open
    between rows, so the writer is never held up.
    """
    source_id, generation = log.entry.source_id, segment.generation
    expected = max(after_seq + 1, segment.first)
    end = segment.end if segment.end is not None else (1 << 63) - 1
    previous: bytes | None = None
    while True:
        chunk = connection.execute(
            f"SELECT {COLUMNS} FROM records WHERE source = ? AND generation = ?"  # noqa: S608
            " AND seq >= ? AND seq < ? ORDER BY seq LIMIT ?",
            (source_id, generation, expected, end, _CHUNK_ROWS),
        ).fetchall()
        for values in chunk:
            read = read_of(values)
            row = read.row
            where = f"source {source_id}, generation {generation}, seq {row.seq}"
            if row.seq != expected:
                raise LedgerCorruptError(path, f"{where}: seq {expected} is missing before it")
            if previous is None:
                previous = link_before(connection, log, generation, row.seq)
            if expected_link(previous, log.digest, row) != read.link:
                raise LedgerCorruptError(path, f"{where}: its checksum chain is broken")
            previous = read.link
            expected = row.seq + row.span
            yield read
        if len(chunk) < _CHUNK_ROWS:
            break
    if segment.end is not None and expected < segment.end:
        where = f"source {source_id}, generation {generation}"
        raise LedgerCorruptError(path, f"{where}: seq {expected} and later are missing")


def stored_record(row: Row) -> StoredRecord:
    return StoredRecord(row.seq, row.step, RecordKind(row.kind), row.payload, row.span)
