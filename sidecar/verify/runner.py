"""Executes a verification: attest, judge memory, release, follow the continuation, judge."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from sidecar.core.continuation import ContinuationCheck
from sidecar.core.events import LiveSession, SchedulerAttestation
from sidecar.core.evidence import StateEvidence, StateJudgement
from sidecar.core.final import judge_timeout, judge_worker, judge_worker_state
from sidecar.core.judge import judge_state
from sidecar.core.scheduler_state import SchedulerState
from sidecar.core.verdicts import Verdict, WorkerVerdict
from sidecar.ledger.values import Mark
from sidecar.ports import AttestationOrigin, Continuation, VerificationHost
from sidecar.registry import WorkerRuntime
from sidecar.verify.continuation import ContinuationPlan, check_continuations
from sidecar.verify.evidence import EvidenceReader, Snapshot, snapshot, step_window
from sidecar.verify.gating import gate_position, gate_reason
from sidecar.verify.run import Run, Scope

_log = structlog.get_logger(__name__)

# A session that memory lacks may have ended just now (its client went away while the worker
# stood still); the record of that comes with the next step.
ENDED_GRACE_S = 2.0
ENDED_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Bounds and policy of a verification. Times are seconds."""

    attestation_deadline_s: float
    late_steps_allowed: int
    # Let a held step go although memory did not pass.
    release_on_fault: bool


class Runner:
    """Executes runs. Holds no state of its own but its collaborators."""

    def __init__(
        self,
        host: VerificationHost,
        settings: RunSettings,
        plan: ContinuationPlan,
        *,
        unix_ns: Callable[[], int],
        on_verdict: Callable[[Run, WorkerVerdict], None],
    ) -> None:
        self._host = host
        self._settings = settings
        self._plan = plan
        self._unix_ns = unix_ns
        self._on_verdict = on_verdict

    async def execute(self, run: Run) -> None:
        """Brings a run to its final verdict, at the latest at its deadline."""
        try:
            async with asyncio.timeout(run.deadline_s):
                await self._judge_memory(run)
                self.release(run)
                if self._wants_continuation(run):
                    await self._follow(run)
        except TimeoutError:
            self._time_out(run)
        else:
            self.conclude(run)
        self.release(run)

    def conclude(self, run: Run) -> None:
        """Gives the final verdict of a run whose memory was judged."""
        if run.judgement is None:
            raise ValueError(f"verification {run.id} has not judged memory yet")
        rules = self._plan.rules
        if not self._wants_continuation(run):
            rules = replace(rules, check=ContinuationCheck.NOT_REQUESTED)
        about = run.about(finished_unix_ns=self._unix_ns())
        self._publish(run, judge_worker(about, run.judgement, run.continuations, rules))

    def judge_against(self, run: Run, mark: Mark) -> None:
        """Judges the evidence of a run again, against a mark that was named after it began."""
        run.mark = mark
        if run.evidence is None:
            return
        run.evidence = replace(
            run.evidence,
            incarnation_recorded=mark.incarnation,
            window=step_window(mark, run.evidence.newest_step),
        )
        run.judgement = judge_state(run.evidence)

    def release(self, run: Run) -> None:
        """Answers every source that holds its step, once memory was judged or time is over."""
        if not run.state_known:
            return
        verdict = run.judgement.verdict if run.judgement else Verdict.TIMEOUT
        go = verdict.passes or self._settings.release_on_fault
        for source, attest_id in run.worker.held.items():
            self._host.release(run.worker, source, attest_id, verdict, go=go)

    async def _judge_memory(self, run: Run) -> None:
        restored = run.scope is Scope.RESTORE
        attested = await self._host.request_attestation(
            run.worker,
            run.worker.expected,
            weights=True,
            deadline_s=min(self._settings.attestation_deadline_s, run.deadline_s),
            origin=AttestationOrigin.AFTER_SIGN if restored else AttestationOrigin.FRESH,
        )
        run.attested_unix_ns = self._unix_ns()
        seen = snapshot(run.worker, restored=restored)
        reader = self.reader(run.worker)
        # Without a sign the worker ran on since it came back: it has left the mark's steps, and
        # what it holds is judged where it stands.
        mark = run.mark if restored else None
        evidence = await asyncio.to_thread(reader.read, seen, attested, mark)
        evidence = await self._excuse_ended(reader, seen, evidence)
        run.evidence = evidence
        run.judgement = await asyncio.to_thread(judge_state, evidence)
        if restored and run.mark is not None and run.mark is not mark:
            # A hook named its mark while evidence was read or judged.
            self.judge_against(run, run.mark)
        run.state_judged_unix_ns = self._unix_ns()
        run.tokens_before_verdict = max(run.worker.live.committed_tokens - run.tokens_at_notice, 0)
        about = run.about()
        self._publish(run, judge_worker_state(about, run.judgement))

    def reader(self, worker: WorkerRuntime) -> EvidenceReader:
        """Reads evidence of this worker."""
        return EvidenceReader(
            self._host.ledger,
            worker.name,
            late_steps_allowed=self._settings.late_steps_allowed,
            is_shadow=self._plan.ids.is_shadow,
        )

    async def _excuse_ended(
        self, reader: EvidenceReader, seen: Snapshot, evidence: StateEvidence
    ) -> StateEvidence:
        """Sessions that the record has and memory lacks, where the record says soon after that
        they ended.
        """
        lacking = _lacking(evidence)
        if not lacking:
            return evidence
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ENDED_GRACE_S
        ended: frozenset[str] = frozenset()
        while loop.time() < deadline:
            ended = await asyncio.to_thread(reader.ended_since, seen, lacking)
            if ended == lacking:
                break
            await asyncio.sleep(ENDED_POLL_S)
        return replace(evidence, ended_meanwhile=ended)

    def _wants_continuation(self, run: Run) -> bool:
        """A fault of memory is final: how exact sessions go on beside it changes nothing."""
        if run.continuation is Continuation.SKIP:
            return False
        if run.judgement is not None and not run.judgement.verdict.passes:
            return False
        return self._plan.shadow is not None

    async def _follow(self, run: Run) -> None:
        judgement, evidence = run.judgement, run.evidence
        if judgement is None or evidence is None:
            return
        sessions = _exact_sessions(judgement, evidence)
        if not sessions:
            return
        run.continuations = await check_continuations(
            self._host,
            run.worker,
            snapshot(run.worker, restored=run.scope is Scope.RESTORE),
            sessions,
            self._plan,
            salted=_salted(evidence),
            timeout_s=self._left(run),
        )

    def _left(self, run: Run) -> float:
        spent = (self._unix_ns() - run.noticed_unix_ns) / 1e9
        return max(run.deadline_s - spent - 1.0, 1.0)

    def _time_out(self, run: Run) -> None:
        about = run.about(finished_unix_ns=self._unix_ns())
        reason = f"no verdict within {run.deadline_s:g} s"
        if run.judgement is not None and not run.judgement.verdict.passes:
            # Memory was found wrong in time; that the continuation was not changes nothing.
            self.conclude(run)
            return
        self._publish(run, judge_timeout(about, reason))

    def _publish(self, run: Run, verdict: WorkerVerdict) -> None:
        run.verdict = verdict
        log = _log.bind(worker=run.worker.name, verification=run.id, final=verdict.final)
        log.info("verdict", verdict=verdict.verdict.name, state=verdict.state_verdict.name)
        position = gate_position(run, verdict)
        if position is not None:
            self._host.set_gate(run.worker, run.generation, position, gate_reason(verdict))
        self._on_verdict(run, verdict)


def _lacking(evidence: StateEvidence) -> frozenset[str]:
    """Recorded users' sessions that the scheduler did not attest."""
    expected, attested = evidence.expected, evidence.attested
    if not isinstance(expected, SchedulerState) or not isinstance(attested, SchedulerAttestation):
        return frozenset()
    recorded = {session.session_id for session in expected.sessions.values()}
    live = {session.session_id for session in attested.sessions}
    return frozenset(recorded - live - evidence.ignored_sessions)


def _salted(evidence: StateEvidence) -> frozenset[str]:
    if not isinstance(evidence.expected, SchedulerState):
        return frozenset()
    return frozenset(
        session.session_id
        for session in evidence.expected.sessions.values()
        if session.cache_salt_digest
    )


def _exact_sessions(judgement: StateJudgement, evidence: StateEvidence) -> tuple[LiveSession, ...]:
    """Sessions whose memory passed, as they were attested."""
    if not isinstance(evidence.attested, SchedulerAttestation):
        return ()
    passed = {each.session_id for each in judgement.sessions if each.verdict.passes}
    return tuple(each for each in evidence.attested.sessions if each.session_id in passed)
