"""The facade that the engine's hooks use: records in, attestations due out, the hold."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine_adapters.report.attestations import AttestationBody, DueAttestation
from engine_adapters.report.config import AdapterConfig
from engine_adapters.report.identity import KvGroupSpec, SourceIdentity
from engine_adapters.report.records import SourceRecord


class HoldOutcome(enum.Enum):
    """How a hold ended."""

    RELEASED = "released"
    # The deadline passed and the policy fails open.
    TIMED_OUT = "timed_out"
    # The policy fails closed, or the sidecar said "stay": held to the policy's limit.
    LIMIT_REACHED = "limit_reached"
    # Another sign was seen while held: attest and hold again (`due` returns it).
    SUPERSEDED = "superseded"
    # Nothing to hold for, or the reporter was closed.
    NOT_HELD = "not_held"


@dataclass(frozen=True, slots=True)
class Counters:
    """A snapshot of what happened so far."""

    records: int
    dropped_records: int
    holes_sent: int
    errors: int
    connects: int
    signs: int
    queued_bytes: int


class SourceReporter:
    """Reports one source of a worker to the sidecar. No method raises into the caller.

    `put`, `note_step`, `due`, `attest` and `hold` belong to the engine's thread. A step
    boundary looks like this (a loop: a second restore can happen during a hold):

        while (due := reporter.due()) is not None:
            if not due.attested:
                reporter.attest(due, read_memory(due), step=step, idle=False)
            if reporter.hold(due) is not HoldOutcome.SUPERSEDED: ...

    `on_idle_attest` is called on a thread of the reporter when no boundary came; it returns
    None where it cannot read memory safely now (a step is running), and is asked again later.
    What it read is thrown away if the engine's thread calls `due` meanwhile.
    """

    def __init__(
        self,
        config: AdapterConfig,
        identity: SourceIdentity,
        *,
        fingerprint: Callable[[], Mapping[str, str]],
        kv_groups: Sequence[KvGroupSpec] = (),
        on_idle_attest: Callable[[DueAttestation], AttestationBody | None],
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Starts the threads. The channel is made by them, later."""

    def close(self, timeout: float = 2.0) -> None:
        """Sends what is left for at most `timeout` seconds, then stops. Ends a hold at once."""

    def put(self, record: SourceRecord) -> None:
        """Queues a record: O(1), nothing is encoded here. Never blocks on the sidecar."""

    def note_step(self, step: int) -> None:
        """The last step launched (scheduler) or finished (rank)."""

    def due(self) -> DueAttestation | None:
        """To be called at every step boundary, before the step runs."""

    def attest(self, due: DueAttestation, body: AttestationBody, *, step: int, idle: bool) -> None:
        """Queues what was read, after all records put so far and before those put later."""

    def attest_failed(self, due: DueAttestation, error: str) -> None:
        """Tells the sidecar why this source could not attest."""

    def hold(self, due: DueAttestation) -> HoldOutcome:
        """Blocks until released, only if `due.hold`; bounded by the policy."""

    @property
    def counters(self) -> Counters:
        """What happened so far."""
        raise NotImplementedError
