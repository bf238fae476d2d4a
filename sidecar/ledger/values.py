"""Values that go into and come out of a ledger. All times are nanoseconds of the real clock."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecar.core.events import KvGroup, SourceKey


class RecordKind(enum.IntEnum):
    """What a row of the ledger is. Below 64: the field number in the wire's Record."""

    LAUNCH = 2
    COMMIT = 3
    RANK_STEP = 4
    HOLE = 5
    WEIGHTS = 6
    # The control log.
    SOURCE = 64
    GENERATION = 65
    MARK = 66
    ATTESTATION = 67
    VERDICT = 68
    # Retention removed records; carries the chain value from which the rest goes on.
    CUT = 69
    # Acknowledged records were missing when the ledger was opened.
    LOST_TAIL = 70


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record of a source, as received.

    `count` is how many seqs it stands for: 1, or the count of a Hole. `step` is the record's
    step, a Hole's first step, or for weights the last step before them.
    """

    seq: int
    step: int
    kind: RecordKind
    payload: bytes
    count: int = 1


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of an append: how many rows were taken, how many were there already."""

    accepted: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """What a source said of itself when it first attached."""

    nonce: int
    ranks: int
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    kv_groups: tuple[KvGroup, ...] = ()


class RegistrationOutcome(enum.Enum):
    NEW = "new"
    KNOWN = "known"
    # Same worker, incarnation and source, but other memory. Nothing was changed.
    NONCE_CHANGED = "nonce_changed"


@dataclass(frozen=True, slots=True)
class Registration:
    """`generation` is the newest; `durable_seq` what of it is committed."""

    source_id: int
    outcome: RegistrationOutcome
    recorded: SourceDescription
    generation: int
    durable_seq: int


@dataclass(frozen=True, slots=True)
class SourceEntry:
    source_id: int
    worker: str
    incarnation: str
    key: SourceKey
    description: SourceDescription
    registered_unix_ns: int


@dataclass(frozen=True, slots=True)
class Generation:
    """`cut` is the newest event id when it was opened: what is newer came after the restore."""

    generation: int
    parent: int | None
    first_seq: int
    reason: str
    opened_unix_ns: int
    cut: int


class MarkOutcome(enum.IntEnum):
    """Same numbers as the wire's MarkOutcome."""

    PREPARED = 1
    TAKEN = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """Fields as in the wire's Mark. `last_step` 0: not completed."""

    name: str
    worker: str
    incarnation: str
    generation: int
    step: int
    sessions: int
    made_unix_ns: int
    outcome: MarkOutcome = MarkOutcome.PREPARED
    last_step: int = 0
    completed_unix_ns: int = 0
    image: str = ""


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """`payload` is the serialized WorkerVerdict; the newest of a verification counts."""

    worker: str
    verification_id: str
    unix_ns: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class StoredAttestation:
    """`payload` is the serialized attestation; empty once retention dropped it."""

    source_id: int
    generation: int
    attest_id: int
    step: int
    cut: int
    unix_ns: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ExportedRecord:
    """One record in the order of its arrival, with the chain value after it."""

    source: SourceEntry
    generation: int
    record_id: int
    record: StoredRecord
    received_unix_ns: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class FutureTokens:
    """Tokens that a session emitted in an older generation beyond the branch.

    `tokens` begin at `first_position`. `ended`: the session ended there after them.
    """

    generation: int
    session_id: str
    first_position: int
    tokens: tuple[int, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class LostTail:
    """Acknowledged events that were missing when the ledger was opened: first to last id."""

    first_id: int
    last_id: int


class Fault(enum.Enum):
    """What verification found wrong."""

    CHAIN = "chain"
    MISSING_SEQ = "missing_seq"
    UNREADABLE = "unreadable"
    LOST_TAIL = "lost_tail"
    TIP = "tip"
    CONTROL = "control"
    BODY = "body"
    SNAPSHOT = "snapshot"
    REPLAY = "replay"
    PAGES = "pages"
    VERSION = "version"
    NOT_A_LEDGER = "not_a_ledger"


@dataclass(frozen=True, slots=True)
class Problem:
    """One bad place. `source_id` 0 is the control log; None: no single log."""

    fault: Fault
    what: str
    source_id: int | None = None
    generation: int | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Numbers of what was checked: a report without them proves nothing.

    `problems_left_off` counts those beyond the limit on how many are listed.
    """

    sources: int
    records: int
    snapshots: int
    bodies: int
    problems: tuple[Problem, ...]
    problems_left_off: int = 0

    @property
    def sound(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What a retention run removed, and the size of the file's live pages afterwards."""

    records: int
    snapshots: int
    attestations: int
    live_bytes: int
