"""CheckpointService: marks, hooks, waiting; every error of the contract."""

import asyncio

import grpc
import pytest
from tokenwitness.v1 import checkpoint_pb2 as pb
from tokenwitness.v1 import checkpoint_pb2_grpc, types_pb2

from sidecar.core.verdicts import Verdict
from sidecar.identity import RestoreEvidence
from sidecar.ledger.values import StoredVerdict
from sidecar.ports import Continuation
from sidecar.wire import codec
from tests.unit.services.conftest import worker_verdict
from tests.unit.services.scripted import Script, first_steps, rank_step
from tests.unit.services.test_attestations import part, rank_part

Status = grpc.StatusCode


def stub(rig):
    return checkpoint_pb2_grpc.CheckpointServiceStub(rig.channel)


async def refused(call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def whole(rig):
    scheduler, _ = await rig.workers.attach(Script())
    rank, _ = await rig.workers.attach(Script(rank=0))
    await scheduler.records(*first_steps())
    await rank.records(rank_step(1, 1))
    return scheduler, rank


async def answer(scheduler, rank, *, rank_step_number=1):
    attest_id = (await scheduler.expect("attest")).attest_id
    await scheduler.say(attestation=part(attest_id))
    await rank.expect("attest")
    await rank.say(attestation=rank_part(attest_id, step=rank_step_number))


async def marked(rig, scheduler, rank, name="before"):
    call = stub(rig).PrepareMark(pb.PrepareMarkRequest(worker="w", name=name))
    task = asyncio.ensure_future(call)
    await answer(scheduler, rank)
    return (await task).mark


async def test_a_mark_is_durable_with_all_that_came_before_it(rig):
    scheduler, rank = await whole(rig)
    mark = await marked(rig, scheduler, rank)
    assert (mark.name, mark.worker, mark.incarnation) == ("before", "w", "life-1")
    assert (mark.step, mark.sessions, mark.last_step) == (1, 1, 0)
    assert mark.outcome == pb.MARK_OUTCOME_PREPARED
    ledger, worker = rig.services.host.ledger, rig.worker()
    assert ledger.durable_seq(worker.scheduler.source_id, 0) == 2
    (kept,) = ledger.attestations(worker.scheduler.source_id)
    assert (kept.step, kept.generation) == (1, 0)
    assert b"s" in kept.payload


async def test_completing_a_mark_fixes_the_window(rig):
    scheduler, rank = await whole(rig)
    await marked(rig, scheduler, rank)
    await scheduler.records(*first_steps(steps=3))
    await scheduler.acked(6)
    request = pb.CompleteMarkRequest(
        worker="w", name="before", outcome=pb.MARK_OUTCOME_TAKEN, image="/images/1"
    )
    mark = (await stub(rig).CompleteMark(request)).mark
    assert (mark.step, mark.last_step, mark.image) == (1, 3, "/images/1")
    assert mark.outcome == pb.MARK_OUTCOME_TAKEN
    # Saying the same again is harmless, something else is refused.
    assert (await stub(rig).CompleteMark(request)).mark == mark
    request.outcome = pb.MARK_OUTCOME_FAILED
    assert (await refused(stub(rig).CompleteMark(request)))[0] is Status.FAILED_PRECONDITION


async def test_a_mark_waits_for_one_boundary(rig):
    scheduler, rank = await whole(rig)
    call = stub(rig).PrepareMark(pb.PrepareMarkRequest(worker="w"))
    task = asyncio.ensure_future(call)
    await answer(scheduler, rank, rank_step_number=2)
    await answer(scheduler, rank)
    mark = (await task).mark
    assert mark.step == 1
    assert mark.name.startswith("mark-")


async def test_errors_of_prepare_mark(rig):
    prepare = stub(rig).PrepareMark
    assert (await refused(prepare(pb.PrepareMarkRequest(worker="w"))))[0] is Status.NOT_FOUND
    code, details = await refused(prepare(pb.PrepareMarkRequest(worker="a b")))
    assert code is Status.INVALID_ARGUMENT
    assert "a b" in details
    scheduler, _ = await rig.workers.attach(Script())
    code, details = await refused(prepare(pb.PrepareMarkRequest(worker="w", name="m")))
    assert code is Status.FAILED_PRECONDITION
    assert "rank 0" in details
    rank, _ = await rig.workers.attach(Script(rank=0))
    code, details = await refused(
        prepare(pb.PrepareMarkRequest(worker="w", name="m", deadline_ms=50))
    )
    assert code is Status.DEADLINE_EXCEEDED
    assert "scheduler" in details
    bad_name = pb.PrepareMarkRequest(worker="w", name="a b")
    assert (await refused(prepare(bad_name)))[0] is Status.INVALID_ARGUMENT
    await scheduler.expect("attest")
    await rank.expect("attest")
    await marked(rig, scheduler, rank)
    again = pb.PrepareMarkRequest(worker="w", name="before")
    assert (await refused(prepare(again)))[0] is Status.ALREADY_EXISTS


async def test_errors_of_complete_mark(rig):
    complete = stub(rig).CompleteMark
    request = pb.CompleteMarkRequest(worker="w", name="m", outcome=pb.MARK_OUTCOME_TAKEN)
    assert (await refused(complete(request)))[0] is Status.NOT_FOUND
    request.outcome = pb.MARK_OUTCOME_PREPARED
    code, details = await refused(complete(request))
    assert code is Status.INVALID_ARGUMENT
    assert "outcome" in details
    request.outcome = pb.MARK_OUTCOME_TAKEN
    request.image = "x" * 5000
    assert (await refused(complete(request)))[0] is Status.INVALID_ARGUMENT


async def test_a_hook_starts_a_verification(rig):
    scheduler, rank = await whole(rig)
    await marked(rig, scheduler, rank)
    request = pb.RestoredRequest(worker="w", mark="before", deadline_ms=7000)
    assert (await stub(rig).Restored(request)).verification_id == "v1"
    (started,) = rig.verifier.started
    assert started["trigger"] is RestoreEvidence.HOOK
    assert started["mark"].name == "before"
    assert started["deadline_s"] == 7.0
    assert started["continuation"] is Continuation.REPLAY
    unknown = pb.RestoredRequest(worker="w", mark="never")
    assert (await refused(stub(rig).Restored(unknown)))[0] is Status.NOT_FOUND
    unknown = pb.RestoredRequest(worker="other")
    assert (await refused(stub(rig).Restored(unknown)))[0] is Status.NOT_FOUND


async def test_waiting_for_a_verdict(rig):
    await whole(rig)
    wait = stub(rig).WaitVerdict
    unknown = pb.WaitVerdictRequest(worker="w", verification_id="v9")
    assert (await refused(wait(unknown)))[0] is Status.NOT_FOUND
    rig.verifier.verdicts["v1"] = None
    request = pb.WaitVerdictRequest(worker="w", verification_id="v1", timeout_ms=10)
    pending = (await wait(request)).verdict
    assert not pending.final
    assert pending.verdict == types_pb2.VERDICT_UNSPECIFIED
    rig.verifier.verdicts["v1"] = worker_verdict()
    verdict = (await wait(request)).verdict
    assert verdict.final
    assert verdict.verdict == types_pb2.VERDICT_RESUMED_EXACT


async def test_a_verdict_from_before_a_restart_is_found(start_rig):
    rig = await start_rig()
    await whole(rig)
    payload = codec.encode_verdict(worker_verdict(verdict=Verdict.LOST)).SerializeToString()
    rig.services.host.ledger.put_verdict(StoredVerdict("w", "v7", 1, payload)).result(5)
    await rig.close()
    rig = await start_rig()
    request = pb.WaitVerdictRequest(worker="w", verification_id="v7")
    assert (await stub(rig).WaitVerdict(request)).verdict.verdict == types_pb2.VERDICT_LOST
    newest = pb.WaitVerdictRequest(worker="w")
    assert (await stub(rig).WaitVerdict(newest)).verdict.verdict == types_pb2.VERDICT_LOST
