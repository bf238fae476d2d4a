"""What the rest of the sidecar asks of a ledger. SqliteLedger is the one that there is.

Who writes, and when: sources' streams call `source`, `open_generation` and `append` from any
thread; nothing there waits for the disk. A record may be acknowledged once `durable_seq` (or a
subscriber) names it. Whatever reads states waits shortly for the writer and then replays: call
it from a worker thread. Errors are those of `errors`, and nothing else.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

from sidecar.core.events import SourceKey
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState

from .base import DurableCallback
from .errors import LedgerError
from .settings import Retention
from .values import (
    Appended,
    ExportedRecord,
    FutureTokens,
    Generation,
    LostTail,
    Mark,
    MarkOutcome,
    Registration,
    RetentionReport,
    SourceDescription,
    SourceEntry,
    StoredAttestation,
    StoredRecord,
    StoredVerdict,
    VerifyReport,
)


class RecordingLedger(Protocol):
    """Taking records in. See sidecar.ledger.recording for what each call promises and raises."""

    def source(
        self,
        worker: str,
        incarnation: str,
        key: SourceKey,
        description: SourceDescription,
        *,
        reason: str = ...,
    ) -> Registration: ...

    def sources(self, worker: str | None = None) -> tuple[SourceEntry, ...]: ...

    def open_generation(
        self,
        source_id: int,
        generation: int,
        first_seq: int,
        reason: str,
        *,
        parent: int | None = None,
    ) -> Generation: ...

    def generations(self, source_id: int) -> tuple[Generation, ...]: ...

    def append(
        self, source_id: int, generation: int, records: Sequence[StoredRecord]
    ) -> Appended: ...

    def accepted_seq(self, source_id: int, generation: int) -> int: ...

    def durable_seq(self, source_id: int, generation: int) -> int: ...

    def duplicates(self, source_id: int) -> int: ...

    def subscribe(self, callback: DurableCallback) -> None: ...

    def unsubscribe(self, callback: DurableCallback) -> None: ...

    def when_room(self, callback: Callable[[], None]) -> None: ...

    def cut(self, source_id: int) -> int: ...

    def flush(self, timeout_s: float) -> None: ...


class StateLedger(Protocol):
    """Reading states back. See sidecar.ledger.states."""

    def scheduler_state(
        self, source_id: int, generation: int, launched: int, committed: int, cut: int
    ) -> SchedulerState: ...

    def rank_state(self, source_id: int, generation: int, step: int, cut: int) -> RankState: ...

    def newest_state(self, source_id: int, generation: int) -> SchedulerState | RankState: ...

    def newest_step(self, source_id: int, generation: int) -> int: ...

    def newest_step_of_branch(self, source_id: int, generation: int) -> int: ...

    def future_tokens(
        self, source_id: int, generation: int, session_ids: frozenset[str] = ...
    ) -> tuple[FutureTokens, ...]: ...

    def put_baseline(
        self, source_id: int, generation: int, seq: int, state: SchedulerState | RankState
    ) -> "Future[int]": ...

    def export(
        self, worker: str, from_step: int = 0, to_step: int = 0
    ) -> Iterator[ExportedRecord]: ...


class JournalLedger(Protocol):
    """Marks, attestations, verdicts. See sidecar.ledger.journal."""

    def put_mark(self, mark: Mark) -> "Future[int]": ...

    def complete_mark(
        self,
        worker: str,
        name: str,
        *,
        outcome: MarkOutcome,
        last_step: int,
        completed_unix_ns: int,
        image: str = "",
    ) -> tuple[Mark, "Future[int]"]: ...

    def get_mark(self, worker: str, name: str) -> Mark: ...

    def list_marks(self, worker: str | None = None, limit: int = 50) -> tuple[Mark, ...]: ...

    def put_attestation(self, attestation: StoredAttestation) -> "Future[int]": ...

    def attestations(self, source_id: int, limit: int = 10) -> tuple[StoredAttestation, ...]: ...

    def put_verdict(self, verdict: StoredVerdict) -> "Future[int]": ...

    def list_verdicts(
        self, worker: str | None = None, limit: int = 50
    ) -> tuple[StoredVerdict, ...]: ...

    def get_verdict(self, worker: str, verification_id: str) -> StoredVerdict | None: ...


class Ledger(RecordingLedger, StateLedger, JournalLedger, Protocol):
    """All of it, and keeping it in order. See sidecar.ledger.keeping and sidecar.ledger.sqlite."""

    @property
    def refuses(self) -> LedgerError | None: ...

    @property
    def waiting_bytes(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def lost_tail(self) -> LostTail | None: ...

    def snapshot(self, source_id: int) -> None: ...

    def apply_retention(self, limits: Retention | None = None) -> RetentionReport: ...

    def live_bytes(self) -> int: ...

    def verify(self) -> VerifyReport: ...

    def close(self, timeout_s: float = ...) -> None: ...
