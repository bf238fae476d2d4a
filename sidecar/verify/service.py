"""The verifications of all workers: one per restore, kept for those who ask later."""

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine

import structlog

from sidecar.changes import Changes
from sidecar.core.events import SourceKey
from sidecar.core.evidence import StateJudgement
from sidecar.core.verdicts import Compared, Finding, Verdict, WorkerVerdict
from sidecar.gate import GatePosition
from sidecar.identity import RestoreEvidence
from sidecar.ledger.errors import LedgerError
from sidecar.ledger.values import Mark, StoredVerdict
from sidecar.ports import (
    Continuation,
    RestoreNotice,
    UnknownVerificationError,
    VerificationHost,
    WaitFor,
)
from sidecar.registry import WorkerRuntime
from sidecar.verify.continuation import ContinuationPlan
from sidecar.verify.repair import RecordRepair
from sidecar.verify.restarts import RestartJudge
from sidecar.verify.run import Run, Scope
from sidecar.verify.runner import Runner, RunSettings
from sidecar.wire import codec

_log = structlog.get_logger(__name__)

# Verifications kept in memory to be waited for; older ones are in the ledger.
KEPT_RUNS = 256


class VerificationService:
    """Starts, joins and remembers verifications. Implements `ports.Verifier`."""

    def __init__(
        self,
        host: VerificationHost,
        settings: RunSettings,
        plan: ContinuationPlan,
        *,
        default_deadline_s: float,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._host = host
        self._unix_ns = unix_ns
        self._default_deadline_s = default_deadline_s
        self._runner = Runner(host, settings, plan, unix_ns=unix_ns, on_verdict=self._keep)
        self._restarts = RestartJudge(
            host, self._runner, unix_ns=unix_ns, deadline_s=default_deadline_s
        )
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._changes = Changes()
        self._repair = RecordRepair(host, clock=time.monotonic)
        self._tasks: set[asyncio.Task[None]] = set()

    def on_sign(
        self, worker: WorkerRuntime, generation: int, source: SourceKey, notice: RestoreNotice
    ) -> None:
        """Starts the verification of this restore, or adds a source to the one that runs."""
        del source
        run = self._newest(worker.name)
        if run is not None and run.worker is worker and run.generation == generation:
            # A source that signs after memory was judged must not wait for ever.
            self._runner.release(run)
            return
        if run is not None and _waits_for_restore(run, worker):
            # The orchestrator's hook came first; what it asked for begins now.
            run.generation = generation
            run.scope = Scope.RESTORE
            self._launch(run)
            return
        self._begin(
            worker,
            generation,
            Scope.RESTORE,
            trigger=notice.evidence,
            mark=None,
            deadline_s=self._default_deadline_s,
            continuation=Continuation.REPLAY,
            claimed=False,
        )

    def on_restart(self, worker: WorkerRuntime, old: str, new: str) -> None:
        """Judges what the old life left behind."""
        self._spawn(self._judge_restart(worker, old, new))

    def start(
        self,
        worker: WorkerRuntime,
        trigger: RestoreEvidence,
        *,
        mark: Mark | None,
        deadline_s: float,
        continuation: Continuation,
    ) -> str:
        """Starts a verification, or names the running one of the same restore; returns its id.

        A hook claims the verification that a sign of the same restore has started, once, and
        has it judged against the mark that it names.
        """
        run = self._newest(worker.name)
        hook = trigger is RestoreEvidence.HOOK
        if hook and run is not None and _is_unclaimed_restore(run, worker):
            return self._claim(run, mark)
        if hook and mark is not None and mark.incarnation != worker.incarnation:
            return self._claim_other_life(worker, mark)
        return self._begin(
            worker,
            worker.generation,
            Scope.CHECK,
            trigger=trigger,
            mark=mark,
            deadline_s=deadline_s,
            continuation=continuation,
            claimed=True,
        ).id

    async def wait(
        self, worker: str, verification_id: str | None, *, timeout_s: float, wait_for: WaitFor
    ) -> WorkerVerdict | None:
        """The verdict; None, or one that is not final, when `timeout_s` ended first.

        Raises:
            UnknownVerificationError: no such verification of this worker.

        """
        run = self._runs.get(verification_id) if verification_id else self._newest(worker)
        if run is None or run.worker.name != worker:
            raise UnknownVerificationError(worker, verification_id)

        def known() -> bool:
            return run.final or (wait_for is WaitFor.STATE and run.state_known)

        await self._changes.wait(known, timeout_s)
        return run.verdict

    def tend(self, worker: WorkerRuntime) -> None:
        """Mends the worker's record after a hole, while no verification asks its sources."""
        run = self._newest(worker.name)
        self._repair.tend(worker, busy=run is not None and not run.state_known)

    async def close(self) -> None:
        """Ends running verifications without a verdict; they are not in the ledger then."""
        await self._repair.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(
        self,
        worker: WorkerRuntime,
        generation: int,
        scope: Scope,
        *,
        trigger: RestoreEvidence,
        mark: Mark | None,
        deadline_s: float,
        continuation: Continuation,
        claimed: bool,
    ) -> Run:
        run = Run(
            id=uuid.uuid4().hex,
            worker=worker,
            generation=generation,
            scope=scope,
            trigger=trigger,
            mark=mark,
            continuation=continuation,
            deadline_s=deadline_s,
            noticed_unix_ns=self._unix_ns(),
            claimed=claimed,
            tokens_at_notice=worker.live.committed_tokens,
        )
        self._remember(run)
        self._launch(run)
        return run

    def _remember(self, run: Run) -> None:
        self._runs[run.id] = run
        while len(self._runs) > KEPT_RUNS:
            self._runs.popitem(last=False)

    def _launch(self, run: Run) -> None:
        if run.task is not None:
            run.task.cancel()
        run.tokens_at_notice = run.worker.live.committed_tokens
        run.task = self._spawn(self._execute(run))

    async def _execute(self, run: Run) -> None:
        try:
            await self._runner.execute(run)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - nothing may leave the worker held
            # Whatever went wrong in here, the worker is not left held and nothing passes.
            _log.exception("verification_failed", worker=run.worker.name, verification=run.id)
            run.judgement = _failed(error)
            self._runner.conclude(run)
            self._runner.release(run)

    def _claim(self, run: Run, mark: Mark | None) -> str:
        run.claimed = True
        if mark is not None:
            self._runner.judge_against(run, mark)
            if run.final:
                self._runner.conclude(run)
        return run.id

    def _claim_other_life(self, worker: WorkerRuntime, mark: Mark) -> str:
        """The mark is of another life: the worker was started anew, not restored."""
        run = self._restarts.run_of(worker, claimed=True)
        run.mark = mark
        self._remember(run)
        run.task = self._spawn(self._restarts.judge_life(run, mark.incarnation))
        return run.id

    async def _judge_restart(self, worker: WorkerRuntime, old: str, new: str) -> None:
        if old != new and await self._restarts.was_idle(worker, old):
            # Nobody lost anything: a plain restart is no restore and needs no verdict.
            _log.info("worker_restarted_idle", worker=worker.name, old=old, new=new)
            self._host.set_gate(worker, worker.generation, GatePosition.OPEN, "")
            return
        run = self._restarts.run_of(worker, claimed=False)
        self._remember(run)
        if old == new:
            self._restarts.judge_source(run)
        else:
            await self._restarts.judge_life(run, old)

    def _newest(self, worker: str) -> Run | None:
        return next((r for r in reversed(self._runs.values()) if r.worker.name == worker), None)

    def _keep(self, run: Run, verdict: WorkerVerdict) -> None:
        """Stores, publishes and wakes: called for every verdict of a run, final or not."""
        stored = StoredVerdict(
            worker=run.worker.name,
            verification_id=run.id,
            unix_ns=self._unix_ns(),
            payload=codec.encode_verdict(verdict).SerializeToString(),
        )
        try:
            self._host.ledger.put_verdict(stored)
        except LedgerError as error:
            _log.error("verdict_not_stored", worker=run.worker.name, error=str(error))
        self._host.publish(verdict)
        self._changes.notify()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_unclaimed_restore(run: Run, worker: WorkerRuntime) -> bool:
    """Whether a sign started this run for the worker's present restore and no hook has come."""
    return (
        run.worker is worker
        and not run.claimed
        and run.scope is Scope.RESTORE
        and run.generation == worker.generation
    )


def _waits_for_restore(run: Run, worker: WorkerRuntime) -> bool:
    """Whether a hook announced a restore of this worker whose sign had not come yet."""
    return (
        run.worker is worker
        and run.trigger is RestoreEvidence.HOOK
        and run.scope is Scope.CHECK
        and not run.state_known
    )


def _failed(error: Exception) -> StateJudgement:
    finding = Finding(
        Verdict.INCOMPARABLE, f"the verification itself failed: {type(error).__name__}: {error}"
    )
    return StateJudgement(Verdict.INCOMPARABLE, (finding,), (), Compared())
