"""Counts what a ledger's file holds. Read-only, also beside a sidecar that writes it."""

import sqlite3
from pathlib import Path

from sidecar.cli.documents import Document
from sidecar.core.events import SourceKind
from sidecar.ledger import registry
from sidecar.ledger.connections import open_reader, translate
from sidecar.ledger.errors import LedgerCorruptError
from sidecar.ledger.registry import SourceLog
from sidecar.ledger.schema import file_version
from sidecar.ledger.values import RecordKind

# A Hole's `count` is the number of records that are missing in its place.
_COUNTS = """
SELECT COUNT(*), IFNULL(MIN(step), 0), IFNULL(MAX(step), 0), IFNULL(SUM(LENGTH(payload)), 0),
       IFNULL(SUM(CASE WHEN kind = ? THEN count ELSE 0 END), 0)
FROM records WHERE source = ?
"""


def statistics(path: Path) -> Document:
    """Sizes in bytes. Raises the ledger's errors: LedgerVersionError, LedgerCorruptError."""
    version = file_version(path)
    connection = open_reader(path)
    try:
        known, _ = registry.load(connection)
        return {
            "path": str(path),
            "format_version": version,
            "bytes": path.stat().st_size,
            "marks": len(known.marks),
            "verdicts": _controls(connection, RecordKind.VERDICT),
            "attestations": _controls(connection, RecordKind.ATTESTATION),
            "sources": [_source(connection, log) for log in known.sources.values()],
        }
    except sqlite3.Error as error:
        raise translate(path, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerCorruptError(path, f"control log: {error!r}") from error
    finally:
        connection.close()


def _controls(connection: sqlite3.Connection, kind: RecordKind) -> int:
    row = connection.execute("SELECT COUNT(*) FROM control WHERE kind = ?", (int(kind),))
    return int(row.fetchone()[0])


def _source(connection: sqlite3.Connection, log: SourceLog) -> Document:
    entry = log.entry
    scheduler = entry.key.kind is SourceKind.SCHEDULER
    counts = connection.execute(_COUNTS, (int(RecordKind.HOLE), entry.source_id)).fetchone()
    records, first_step, last_step, payload, holes = counts
    return {
        "source_id": entry.source_id,
        "worker": entry.worker,
        "incarnation": entry.incarnation,
        "source": "scheduler" if scheduler else f"rank {entry.key.rank}",
        "generations": len(log.generations),
        "records": records,
        "first_step": first_step,
        "last_step": last_step,
        "payload_bytes": payload,
        "holes": holes,
    }
