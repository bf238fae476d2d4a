"""The adapters' own reporter against the real recorder: both ends of the contract."""

import asyncio
import time
from dataclasses import replace

import numpy as np
from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report import records
from engine_adapters.report.attestations import LiveSession, RankBody, SchedulerBody, SessionKv
from engine_adapters.report.config import AdapterConfig
from engine_adapters.report.identity import KvGroupSpec, SourceIdentity, SourceKind
from engine_adapters.report.reporter import HoldOutcome, SourceReporter
from sidecar.core.events import SourceKey
from sidecar.core.events import SourceKind as Kind
from sidecar.core.verdicts import Verdict
from sidecar.registry import SourceAttestation
from tests.unit.services.waiting import eventually

SCHEDULER, RANK = SourceKey(Kind.SCHEDULER), SourceKey(Kind.RANK, 0)
BOTH = {"scheduler", "rank 0"}
GROUP = KvGroupSpec(0, 4, 64, (0, 1), (1, 1), 64)


def reporter(rig, kind):
    config = AdapterConfig.load(
        {"address": rig.bound.grpc_address, "worker": "w", "idle_after_ms": 20}, {}
    )
    identity = SourceIdentity("w", "life-1", kind)
    made = SourceReporter(
        config,
        identity,
        fingerprint=lambda: {"engine": "scripted"},
        kv_groups=[GROUP] if kind is SourceKind.RANK else [],
        on_idle_attest=lambda _: body(kind),
    )
    made.start()
    return made


def body(kind):
    if kind is SourceKind.RANK:
        digests = np.zeros((3, 2), np.uint64)
        return RankBody(kv=[SessionKv(0, "s", 0, 0, digests)])
    live = LiveSession(0, "s", 4, 3, 0, 3, [1, 2, 3, 9], records.Sampling(temperature=0.0))
    return SchedulerBody(committed_step=1, sessions=[live])


def run_steps(scheduler, rank, first, last):
    for step in range(first, last + 1):
        new = step == 1
        start = records.SessionStart(0, "s", [1, 2, 3], records.Sampling(temperature=0.0))
        scheduler.put(
            records.LaunchRecord(
                step=step,
                started=[start] if new else [],
                rows=[0],
                starts=[0 if new else step + 1],
                counts=[3] if new else None,
            )
        )
        count = 3 if new else 1
        slots = np.arange(step * 4, step * 4 + count, dtype=np.uint32)
        kv = records.KvRows(0, slots, np.zeros((count, 2), np.uint64))
        rank.put(records.RankStepRecord(step=step, kv=[kv]))
        scheduler.put(records.CommitRecord(step=step, tokens=[9]))
        for each in (scheduler, rank):
            each.note_step(step)


def restore(made):
    """As if the process had been re-created."""
    watch = made._watch
    with watch._lock:
        process = replace(watch.process, start_ticks=watch.process.start_ticks + 1)
        watch._read = lambda: process
        watch._polled = watch._looked = 0


async def test_record_restore_attest_hold_release(rig):
    scheduler, rank = reporter(rig, SourceKind.SCHEDULER), reporter(rig, SourceKind.RANK)
    try:
        await asyncio.to_thread(run_steps, scheduler, rank, 1, 20)
        await eventually(lambda: rig.worker() and rig.worker().live.state.committed == 20)
        await eventually(lambda: rig.services.gates.state("w").open)
        # Only a source that was answered once holds.
        await eventually(lambda: rig.worker().sources[RANK].durable_seq == 20)
        restore(scheduler)
        restore(rank)
        engine = asyncio.create_task(asyncio.to_thread(next_boundary, rank))
        await eventually(lambda: {source for _, _, source, _ in rig.verifier.signs} >= BOTH)
        assert {generation for _, generation, _, _ in rig.verifier.signs} == {1}
        assert not rig.services.gates.state("w").open
        host, worker = rig.services.host, rig.worker()
        answers = await host.request_attestation(
            worker, [SCHEDULER, RANK], weights=True, deadline_s=10.0
        )
        assert all(isinstance(each, SourceAttestation) for each in answers.values()), answers
        assert answers[RANK].body.kv[0].session_id == "s"
        assert not engine.done()
        assert RANK in worker.held
        for key, held in worker.held.items():
            assert host.release(worker, key, held, Verdict.RESUMED_EXACT, go=True)
        assert await engine is HoldOutcome.RELEASED
        await asyncio.to_thread(run_steps, scheduler, rank, 21, 30)
        await eventually(lambda: worker.live.state.committed == 30)
        assert not worker.held
    finally:
        await asyncio.gather(asyncio.to_thread(scheduler.close), asyncio.to_thread(rank.close))
    assert scheduler.counters.dropped_records == 0


def next_boundary(made, limit_s=10.0):
    """What the engine's thread does before a step, until it has been held."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        due = made.due()
        if due is None:
            time.sleep(0.005)
            continue
        if not due.attested:
            made.attest(due, body(SourceKind.RANK), step=20, idle=False)
        if due.hold:
            return made.hold(due)
    return None


async def test_a_record_that_the_sidecar_refuses_becomes_a_hole_and_the_rest_arrives(rig, caplog):
    scheduler, rank = reporter(rig, SourceKind.SCHEDULER), reporter(rig, SourceKind.RANK)
    try:
        await asyncio.to_thread(run_steps, scheduler, rank, 1, 5)
        await eventually(lambda: rig.worker() and len(rig.worker().sources) == 2)
        worker = rig.worker()
        await eventually(lambda: worker.sources[RANK].durable_seq == 5)
        # A slot that the rank's KV does not have: not a fault of the stream, but of the record.
        slots = np.array([10_000], np.uint32)
        bad = records.KvRows(0, slots, np.zeros((1, 2), np.uint64))
        rank.put(records.RankStepRecord(step=6, kv=[bad]))
        await eventually(lambda: worker.sources[RANK].durable_seq >= 6)
        good = records.KvRows(0, np.array([8], np.uint32), np.zeros((1, 2), np.uint64))
        for step in range(7, 11):
            rank.put(records.RankStepRecord(step=step, kv=[good]))
        await eventually(lambda: worker.sources[RANK].durable_seq == 10)
        await eventually(lambda: worker.sources[RANK].recorded_step == 10)
        holes = hole_records(rig)
        assert [(hole.count, hole.first_step, hole.last_step) for hole in holes] == [(1, 6, 6)]
        assert "refused" in holes[0].reason
        assert "10000" in holes[0].reason
        assert rank.counters.refused_records == rank.counters.dropped_records == 1
        assert sum("given up" in each.message for each in caplog.records) == 1
        # The scheduler's own stream was not touched.
        assert scheduler.counters.connects == 1
    finally:
        await asyncio.gather(asyncio.to_thread(scheduler.close), asyncio.to_thread(rank.close))


async def test_records_that_contradict_each_other_become_a_hole_with_what_was_behind(rig):
    scheduler, rank = reporter(rig, SourceKind.SCHEDULER), reporter(rig, SourceKind.RANK)
    try:
        await asyncio.to_thread(run_steps, scheduler, rank, 1, 5)
        # An outcome of a step that was never launched, and more behind it.
        scheduler.put(records.CommitRecord(step=9, tokens=[9]))
        await asyncio.to_thread(run_steps, scheduler, rank, 6, 20)
        await eventually(lambda: rig.worker() and SCHEDULER in rig.worker().sources)
        source = rig.worker().sources[SCHEDULER]
        await eventually(lambda: source.durable_seq == scheduler.counters.records)
        assert scheduler.counters.refused_records >= 1
        # Fewer where some of what was given up had become durable.
        assert 1 <= rig.worker().hole_records <= scheduler.counters.refused_records
        assert rig.worker().live.unknown
    finally:
        await asyncio.gather(asyncio.to_thread(scheduler.close), asyncio.to_thread(rank.close))


async def test_an_attestation_that_the_sidecar_refuses_is_answered_by_an_error(rig):
    scheduler, rank = reporter(rig, SourceKind.SCHEDULER), reporter(rig, SourceKind.RANK)
    try:
        await asyncio.to_thread(run_steps, scheduler, rank, 1, 5)
        await eventually(lambda: rig.worker() and len(rig.worker().sources) == 2)
        worker = rig.worker()
        await eventually(lambda: worker.sources[RANK].durable_seq == 5)
        # Digests of a group that the rank does not have.
        wrong = RankBody(kv=[SessionKv(0, "s", 9, 0, np.zeros((3, 2), np.uint64))])
        rank._idle._read = lambda _: wrong
        answers = await rig.services.host.request_attestation(
            worker, [RANK], weights=False, deadline_s=10.0
        )
        assert "refused" in answers[RANK].reason
        assert rank.counters.refused_records == 0
        await asyncio.to_thread(run_steps, scheduler, rank, 6, 8)
        await eventually(lambda: worker.sources[RANK].durable_seq == 8)
        assert worker.hole_records == 0
    finally:
        await asyncio.gather(asyncio.to_thread(scheduler.close), asyncio.to_thread(rank.close))


def hole_records(rig):
    """All holes of the worker, as they are in the ledger."""
    ledger = rig.services.host.ledger
    ledger.flush(5)
    found = [pb.Record.FromString(each.record.payload) for each in ledger.export("w")]
    return [each.hole for each in found if each.WhichOneof("record") == "hole"]


async def test_a_stalled_device_is_signed_by_the_scheduler_and_ranks_answer_while_it_holds(rig):
    """One thread runs scheduler and rank: held in the outcome, it never comes to the rank's
    boundary. The rank did not sign, is asked, and reads from its own thread.
    """
    scheduler, rank = reporter(rig, SourceKind.SCHEDULER), reporter(rig, SourceKind.RANK)
    try:
        await asyncio.to_thread(run_steps, scheduler, rank, 1, 5)
        await eventually(lambda: rig.worker() and len(rig.worker().sources) == 2)
        worker = rig.worker()
        await eventually(lambda: worker.sources[SCHEDULER].durable_seq == 10)
        await eventually(lambda: rig.services.gates.state("w").open)
        held = asyncio.create_task(asyncio.to_thread(late_outcome, scheduler))
        await eventually(lambda: rig.verifier.signs)
        (_, generation, source, notice) = rig.verifier.signs[0]
        assert (generation, source, notice.evidence) == (1, "scheduler", "stood_still")
        assert notice.sign.gap_ns == 3_000_000_000
        answers = await rig.services.host.request_attestation(
            worker, [SCHEDULER, RANK], weights=True, deadline_s=10.0
        )
        assert all(isinstance(each, SourceAttestation) for each in answers.values()), answers
        assert answers[RANK].idle
        assert not held.done()
        attest_id = worker.held[SCHEDULER]
        host = rig.services.host
        assert host.release(worker, SCHEDULER, attest_id, Verdict.RESUMED_EXACT, go=True)
        assert await held is HoldOutcome.RELEASED
    finally:
        await asyncio.gather(asyncio.to_thread(scheduler.close), asyncio.to_thread(rank.close))


def late_outcome(scheduler):
    """What the scheduler's role does when an outcome comes 3 s late."""
    scheduler.stood_still(3_000_000_000)
    scheduler.put(records.LaunchRecord(step=6, rows=[0], starts=[7]))
    scheduler.put(records.CommitRecord(step=6, tokens=[9]))
    due = scheduler.due()
    scheduler.attest(due, body(SourceKind.SCHEDULER), step=6, idle=False)
    return scheduler.hold(due)


async def test_a_sidecar_killed_in_mid_run_loses_nothing(start_rig):
    rig = await start_rig()
    scheduler, rank = reporter(rig, SourceKind.SCHEDULER), reporter(rig, SourceKind.RANK)
    try:
        await asyncio.to_thread(run_steps, scheduler, rank, 1, 20)
        await eventually(lambda: rig.worker() and rig.worker().live.state.committed > 5)
        await rig.close()
        await asyncio.to_thread(run_steps, scheduler, rank, 21, 40)
        rig = await start_rig(grpc_address=rig.bound.grpc_address)
        await eventually(lambda: rig.worker() and rig.worker().live.state.committed == 40)
        await eventually(lambda: len(rig.worker().sources) == 2)
        worker = rig.worker()
        await eventually(lambda: worker.sources[RANK].durable_seq == 40)
        assert worker.generation == 0
        assert not rig.verifier.signs
        assert worker.hole_records == 0
        assert len(worker.live.sessions[0].tokens) == 43
    finally:
        await asyncio.gather(asyncio.to_thread(scheduler.close), asyncio.to_thread(rank.close))
