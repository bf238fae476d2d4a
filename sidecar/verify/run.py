"""One verification as data: what started it, what was found so far, what it came to."""

import asyncio
import enum
from dataclasses import dataclass, field

from sidecar.core.evidence import StateEvidence, StateJudgement
from sidecar.core.final import Verification
from sidecar.core.verdicts import WorkerVerdict
from sidecar.identity import RestoreEvidence
from sidecar.ledger.values import Mark
from sidecar.ports import Continuation
from sidecar.registry import WorkerRuntime
from sidecar.verify.continuation import Results


class Scope(enum.Enum):
    """What a verification judges."""

    # The worker came back: records since its sign are late, and it may hold its step.
    RESTORE = "restore"
    # The worker was not touched: memory against record, now.
    CHECK = "check"


@dataclass(slots=True, kw_only=True)
class Run:
    """The state of one verification. Changed only in the event loop's thread."""

    id: str
    worker: WorkerRuntime
    generation: int
    scope: Scope
    trigger: RestoreEvidence
    mark: Mark | None
    continuation: Continuation
    deadline_s: float
    noticed_unix_ns: int
    # An orchestrator's or operator's request refers to it already.
    claimed: bool
    attested_unix_ns: int = 0
    state_judged_unix_ns: int = 0
    tokens_before_verdict: int = 0
    tokens_at_notice: int = 0
    evidence: StateEvidence | None = None
    judgement: StateJudgement | None = None
    continuations: Results = field(default_factory=dict)
    verdict: WorkerVerdict | None = None
    task: "asyncio.Task[None] | None" = None

    @property
    def final(self) -> bool:
        return self.verdict is not None and self.verdict.final

    @property
    def state_known(self) -> bool:
        return self.judgement is not None or self.final

    def about(self, finished_unix_ns: int = 0) -> Verification:
        """What the verdict says of its making."""
        return Verification(
            verification_id=self.id,
            worker=self.worker.name,
            incarnation=self.worker.incarnation,
            generation=self.generation,
            trigger=self.trigger.value,
            mark=self.mark.name if self.mark else "",
            noticed_unix_ns=self.noticed_unix_ns,
            attested_unix_ns=self.attested_unix_ns,
            state_judged_unix_ns=self.state_judged_unix_ns,
            finished_unix_ns=finished_unix_ns,
            tokens_before_verdict=self.tokens_before_verdict,
        )
