"""Workers that came back without their memory: what the old life left behind is gone."""

import asyncio
import uuid
from collections.abc import Callable

from sidecar.core.evidence import Missing, StateEvidence, StateJudgement
from sidecar.core.judge import judge_state
from sidecar.core.verdicts import Compared, Finding, Verdict
from sidecar.gate import GatePosition
from sidecar.identity import RestoreEvidence
from sidecar.ports import Continuation, VerificationHost
from sidecar.registry import WorkerRuntime
from sidecar.verify.run import Run, Scope
from sidecar.verify.runner import Runner


class RestartJudge:
    """Judges restarts. There is nothing to attest and nothing to hold."""

    def __init__(
        self,
        host: VerificationHost,
        runner: Runner,
        *,
        unix_ns: Callable[[], int],
        deadline_s: float,
    ) -> None:
        self._host = host
        self._runner = runner
        self._unix_ns = unix_ns
        self._deadline_s = deadline_s

    def run_of(self, worker: WorkerRuntime, *, claimed: bool) -> Run:
        """A run for the present, new life of the worker."""
        return Run(
            id=uuid.uuid4().hex,
            worker=worker,
            generation=worker.generation,
            scope=Scope.RESTORE,
            trigger=RestoreEvidence.RESTARTED,
            mark=None,
            continuation=Continuation.SKIP,
            deadline_s=self._deadline_s,
            noticed_unix_ns=self._unix_ns(),
            claimed=claimed,
        )

    async def was_idle(self, worker: WorkerRuntime, old: str) -> bool:
        """Whether the old life certainly had no user's session in flight."""
        return _was_idle(await self._evidence(worker, old))

    async def judge_life(self, run: Run, old: str) -> None:
        """A new incarnation took the place of `old`. It is cold, not wrong, so it may serve."""
        run.evidence = await self._evidence(run.worker, old)
        self._conclude(run, judge_state(run.evidence))
        self._host.set_gate(run.worker, run.generation, GatePosition.OPEN, "")

    def judge_source(self, run: Run) -> None:
        """One source of a living worker lost its memory: the group is not whole any more, so the
        gate stays closed.
        """
        finding = Finding(
            Verdict.RESTARTED, "a source of the worker was started anew inside the same worker"
        )
        self._conclude(run, StateJudgement(Verdict.RESTARTED, (finding,), (), Compared()))

    def _conclude(self, run: Run, judgement: StateJudgement) -> None:
        run.judgement = judgement
        run.state_judged_unix_ns = self._unix_ns()
        self._runner.conclude(run)

    async def _evidence(self, worker: WorkerRuntime, old: str) -> StateEvidence:
        reader = self._runner.reader(worker)
        return await asyncio.to_thread(reader.restarted, old, worker.incarnation, worker.ranks)


def _was_idle(evidence: StateEvidence) -> bool:
    expected = evidence.expected
    if isinstance(expected, Missing) or expected.broken is not None:
        return False
    return all(s.session_id in evidence.ignored_sessions for s in expected.sessions.values())
