"""Mending a record after a hole: what memory holds now becomes the point to go on from.

A hole leaves everything after it incomparable. Once the worker is whole again its sources
attest, and the ledger keeps what they read as a baseline. It vouches for nothing before it:
rows that were wrong at that moment stay unnoticed, which is why a baseline is marked as such.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from sidecar.core.baseline import block_tables
from sidecar.core.errors import RecordError
from sidecar.core.events import RankAttestation, SchedulerAttestation, SourceKey
from sidecar.ledger.errors import LedgerError
from sidecar.ledger.interface import Ledger
from sidecar.ports import AttestationOrigin, VerificationHost
from sidecar.registry import Attested, SourceAttestation, WorkerRuntime
from sidecar.verify.evidence import NO_CUT, SCHEDULER, Snapshot, snapshot

_log = structlog.get_logger(__name__)

ATTESTATION_S = 20.0
WRITE_S = 20.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class RepairFailedError(Exception):
    """The record could not be mended now; a later attempt may do better."""


@dataclass(slots=True)
class _Patient:
    """What is known of one worker's holes. `mended`: missing records by source, as mended."""

    incarnation: str
    mended: dict[int, int]
    next_try: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    task: "asyncio.Task[None] | None" = None


class RecordRepair:
    """Watches workers for holes and mends them, one attempt at a time for each."""

    def __init__(self, host: VerificationHost, *, clock: Callable[[], float]) -> None:
        self._host = host
        self._clock = clock
        self._patients: dict[str, _Patient] = {}

    def tend(self, worker: WorkerRuntime, *, busy: bool) -> None:
        """Starts an attempt where one is due. `busy`: a verification asks the sources already."""
        patient = self._patients.get(worker.name)
        if patient is None or patient.incarnation != worker.incarnation:
            patient = self._patients[worker.name] = _Patient(worker.incarnation, {})
        if busy or patient.task is not None or self._clock() < patient.next_try:
            return
        if not _has_hole(worker, patient.mended) or not _is_whole(worker):
            return
        patient.task = asyncio.get_running_loop().create_task(self._attempt(worker, patient))

    async def close(self) -> None:
        """Ends running attempts."""
        tasks = [p.task for p in self._patients.values() if p.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _attempt(self, worker: WorkerRuntime, patient: _Patient) -> None:
        holes = {source.source_id: source.hole_records for source in worker.sources.values()}
        try:
            await self._mend(worker)
        except (RepairFailedError, LedgerError, RecordError) as error:
            _log.warning("record_not_mended", worker=worker.name, why=str(error))
            patient.next_try = self._clock() + patient.pause_s
            patient.pause_s = min(patient.pause_s * 2, LONGEST_PAUSE_S)
        else:
            _log.info("record_mended", worker=worker.name, missing=sum(holes.values()))
            patient.mended = holes
            patient.pause_s = FIRST_PAUSE_S
        finally:
            patient.task = None

    async def _mend(self, worker: WorkerRuntime) -> None:
        attested = await self._host.request_attestation(
            worker,
            worker.expected,
            weights=True,
            deadline_s=ATTESTATION_S,
            origin=AttestationOrigin.FRESH,
        )
        seen = snapshot(worker, restored=False)
        await asyncio.to_thread(write_baselines, self._host.ledger, seen, attested)


def write_baselines(ledger: Ledger, seen: Snapshot, attested: Mapping[SourceKey, Attested]) -> None:
    """Makes what all sources attested the point from which their record goes on.

    Raises RepairFailedError, LedgerError, RecordError.
    """
    scheduler = _answer(attested, SCHEDULER)
    if not isinstance(scheduler.body, SchedulerAttestation):
        raise RepairFailedError("the scheduler attested as a rank")
    _rebase_scheduler(ledger, seen, scheduler, scheduler.body)
    tables = {live.session_id: block_tables(live) for live in scheduler.body.sessions}
    for key in attested:
        if key == SCHEDULER:
            continue
        answer = _answer(attested, key)
        if not isinstance(answer.body, RankAttestation):
            raise RepairFailedError(f"{key} attested as a scheduler")
        at = seen.coordinates[key]
        state = ledger.rank_state(at.source_id, at.generation, answer.body.step, NO_CUT)
        state.rebase(answer.body, tables)
        ledger.put_baseline(at.source_id, at.generation, answer.after_seq, state).result(WRITE_S)


def _rebase_scheduler(
    ledger: Ledger, seen: Snapshot, answer: SourceAttestation, body: SchedulerAttestation
) -> None:
    at = seen.coordinates[SCHEDULER]
    state = ledger.scheduler_state(
        at.source_id, at.generation, body.launched, body.committed, NO_CUT
    )
    if state.broken is None:
        return
    ledger.put_baseline(at.source_id, at.generation, answer.after_seq, state.rebased(body)).result(
        WRITE_S
    )


def _answer(attested: Mapping[SourceKey, Attested], key: SourceKey) -> SourceAttestation:
    answer = attested.get(key)
    if isinstance(answer, SourceAttestation):
        return answer
    raise RepairFailedError(f"{key} did not attest: {answer.reason if answer else 'not asked'}")


def _has_hole(worker: WorkerRuntime, mended: Mapping[int, int]) -> bool:
    if worker.live.state.broken is not None:
        return True
    return any(
        source.hole_records > mended.get(source.source_id, 0) for source in worker.sources.values()
    )


def _is_whole(worker: WorkerRuntime) -> bool:
    return all(
        (source := worker.sources.get(key)) is not None and source.link is not None
        for key in worker.expected
    )
