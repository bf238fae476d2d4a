"""The workers that are attached, and what the sidecar knows of each right now.

Lives in one event loop and is changed only from its thread. No I/O: whoever alters something
that others wait for calls `changed`.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sidecar.changes import Changes
from sidecar.core.events import (
    KvGroup,
    RankAttestation,
    SchedulerAttestation,
    SourceKey,
    SourceKind,
)
from sidecar.core.verdicts import Verdict
from sidecar.identity import ProcessIdentity, SourcePlace
from sidecar.recorder.live import LiveSessions

# Highest bit set: the source chose the id for an attestation that a sign made it take.
PUSHED_BIT = 1 << 63
# Shadow sessions are remembered beyond their end, for listings; the oldest are forgotten.
MAX_SHADOW_IDS = 4096
# How long a source that was silent has to be heard before its worker is whole again, seconds.
SETTLE_S = 1.0


class SourceLink(Protocol):
    """The way back to a source. Calls queue a message and return at once; none raises."""

    def acknowledge(self, seq: int, generation: int) -> None:
        """Everything up to `seq` is durable, and the source is in `generation`. Only the newest
        is sent.
        """

    def request_attestation(self, attest_id: int, deadline_ms: int, *, weights: bool) -> None:
        """Asks for what memory holds at the next step boundary."""

    def release(self, attest_id: int, verdict: Verdict, *, go: bool) -> None:
        """Answers a source that holds its step."""

    def close(self, reason: str) -> None:
        """Ends the stream; the source sees ABORTED and may attach again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAttestation:
    """What one source read from its memory.

    `step`: last launched (scheduler); all of it and nothing of the next (rank).
    """

    attest_id: int
    generation: int
    step: int
    idle: bool
    body: SchedulerAttestation | RankAttestation
    received_unix_ns: int
    # Seq of the newest record that the source had sent before it.
    after_seq: int
    # The serialized AttestationPart that its parts make together.
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class AttestationFailed:
    """No attestation of this source; `reason` says why in words for an operator."""

    attest_id: int
    reason: str


Attested = SourceAttestation | AttestationFailed


@dataclass(slots=True, kw_only=True)
class SourceRuntime:
    """One source of a worker. Times are the registry's clock, seconds."""

    place: SourcePlace
    source_id: int
    nonce: int
    process: ProcessIdentity
    fingerprint: Mapping[str, str]
    kv_groups: tuple[KvGroup, ...]
    signs_seen: int
    # The restore that this source's records belong to; may be behind the worker's until the
    # source itself signs or reattaches.
    generation: int
    # The generation that the present one branched off from; of the first, itself.
    parent: int = 0
    # The newest generation that this memory has certainly been told.
    told_generation: int = 0
    received_seq: int = 0
    durable_seq: int = 0
    # Bytes taken in and not durable yet, and of which seqs: (last seq, bytes), oldest first.
    unacked_bytes: int = 0
    unacked: deque[tuple[int, int]] = field(default_factory=deque)
    # Newest step that the source says it stands at.
    step: int = 0
    # Step of its newest record in this generation; 0: none, or any may come next.
    recorded_step: int = 0
    hole_records: int = 0
    dropped_records: int = 0
    errors: int = 0
    queued_bytes: int = 0
    link: SourceLink | None = None
    last_heard: float = float("-inf")
    # When it was heard again after it had counted as gone.
    returned_at: float = float("-inf")
    # First seq of the present generation; what is before it belongs to older ones.
    first_seq: int = 1
    # A Hello showed a restore and the Sign of it may still come.
    awaits_sign: bool = False
    # Count of the newest Sign that was taken in; None: none in this generation.
    last_sign: int | None = None
    # Not zero: it waits for a Release with this id.
    held_attest_id: int = 0
    # The source said in a heartbeat that it stands in the hold.
    hold_seen: bool = False
    # A sign on this stream announced an attestation that the source takes by itself.
    expects_push: bool = False
    # Ledger position of the newest record when the worker's present generation was opened:
    # what comes later is late. None: never restored while watched.
    cut: int | None = None
    # Fingerprint as it was before the present generation; what the checkpoint was valid for.
    recorded_fingerprint: Mapping[str, str] | None = None
    # Newest answers by attest_id, and the newest that came unasked after a sign.
    answers: OrderedDict[int, Attested] = field(default_factory=OrderedDict)
    pushed: Attested | None = None
    pushed_generation: int = -1

    @property
    def key(self) -> SourceKey:
        """Scheduler or which rank."""
        return self.place.key

    def took(self, last_seq: int, size: int) -> None:
        """Records up to `last_seq`, of `size` bytes, wait to become durable."""
        self.unacked.append((last_seq, size))
        self.unacked_bytes += size

    def settle(self) -> None:
        """Drops from the waiting what `durable_seq` covers."""
        while self.unacked and self.unacked[0][0] <= self.durable_seq:
            self.unacked_bytes -= self.unacked.popleft()[1]


@dataclass(slots=True, kw_only=True)
class WorkerRuntime:
    """One worker: a scheduler and its ranks, in one life (`incarnation`)."""

    name: str
    incarnation: str
    ranks: int
    generation: int = 0
    generation_opened_at: float = float("-inf")
    noticed_unix_ns: int = 0
    sources: dict[SourceKey, SourceRuntime] = field(default_factory=dict)
    live: LiveSessions = field(default_factory=LiveSessions)
    shadow_ids: OrderedDict[str, None] = field(default_factory=OrderedDict)
    engine_url: str = ""
    drill: bool = False
    last_verdict: Verdict = Verdict.UNSPECIFIED
    # Why its newest restore has to be judged still, after the sidecar was restarted.
    unjudged: str = ""
    changes: Changes = field(default_factory=Changes)

    @property
    def expected(self) -> tuple[SourceKey, ...]:
        """All sources that make this worker whole."""
        ranks = (SourceKey(SourceKind.RANK, rank) for rank in range(self.ranks))
        return (SourceKey(SourceKind.SCHEDULER), *ranks)

    @property
    def attached(self) -> bool:
        """Whether any source has a stream, silent or not."""
        return any(source.link is not None for source in self.sources.values())

    @property
    def scheduler(self) -> SourceRuntime | None:
        """The scheduler's source, attached now or once."""
        return self.sources.get(SourceKey(SourceKind.SCHEDULER))

    @property
    def held(self) -> dict[SourceKey, int]:
        """The sources that wait for a Release, with the id that each waits for."""
        return {
            key: source.held_attest_id
            for key, source in self.sources.items()
            if source.held_attest_id
        }

    @property
    def hole_records(self) -> int:
        """Records that are missing, by all sources."""
        return sum(source.hole_records for source in self.sources.values())


class TooManyWorkersError(Exception):
    """The table of workers is full of workers that are alive."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} workers are attached, the limit (max_workers); raise it")
        self.limit = limit


class Registry:
    """All workers by name."""

    def __init__(
        self, *, clock: Callable[[], float], heartbeat_timeout_s: float, max_workers: int
    ) -> None:
        self._clock = clock
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._max_workers = max_workers
        self._workers: dict[str, WorkerRuntime] = {}

    def now(self) -> float:
        """The registry's clock, seconds."""
        return self._clock()

    def get(self, name: str) -> WorkerRuntime | None:
        """The worker of this name, attached now or once."""
        return self._workers.get(name)

    def workers(self) -> tuple[WorkerRuntime, ...]:
        """All workers, in the order in which they came."""
        return tuple(self._workers.values())

    def put(self, worker: WorkerRuntime) -> WorkerRuntime | None:
        """Adds a worker, or a new life of one; returns one that is gone and has to be forgotten.

        Raises:
            TooManyWorkersError: the table is full and none of them is gone.

        """
        evicted = None
        if worker.name not in self._workers and len(self._workers) >= self._max_workers:
            evicted = next((w for w in self._workers.values() if not self.any_alive(w)), None)
            if evicted is None:
                raise TooManyWorkersError(self._max_workers)
        self._workers[worker.name] = worker
        return evicted

    def remove(self, worker: WorkerRuntime) -> None:
        """Forgets a worker; not the one that has taken its name."""
        if self._workers.get(worker.name) is worker:
            del self._workers[worker.name]

    def gone_for(self, worker: WorkerRuntime) -> float:
        """Seconds since any source of the worker was heard; infinite if none ever was."""
        return min((self.silence(source) for source in worker.sources.values()), default=math.inf)

    def alive(self, source: SourceRuntime) -> bool:
        """Whether the source has an open stream and was heard within the heartbeat timeout."""
        return source.link is not None and self.silence(source) <= self._heartbeat_timeout_s

    def silence(self, source: SourceRuntime) -> float:
        """Seconds since the source was last heard."""
        return self._clock() - source.last_heard

    def any_alive(self, worker: WorkerRuntime) -> bool:
        """Whether any source of the worker is alive."""
        return any(self.alive(source) for source in worker.sources.values())

    def missing(self, worker: WorkerRuntime) -> tuple[SourceKey, ...]:
        """Expected sources that are not alive; empty: the worker is whole.

        A source that comes back on its stream after a silence counts only after SETTLE_S: what
        is heard first may have been on its way since before a freeze, and the Sign that closes
        the gate comes behind it.
        """
        now = self._clock()
        return tuple(
            key
            for key in worker.expected
            if (source := worker.sources.get(key)) is None
            or not self.alive(source)
            or now - source.returned_at < SETTLE_S
        )

    def missing_words(self, worker: WorkerRuntime) -> str:
        """The missing sources in words; empty: the worker is whole."""
        missing = self.missing(worker)
        if not missing:
            return ""
        return f"not attached: {', '.join(map(str, missing))}"

    def register_shadow_ids(self, worker: WorkerRuntime, session_ids: Iterable[str]) -> None:
        """Marks sessions as replays of the sidecar's own, not of users."""
        for session_id in session_ids:
            worker.shadow_ids[session_id] = None
            worker.shadow_ids.move_to_end(session_id)
        while len(worker.shadow_ids) > MAX_SHADOW_IDS:
            worker.shadow_ids.popitem(last=False)
