"""A reporter that keeps what an adapter says, in the order in which it was said."""

from dataclasses import dataclass, field

from engine_adapters.report.attestations import DueAttestation, Origin
from engine_adapters.report.identity import SourceKind
from engine_adapters.report.reporter import HoldOutcome


@dataclass(frozen=True)
class Attested:
    due: DueAttestation
    body: object
    step: int
    idle: bool
    # Records that had been put before.
    after: int


@dataclass
class RecordingReporter:
    """Stands in for SourceReporter; `owe` makes attestations due."""

    config: object
    identity: object
    fingerprint: object
    kv_groups: tuple = ()
    on_idle_attest: object = None
    records: list = field(default_factory=list)
    attested: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    held: list = field(default_factory=list)
    owed: list = field(default_factory=list)
    # Asks the scheduler for an attestation at every n-th boundary; 0: never.
    every: int = 0
    boundaries: int = 0
    step: int = 0
    closed: bool = False
    on_hold: object = None

    def start(self):
        pass

    def close(self, timeout=2.0):
        self.closed = True

    def put(self, record):
        self.records.append(record)

    def note_step(self, step):
        self.step = step

    def due(self):
        if self.owed:
            return self.owed.pop(0)
        if self.every and self.identity.kind is SourceKind.SCHEDULER:
            self.boundaries += 1
            if self.boundaries % self.every == 0:
                # `due` is asked again at the same boundary until nothing is owed.
                return DueAttestation(
                    self.boundaries, weights=False, hold=False, origin=Origin.REQUEST
                )
        return None

    def attest(self, due, body, *, step, idle):
        self.attested.append(Attested(due, body, step, idle, len(self.records)))

    def attest_failed(self, due, error):
        self.failed.append((due, error))

    def hold(self, due):
        self.held.append(due)
        if self.on_hold is not None:
            self.on_hold(due)
        return HoldOutcome.RELEASED if due.hold else HoldOutcome.NOT_HELD

    def owe(self, attest_id, *, weights=False, hold=False, origin=Origin.REQUEST, attested=False):
        self.owed.append(DueAttestation(attest_id, weights, hold, origin, attested))
