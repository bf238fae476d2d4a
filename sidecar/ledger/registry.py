"""What is known of every source: generations, and how far each was accepted and committed.

Rebuilt from the control log and the newest records when a ledger is opened. Not thread-safe:
the ledger guards it with its lock.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import chain, control
from .control import Cut
from .errors import (
    GenerationConflictError,
    RecordOutOfRangeError,
    SequenceGapError,
    UnknownGenerationError,
    UnknownSourceError,
)
from .transaction import Chains
from .values import Generation, LostTail, Mark, RecordKind, SourceEntry, StoredRecord

# SQLite's integers are signed.
_MAX_INTEGER = (1 << 63) - 1


@dataclass(slots=True)
class SourceLog:
    """`accepted` and `durable` are the newest seq by generation; they start before its first."""

    entry: SourceEntry
    digest: bytes
    generations: dict[int, Generation] = field(default_factory=dict)
    accepted: dict[int, int] = field(default_factory=dict)
    durable: dict[int, int] = field(default_factory=dict)
    cut: Cut | None = None
    duplicates: int = 0
    bytes_since_snapshot: int = 0
    last_snapshot_bytes: int = 0

    @property
    def newest(self) -> int:
        return max(self.generations)

    def generation(self, number: int) -> Generation:
        found = self.generations.get(number)
        if found is None:
            raise UnknownGenerationError(self.entry.source_id, number)
        return found

    def check_new(self, number: int, parent: int, first_seq: int) -> None:
        """Raises GenerationConflictError, UnknownGenerationError, SequenceGapError."""
        source_id = self.entry.source_id
        if number != self.newest + 1:
            why = f"the next generation is {self.newest + 1}: generations are counted without a gap"
            raise GenerationConflictError(source_id, number, why)
        self.generation(parent)
        if first_seq < 1:
            raise GenerationConflictError(source_id, number, f"first seq {first_seq} is below 1")
        tip = self.accepted[parent]
        if first_seq > tip + 1:
            raise SequenceGapError(source_id, number, tip + 1, first_seq)

    def add(self, generation: Generation) -> None:
        number = generation.generation
        self.generations[number] = generation
        self.accepted[number] = self.durable[number] = generation.first_seq - 1

    def fresh(self, number: int, records: Sequence[StoredRecord]) -> list[StoredRecord]:
        """Those records that are not there yet; a Hole keeps only what it adds.

        Raises SequenceGapError, GenerationConflictError, UnknownGenerationError and
        RecordOutOfRangeError; nothing changes.
        """
        self.generation(number)
        if number != self.newest:
            why = f"it was followed by generation {self.newest} and takes no more records"
            raise GenerationConflictError(self.entry.source_id, number, why)
        tip = self.accepted[number]
        fresh: list[StoredRecord] = []
        for record in records:
            last = self._last_seq(record)
            if last <= tip:
                continue
            if record.seq > tip + 1:
                raise SequenceGapError(self.entry.source_id, number, tip + 1, record.seq)
            if record.seq <= tip:
                record = StoredRecord(  # noqa: PLW2901 - the part that is new stands for it
                    tip + 1, record.step, record.kind, record.payload, last - tip
                )
            fresh.append(record)
            tip = last
        return fresh

    def _last_seq(self, record: StoredRecord) -> int:
        last = record.seq + record.count - 1
        numbers = (("seq", record.seq), ("count", record.count), ("last seq", last))
        for name, value in numbers:
            if not 1 <= value <= _MAX_INTEGER:
                raise RecordOutOfRangeError(self.entry.source_id, name, value)
        if not 0 <= record.step <= _MAX_INTEGER:
            raise RecordOutOfRangeError(self.entry.source_id, "step", record.step)
        return last


_READ = (
    RecordKind.SOURCE,
    RecordKind.GENERATION,
    RecordKind.MARK,
    RecordKind.CUT,
    RecordKind.LOST_TAIL,
)


class ControlRow(NamedTuple):
    id: int
    kind: int
    unix_ns: int
    payload: bytes


class Registry:
    """Sources by id and by name, marks by worker and name, ends that were lost."""

    def __init__(self) -> None:
        self.sources: dict[int, SourceLog] = {}
        self.marks: dict[tuple[str, str], Mark] = {}
        self.lost: list[LostTail] = []
        self._by_name: dict[tuple[str, str, int, int], int] = {}

    def add(self, entry: SourceEntry) -> SourceLog:
        key = entry.key
        digest = chain.source_digest(entry.worker, entry.incarnation, int(key.kind), key.rank)
        log = self.sources[entry.source_id] = SourceLog(entry, digest)
        self._by_name[entry.worker, entry.incarnation, int(key.kind), key.rank] = entry.source_id
        return log

    def logs(self) -> list[SourceLog]:
        return list(self.sources.values())

    def log(self, source_id: int) -> SourceLog:
        found = self.sources.get(source_id)
        if found is None:
            raise UnknownSourceError(source_id)
        return found

    def find(self, worker: str, incarnation: str, kind: int, rank: int) -> SourceLog | None:
        source_id = self._by_name.get((worker, incarnation, kind, rank))
        return None if source_id is None else self.sources[source_id]


# What a damaged control record raises when it is decoded.
DECODE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, UnknownSourceError)


def load(connection: sqlite3.Connection) -> tuple[Registry, Chains]:
    """Raises sqlite3.Error, and one of DECODE_ERRORS for a damaged control log."""
    registry = Registry()
    for record in control_rows(connection):
        take_control(registry, record)
    chains = Chains()
    newest = connection.execute("SELECT id, chain FROM control ORDER BY id DESC LIMIT 1").fetchone()
    if newest is not None:
        chains.control_id, chains.control_link = newest
    chains.record_id = newest_id(connection, registry)
    for log in registry.logs():
        _load_tips(connection, log, chains)
    return registry, chains


def control_rows(connection: sqlite3.Connection) -> list[ControlRow]:
    """Those that the registry is made of, in order. Raises sqlite3.Error."""
    wanted = ",".join(str(int(kind)) for kind in _READ)
    query = f"SELECT id, kind, unix_ns, payload FROM control WHERE kind IN ({wanted}) ORDER BY id"  # noqa: S608
    return [ControlRow(*row) for row in connection.execute(query)]


def take_control(registry: Registry, record: ControlRow) -> None:
    """Raises one of DECODE_ERRORS."""
    if record.kind == RecordKind.SOURCE:
        registry.add(control.source_entry(record.payload, record.unix_ns))
    elif record.kind == RecordKind.GENERATION:
        source_id, generation = control.generation_of(record.payload, record.unix_ns)
        registry.log(source_id).add(generation)
    elif record.kind == RecordKind.MARK:
        mark = control.mark_of(record.payload)
        registry.marks[mark.worker, mark.name] = mark
    elif record.kind == RecordKind.CUT:
        cut = control.cut_of(record.payload)
        registry.log(cut.source_id).cut = cut
    else:
        registry.lost.append(control.lost_tail_of(record.payload))


def newest_id(connection: sqlite3.Connection, registry: Registry) -> int:
    """Newest event id that was ever given, as far as the file knows. Raises sqlite3.Error."""
    (stored,) = connection.execute("SELECT IFNULL(MAX(id), 0) FROM records").fetchone()
    cuts = [log.cut.last_id for log in registry.logs() if log.cut is not None]
    return max([int(stored), *cuts, *(lost.last_id for lost in registry.lost)])


def _load_tips(connection: sqlite3.Connection, log: SourceLog, chains: Chains) -> None:
    source_id, cut = log.entry.source_id, log.cut
    chains.digests[source_id] = log.digest
    if cut is not None:
        chains.links[source_id] = cut.chain
        for number in log.generations:
            tip = cut.tips.get(number, log.accepted[number])
            log.accepted[number] = log.durable[number] = tip
    for number in sorted(log.generations):
        row = connection.execute(
            "SELECT seq + count - 1, chain FROM records WHERE source = ? AND generation = ?"
            " ORDER BY seq DESC LIMIT 1",
            (source_id, number),
        ).fetchone()
        if row is not None:
            log.accepted[number] = log.durable[number] = row[0]
            chains.links[source_id] = row[1]
    last = connection.execute(
        "SELECT last_id, LENGTH(data) FROM snapshots WHERE source = ?"
        " ORDER BY last_id DESC LIMIT 1",
        (source_id,),
    ).fetchone()
    last_id, log.last_snapshot_bytes = last if last is not None else (0, 0)
    (log.bytes_since_snapshot,) = connection.execute(
        "SELECT IFNULL(SUM(LENGTH(payload)), 0) FROM records"
        " WHERE source = ? AND generation = ? AND id > ?",
        (source_id, log.newest if log.generations else 0, last_id),
    ).fetchone()
