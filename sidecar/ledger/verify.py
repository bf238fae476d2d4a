"""Walks a whole ledger and says where it breaks. Goes on past every bad place.

Finds: pages that SQLite finds damaged, records that cannot be read, links that do not fit,
missing seqs, a lost end, control records whose body differs, snapshots that differ from a
replay. Cannot find: an edit by somebody who rewrote all links after it, damage in free pages.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from . import chain, control, registry
from .connections import open_reader
from .errors import LedgerError, LedgerVersionError
from .fold import Decoder
from .registry import Registry, SourceLog
from .rows import COLUMNS, Read, expected_link, read_of
from .tip import Tip, read_tip, tip_path
from .values import Fault, Problem, RecordKind, VerifyReport
from .verify_snapshots import check_snapshots

_CHUNK_ROWS = 256
_PROBLEMS_LISTED = 200
_PAGE_PROBLEMS = 50


class Findings:
    """Collects problems up to a limit and counts the rest."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.left_off = 0
        self.records = 0
        self.snapshots = 0
        self.bodies = 0

    def add(
        self,
        fault: Fault,
        what: str,
        source_id: int | None = None,
        generation: int | None = None,
        seq: int | None = None,
    ) -> None:
        if len(self.problems) < _PROBLEMS_LISTED:
            self.problems.append(Problem(fault, what, source_id, generation, seq))
        else:
            self.left_off += 1

    def report(self, sources: int) -> VerifyReport:
        return VerifyReport(
            sources=sources,
            records=self.records,
            snapshots=self.snapshots,
            bodies=self.bodies,
            problems=tuple(self.problems),
            problems_left_off=self.left_off,
        )


def verify_file(path: Path, decode: Decoder) -> VerifyReport:
    """Verifies a file, also one that a running sidecar writes. Never raises for a bad file: a
    foreign format or a damaged file is a problem in the report.
    """
    findings = Findings()
    try:
        connection = open_reader(path)
    except LedgerVersionError as error:
        findings.add(Fault.VERSION, str(error))
        return findings.report(0)
    except LedgerError as error:
        findings.add(Fault.NOT_A_LEDGER, str(error))
        return findings.report(0)
    try:
        return verify_connection(connection, path, decode)
    finally:
        connection.close()


def verify_connection(connection: sqlite3.Connection, path: Path, decode: Decoder) -> VerifyReport:
    """Retention must not run meanwhile; appends may."""
    findings = Findings()
    tip = read_tip(path)
    _check_pages(connection, findings)
    _check_control(connection, findings)
    known = _known(connection, findings)
    _check_tip(connection, path, tip, known, findings)
    _check_ids(connection, known, findings)
    for log in known.logs():
        _check_source(connection, log, findings)
        try:
            findings.snapshots += check_snapshots(connection, path, log, decode, findings.add)
        except (sqlite3.Error, LedgerError) as error:
            what = f"snapshots cannot be checked: {error}"
            findings.add(Fault.SNAPSHOT, what, log.entry.source_id)
    return findings.report(len(known.sources))


def _known(connection: sqlite3.Connection, findings: Findings) -> Registry:
    """What the readable part of the control log says."""
    known = Registry()
    try:
        for record in registry.control_rows(connection):
            try:
                registry.take_control(known, record)
            except registry.DECODE_ERRORS as error:
                findings.add(Fault.CONTROL, f"cannot be decoded: {error!r}", 0, 0, record.id)
        stored = connection.execute("SELECT DISTINCT source FROM records").fetchall()
    except sqlite3.Error as error:
        findings.add(Fault.UNREADABLE, f"control log or index: {error}", 0)
        return known
    for (source_id,) in stored:
        if source_id not in known.sources:
            findings.add(
                Fault.CONTROL, "there are records of a source that is not known", source_id
            )
    return known


def _check_tip(
    connection: sqlite3.Connection, path: Path, tip: Tip | None, known: Registry, findings: Findings
) -> None:
    try:
        record_id = registry.newest_id(connection, known)
        (control_id,) = connection.execute("SELECT IFNULL(MAX(id), 0) FROM control").fetchone()
    except sqlite3.Error as error:
        findings.add(Fault.UNREADABLE, f"the newest ids: {error}")
        return
    if tip is None:
        if record_id or control_id:
            findings.add(Fault.TIP, f"{tip_path(path).name} is missing or damaged")
    elif tip.record_id > record_id or tip.control_id > control_id:
        what = (
            f"records end at id {record_id} and control records at {control_id}, "
            f"committed were {tip.record_id} and {tip.control_id}"
        )
        findings.add(Fault.LOST_TAIL, what)


def _check_pages(connection: sqlite3.Connection, findings: Findings) -> None:
    try:
        for (line,) in connection.execute(f"PRAGMA integrity_check({_PAGE_PROBLEMS})"):
            if line != "ok":
                findings.add(Fault.PAGES, line)
    except sqlite3.Error as error:
        findings.add(Fault.PAGES, str(error))


def _check_control(connection: sqlite3.Connection, findings: Findings) -> None:
    previous = chain.genesis(chain.CONTROL_DIGEST)
    expected = 1
    try:
        (last,) = connection.execute("SELECT IFNULL(MAX(id), 0) FROM control").fetchone()
    except sqlite3.Error as error:
        findings.add(Fault.UNREADABLE, str(error), 0)
        return
    while expected <= last:
        try:
            values = connection.execute(
                "SELECT kind, unix_ns, payload, chain, body FROM control WHERE id = ?", (expected,)
            ).fetchone()
        except sqlite3.Error as error:
            findings.add(Fault.UNREADABLE, str(error), 0, 0, expected)
            values = None
        else:
            if values is None:
                findings.add(Fault.MISSING_SEQ, "control record is missing", 0, 0, expected)
        if values is None:
            previous = b""
        else:
            kind, unix_ns, payload, stored, body = values
            link = chain.control_link(previous, expected, kind, unix_ns, payload)
            if previous and link != stored:
                findings.add(Fault.CHAIN, "link does not fit", 0, 0, expected)
            previous = stored
            _check_body(connection, kind, payload, body, expected, findings)
        expected += 1


def _check_ids(connection: sqlite3.Connection, known: Registry, findings: Findings) -> None:
    """Event ids are given without a gap over all sources, so a log's lost end is a gap too."""
    floor = max((log.cut.last_id for log in known.logs() if log.cut is not None), default=0)
    expected = floor + 1
    lost = {(each.first_id, each.last_id) for each in known.lost}
    try:
        for (record_id,) in connection.execute(
            "SELECT id FROM records NOT INDEXED WHERE id > ? ORDER BY id", (floor,)
        ):
            if record_id != expected and (expected, record_id - 1) not in lost:
                what = f"events {expected} to {record_id - 1} are missing"
                findings.add(Fault.MISSING_SEQ, what)
            expected = record_id + 1
    except sqlite3.Error as error:
        findings.add(Fault.UNREADABLE, f"records from event {expected} on: {error}")


def _check_body(  # noqa: PLR0917 - one row of the control log
    connection: sqlite3.Connection,
    kind: int,
    payload: bytes,
    body: bytes | None,
    control_id: int,
    findings: Findings,
) -> None:
    if kind == RecordKind.LOST_TAIL:
        findings.add(Fault.LOST_TAIL, f"when it was opened: {payload.decode()}", 0, 0, control_id)
    if kind not in (RecordKind.VERDICT, RecordKind.ATTESTATION):
        return
    try:
        named = bytes.fromhex(control.load(payload)["body"])
        row = connection.execute("SELECT data FROM bodies WHERE digest = ?", (named,)).fetchone()
    except (sqlite3.Error, ValueError, KeyError) as error:
        findings.add(Fault.BODY, f"body cannot be read: {error!r}", 0, 0, control_id)
        return
    if named != body:
        findings.add(Fault.BODY, "column names another body than the record", 0, 0, control_id)
    if row is not None:
        findings.bodies += 1
        if chain.body_digest(row[0]) != named:
            findings.add(Fault.BODY, "body is not what was written", 0, 0, control_id)
    elif kind == RecordKind.VERDICT:
        # Retention drops attested bytes only.
        findings.add(Fault.BODY, "body is missing", 0, 0, control_id)


def _check_source(connection: sqlite3.Connection, log: SourceLog, findings: Findings) -> None:
    source_id = log.entry.source_id
    previous = log.cut.chain if log.cut is not None else chain.genesis(log.digest)
    computed = previous
    for number in sorted(log.generations):
        expected = log.generations[number].first_seq
        if log.cut is not None and number in log.cut.tips:
            # What retention left of this generation begins somewhere, if at all.
            expected = _first_left(connection, source_id, number, expected)
        for read in _all_rows(connection, log, number, findings):
            row = read.row
            findings.records += 1
            where = (source_id, number, row.seq)
            if row.seq != expected:
                findings.add(Fault.MISSING_SEQ, f"seq {expected} is missing before it", *where)
            fits = (
                expected_link(previous, log.digest, row),
                expected_link(computed, log.digest, row),
            )
            if read.link not in fits and row.seq == expected:
                findings.add(Fault.CHAIN, "link does not fit", *where)
            # A record with a wrong link is one problem, not one for each that follows.
            previous, computed = read.link, fits[0]
            expected = row.seq + row.span


def _first_left(connection: sqlite3.Connection, source_id: int, generation: int, first: int) -> int:
    (seq,) = connection.execute(
        "SELECT MIN(seq) FROM records WHERE source = ? AND generation = ?", (source_id, generation)
    ).fetchone()
    return first if seq is None else int(seq)


def _all_rows(
    connection: sqlite3.Connection, log: SourceLog, generation: int, findings: Findings
) -> Iterator[Read]:
    """All readable rows of a generation in order of seq; others are problems."""
    source_id, after = log.entry.source_id, -1
    while True:
        ids: list[tuple[int, int]] = connection.execute(
            "SELECT id, seq FROM records WHERE source = ? AND generation = ? AND seq > ?"
            " ORDER BY seq LIMIT ?",
            (source_id, generation, after, _CHUNK_ROWS),
        ).fetchall()
        for record_id, seq in ids:
            after = seq
            try:
                values = connection.execute(
                    f"SELECT {COLUMNS} FROM records WHERE id = ?",  # noqa: S608
                    (record_id,),
                ).fetchone()
            except sqlite3.Error as error:
                findings.add(Fault.UNREADABLE, str(error), source_id, generation, seq)
                continue
            if values is None:
                what = "the index has it, the table does not"
                findings.add(Fault.MISSING_SEQ, what, source_id, generation, seq)
                continue
            yield read_of(values)
        if len(ids) < _CHUNK_ROWS:
            return
