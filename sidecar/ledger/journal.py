"""The control log for callers: marks, attestations, verdicts.

Every `put_` returns a future that is done when the record is durable, also at a power cut,
together with all records appended before it. It fails with a LedgerError.
"""

from concurrent.futures import Future
from dataclasses import replace

from . import chain, control
from .base import LedgerBase
from .errors import MarkExistsError, UnknownMarkError
from .retention import open_marks
from .values import Mark, MarkOutcome, RecordKind, StoredAttestation, StoredVerdict


class Journal(LedgerBase):
    def put_mark(self, mark: Mark) -> "Future[int]":
        """Raises MarkExistsError, LedgerFullError, QueueFullError."""
        with self._lock:
            if (mark.worker, mark.name) in self._registry.marks:
                raise MarkExistsError(mark.worker, mark.name)
            done = self._put_control(control.mark_record(mark))
            self._registry.marks[mark.worker, mark.name] = mark
        self._marked(mark)
        return done

    def complete_mark(
        self,
        worker: str,
        name: str,
        *,
        outcome: MarkOutcome,
        last_step: int,
        completed_unix_ns: int,
        image: str = "",
    ) -> tuple[Mark, "Future[int]"]:
        """Fixes the window of steps that the image can hold. Raises UnknownMarkError."""
        with self._lock:
            mark = replace(
                self.get_mark(worker, name),
                outcome=outcome,
                last_step=last_step,
                completed_unix_ns=completed_unix_ns,
                image=image,
            )
            done = self._put_control(control.mark_record(mark))
            self._registry.marks[worker, name] = mark
        return mark, done

    def get_mark(self, worker: str, name: str) -> Mark:
        """Raises UnknownMarkError."""
        with self._lock:
            mark = self._registry.marks.get((worker, name))
        if mark is None:
            raise UnknownMarkError(worker, name)
        return mark

    def list_marks(self, worker: str | None = None, limit: int = 50) -> tuple[Mark, ...]:
        """Newest first; None: of all workers."""
        with self._lock:
            marks = [
                mark
                for mark in self._registry.marks.values()
                if worker is None or mark.worker == worker
            ]
        marks.sort(key=lambda mark: mark.made_unix_ns, reverse=True)
        return tuple(marks[:limit])

    def open_marks(self, worker: str) -> tuple[Mark, ...]:
        """Marks whose window retention keeps, newest first."""
        with self._lock:
            keep = self.settings.retention.open_marks
            return tuple(open_marks(self._registry, worker, keep))

    def put_attestation(self, attestation: StoredAttestation) -> "Future[int]":
        """Raises UnknownSourceError, LedgerFullError, QueueFullError."""
        entry = self._log_of(attestation.source_id).entry
        digest = chain.body_digest(attestation.payload)
        return self._put_control(control.attestation_record(entry, attestation, digest))

    def attestations(self, source_id: int, limit: int = 10) -> tuple[StoredAttestation, ...]:
        """Committed ones, newest first."""
        with self._readers.lend() as connection:
            rows = connection.execute(
                "SELECT payload, control.unix_ns, IFNULL(data, x'') FROM control"
                " LEFT JOIN bodies ON body = digest"
                " WHERE control.kind = ? AND key = ? ORDER BY id DESC LIMIT ?",
                (int(RecordKind.ATTESTATION), f"{source_id}", limit),
            ).fetchall()
        return tuple(control.attestation_of(*row) for row in rows)

    def put_verdict(self, verdict: StoredVerdict) -> "Future[int]":
        """A verification's verdict; a later one of the same id takes its place in lists.

        Raises LedgerFullError, QueueFullError.
        """
        digest = chain.body_digest(verdict.payload)
        return self._put_control(control.verdict_record(verdict, digest))

    def list_verdicts(
        self, worker: str | None = None, limit: int = 50
    ) -> tuple[StoredVerdict, ...]:
        """The newest committed verdict of each verification, newest first."""
        with self._readers.lend() as connection:
            rows = connection.execute(
                "SELECT payload, unix_ns, data FROM ("
                "  SELECT MAX(id) AS id, payload, control.unix_ns AS unix_ns,"
                "    IFNULL(data, x'') AS data"
                "  FROM control LEFT JOIN bodies ON body = digest"
                "  WHERE control.kind = ? AND (? IS NULL OR worker = ?) GROUP BY key"
                ") ORDER BY id DESC LIMIT ?",
                (int(RecordKind.VERDICT), worker, worker, limit),
            ).fetchall()
        return tuple(control.verdict_of(*row) for row in rows)

    def get_verdict(self, worker: str, verification_id: str) -> StoredVerdict | None:
        """The newest committed verdict of one verification; None: there is none."""
        with self._readers.lend() as connection:
            row = connection.execute(
                "SELECT payload, control.unix_ns, IFNULL(data, x'') FROM control"
                " LEFT JOIN bodies ON body = digest"
                " WHERE control.kind = ? AND key = ? ORDER BY id DESC LIMIT 1",
                (int(RecordKind.VERDICT), control.mark_key(worker, verification_id)),
            ).fetchone()
        return None if row is None else control.verdict_of(*row)
