"""Transactions of the writing connection: rows, the control log, and the chains they extend."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import structlog

from . import chain
from .control import ControlRecord
from .settings import Durability
from .tip import Tip, TipFile

_log = structlog.get_logger(__name__)
_INSERT = (
    "INSERT INTO records (id, source, generation, seq, count, step, kind, received_unix_ns,"
    " chain, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Row(NamedTuple):
    """A record on its way into the table."""

    id: int
    source: int
    generation: int
    seq: int
    span: int
    step: int
    kind: int
    received_unix_ns: int
    payload: bytes


@dataclass(slots=True)
class Chains:
    """Newest link of every log, and the ids that go with them."""

    digests: dict[int, bytes] = field(default_factory=dict)
    links: dict[int, bytes] = field(default_factory=dict)
    record_id: int = 0
    control_id: int = 0
    control_link: bytes = chain.genesis(chain.CONTROL_DIGEST)

    def copy(self) -> "Chains":
        # Digests are shared: a source that is registered during a transaction must not be lost.
        return Chains(
            self.digests, dict(self.links), self.record_id, self.control_id, self.control_link
        )


class Transaction:
    """What may be done inside one transaction. Not thread-safe; not used after its end."""

    def __init__(self, connection: sqlite3.Connection, chains: Chains) -> None:
        self.connection = connection
        self.chains = chains

    def insert(self, rows: list[Row]) -> None:
        """Appends records; each extends the chain of its source."""
        links, digests = self.chains.links, self.chains.digests
        values = []
        for row in rows:
            source, digest = row.source, digests[row.source]
            previous = links.get(source) or chain.genesis(digest)
            link = chain.link(previous, digest, row.id, *row[2:8], row.payload)
            links[source] = link
            values.append((*row[:8], link, row.payload))
        if rows:
            self.chains.record_id = rows[-1].id
            self.connection.executemany(_INSERT, values)

    def control(self, record: ControlRecord) -> int:
        """Appends to the control log; returns the record's id."""
        chains = self.chains
        control_id = chains.control_id + 1
        link = chain.control_link(
            chains.control_link, control_id, record.kind, record.unix_ns, record.payload
        )
        digest = None
        if record.body is not None:
            digest = chain.body_digest(record.body)
            self.connection.execute(
                "INSERT OR IGNORE INTO bodies (digest, kind, unix_ns, data) VALUES (?, ?, ?, ?)",
                (digest, int(record.kind), record.unix_ns, record.body),
            )
        self.connection.execute(
            "INSERT INTO control (id, kind, key, worker, unix_ns, chain, body, payload)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                control_id,
                int(record.kind),
                record.key,
                record.worker,
                record.unix_ns,
                link,
                digest,
                record.payload,
            ),
        )
        chains.control_id = control_id
        chains.control_link = link
        return control_id


class Store:
    """The writing connection with its chains and its tip file. Used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        tip: TipFile,
        chains: Chains,
        durability: Durability,
    ) -> None:
        self.path = path
        self.connection = connection
        self.chains = chains
        self._tip = tip
        self._durability = durability

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Commits and moves chains and tip, or leaves all as they were. Raises sqlite3.Error."""
        self.connection.execute("BEGIN IMMEDIATE")
        inside = Transaction(self.connection, self.chains.copy())
        try:
            yield inside
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        self.chains = inside.chains
        try:
            self._tip.write(Tip(self.chains.record_id, self.chains.control_id))
        except OSError as error:
            # What was committed stays committed; only a later loss would not be noticed.
            _log.warning("ledger_tip_not_written", path=str(self.path), error=str(error))

    @contextmanager
    def synced_transaction(self) -> Iterator[Transaction]:
        """A transaction that survives a power cut, with all that was committed before it."""
        if self._durability is Durability.POWER:
            with self.transaction() as inside:
                yield inside
            return
        self.connection.execute("PRAGMA synchronous = FULL")
        try:
            with self.transaction() as inside:
                yield inside
        finally:
            self.connection.execute(f"PRAGMA synchronous = {self._durability.value}")

    def close(self) -> None:
        """Brings the write-ahead log into the file and closes both. Raises sqlite3.Error."""
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.connection.close()
            self._tip.close()
