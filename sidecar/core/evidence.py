"""What a judgement of a worker's memory is made from, and what it comes to, as values."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecar.core.events import Fingerprint, RankAttestation, SchedulerAttestation, SourceKey
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState
from sidecar.core.verdicts import Compared, Finding, SessionVerdict, Verdict


class Lack(enum.Enum):
    """Why a piece of evidence is missing."""

    # The record does not reach to the boundary, or begins after it.
    NOT_RECORDED = "not recorded"
    # Records that are needed were dropped.
    HOLE = "hole"
    # The record covers these steps without a hole, and never stood at this boundary.
    NEVER_PASSED = "never passed"
    # The source did not attest, or said that it could not.
    NOT_ATTESTED = "not attested"


@dataclass(frozen=True, slots=True)
class Missing:
    why: Lack
    reason: str


class WeightsCheck(enum.Enum):
    # A rank whose weights were not compared makes the worker INCOMPARABLE: after a restore.
    REQUIRED = "required"
    # Weights are compared where both sides have them: a scrub of a worker that was not restored.
    WHERE_READ = "where_read"


@dataclass(frozen=True, slots=True)
class StepWindow:
    """Steps that a mark's image can hold, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SourceEvidence:
    """Who the source was and who it says it is. None: it has not said (not attached)."""

    key: SourceKey
    recorded_fingerprint: Fingerprint | None
    found_fingerprint: Fingerprint | None
    recorded_nonce: int | None
    found_nonce: int | None


@dataclass(frozen=True, slots=True, eq=False)
class RankEvidence:
    """`expected` is the record as of the attested step. `generators` are the recorded digests of
    generators before the step that followed it, by session id, where such a step was recorded
    before the restore.
    """

    rank: int
    expected: RankState | Missing
    attested: RankAttestation | Missing
    generators: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class StateEvidence:
    """Everything that is needed to judge memory.

    `expected` is the record at the attested boundary; where the worker was restarted, the newest
    one. `newest_step` is the newest launched step that was witnessed. `ignored_sessions` are
    shadow decodes. `ended_meanwhile` ended between the boundary and the attestation.
    """

    incarnation_recorded: str
    incarnation_found: str
    sources: tuple[SourceEvidence, ...]
    expected: SchedulerState | Missing
    attested: SchedulerAttestation | Missing
    ranks: tuple[RankEvidence, ...]
    ranks_expected: int
    newest_step: int
    late_steps_allowed: int
    window: StepWindow | None = None
    ignored_sessions: frozenset[str] = frozenset()
    ended_meanwhile: frozenset[str] = frozenset()
    weights: WeightsCheck = WeightsCheck.REQUIRED


@dataclass(frozen=True, slots=True)
class StateJudgement:
    """The verdict on memory alone. `compared` counts the worker's and all sessions' together."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    sessions: tuple[SessionVerdict, ...]
    compared: Compared
    rolled_back_steps: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Findings of one comparison and how much it compared."""

    findings: tuple[Finding, ...] = ()
    compared: Compared = field(default_factory=Compared)

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(self.findings + other.findings, self.compared + other.compared)


def incomparable(reason: str, *, session_id: str = "", rank: int | None = None) -> Outcome:
    """Nothing was compared, because of `reason`."""
    return Outcome((Finding(Verdict.INCOMPARABLE, reason, session_id=session_id, rank=rank),))
