"""VerifierService: what operators see; every error of the contract."""

import asyncio

import grpc
import pytest
from tokenwitness.v1 import types_pb2, verifier_pb2_grpc
from tokenwitness.v1 import verifier_pb2 as pb

from sidecar.core.verdicts import Verdict
from sidecar.ledger.values import StoredVerdict
from sidecar.operators.hub import Missed, TooManyWatchersError, WatchHub
from sidecar.ports import StatusChanged
from sidecar.wire import codec
from tests.unit.services.conftest import worker_verdict
from tests.unit.services.scripted import WAIT_S, Script, first_steps, rank_step
from tests.unit.services.test_checkpoints import marked, refused, whole
from tests.unit.services.waiting import eventually

Status = grpc.StatusCode


def stub(rig):
    return verifier_pb2_grpc.VerifierServiceStub(rig.channel)


async def watch_until(call, found):
    async with asyncio.timeout(WAIT_S):
        while True:
            response = await call.read()
            if found(response):
                return response


async def test_workers_are_listed_as_they_are(rig):
    assert not (await stub(rig).ListWorkers(pb.ListWorkersRequest())).workers
    scheduler, _ = await rig.workers.attach(
        Script(changes={"engine_url": "http://127.0.0.1:8000", "drill": True})
    )
    await scheduler.records(*first_steps())
    await scheduler.acked(2)
    (status,) = (await stub(rig).ListWorkers(pb.ListWorkersRequest())).workers
    assert (status.worker, status.incarnation, status.generation) == ("w", "life-1", 0)
    assert (status.launched_step, status.committed_step, status.sessions) == (1, 1, 1)
    assert [source.kind for source in status.attached] == [types_pb2.SOURCE_KIND_SCHEDULER]
    assert not status.gate_open
    assert status.gate_reason == "not attached: rank 0"
    assert status.engine_url == "http://127.0.0.1:8000"
    assert status.drill
    assert dict(zip(status.fingerprint.names, status.fingerprint.values, strict=True)) == {
        "engine": "scripted",
        "model": "m",
    }


async def test_sessions_are_listed_with_a_limit_and_shadows_marked(rig):
    scheduler, _ = await rig.workers.attach(Script())
    await scheduler.records(*first_steps())
    await scheduler.acked(2)
    rig.services.host.register_shadow_ids(rig.worker(), ["s"])
    listed = await stub(rig).ListSessions(pb.ListSessionsRequest(worker="w"))
    (session,) = listed.sessions
    assert (session.session_id, session.emitted, session.computed) == ("s", 4, 3)
    assert session.shadow
    assert listed.left_off == 0
    code, _ = await refused(stub(rig).ListSessions(pb.ListSessionsRequest(worker="x")))
    assert code is Status.NOT_FOUND
    too_many = pb.ListSessionsRequest(worker="w", limit=1 << 30)
    assert (await refused(stub(rig).ListSessions(too_many)))[0] is Status.INVALID_ARGUMENT


async def test_unknown_sessions_are_not_listed_as_none(rig):
    scheduler, _ = await rig.workers.attach(Script(next_seq=9, oldest_seq=9))
    await eventually(lambda: rig.worker().hole_records)
    code, details = await refused(stub(rig).ListSessions(pb.ListSessionsRequest(worker="w")))
    assert code is Status.FAILED_PRECONDITION
    assert "missing" in details
    await scheduler.hang_up()


async def test_verdicts_and_marks_are_listed_newest_first(rig):
    scheduler, rank = await whole(rig)
    await marked(rig, scheduler, rank, "one")
    await marked(rig, scheduler, rank, "two")
    marks = (await stub(rig).ListMarks(pb.ListMarksRequest(worker="w"))).marks
    assert [mark.name for mark in marks] == ["two", "one"]
    ledger = rig.services.host.ledger
    for verification in ("v1", "v2"):
        payload = codec.encode_verdict(worker_verdict(verification)).SerializeToString()
        ledger.put_verdict(StoredVerdict("w", verification, 1, payload)).result(5)
    verdicts = (await stub(rig).ListVerdicts(pb.ListVerdictsRequest())).verdicts
    assert [verdict.verification_id for verdict in verdicts] == ["v2", "v1"]
    one = (await stub(rig).ListVerdicts(pb.ListVerdictsRequest(worker="w", limit=1))).verdicts
    assert [verdict.verification_id for verdict in one] == ["v2"]
    code, _ = await refused(stub(rig).ListVerdicts(pb.ListVerdictsRequest(worker="x")))
    assert code is Status.NOT_FOUND


async def test_verify_now_needs_an_attached_worker(rig):
    verify = stub(rig).VerifyNow
    assert (await refused(verify(pb.VerifyNowRequest(worker="w"))))[0] is Status.NOT_FOUND
    scheduler, _ = await rig.workers.attach(Script())
    assert (await verify(pb.VerifyNowRequest(worker="w"))).verification_id == "v1"
    await scheduler.hang_up()
    await eventually(lambda: not rig.services.registry.any_alive(rig.worker()))
    code, details = await refused(verify(pb.VerifyNowRequest(worker="w")))
    assert code is Status.FAILED_PRECONDITION
    assert "not attached" in details


async def test_watchers_hear_what_happens(rig):
    call = stub(rig).Watch(pb.WatchRequest(worker="w"))
    await call.initial_metadata()
    await rig.workers.attach(Script())
    await watch_until(call, lambda each: each.status.worker == "w" and each.status.attached)
    rig.services.host.publish(worker_verdict(verdict=Verdict.LOST, worker="other"))
    rig.services.host.publish(worker_verdict(verdict=Verdict.KV_MISMATCH))
    heard = await watch_until(call, lambda each: each.HasField("verdict"))
    assert heard.verdict.verdict == types_pb2.VERDICT_KV_MISMATCH
    assert heard.unix_ns > 0
    assert rig.worker().last_verdict is Verdict.KV_MISMATCH
    call.cancel()


async def test_watchers_are_limited(start_rig):
    rig = await start_rig(watchers_limit=1)
    first = stub(rig).Watch(pb.WatchRequest())
    await first.initial_metadata()
    second = stub(rig).Watch(pb.WatchRequest())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await second.read()
    assert caught.value.code() is Status.RESOURCE_EXHAUSTED
    first.cancel()
    third = stub(rig).Watch(pb.WatchRequest(worker="a b"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await third.read()
    assert caught.value.code() is Status.INVALID_ARGUMENT


async def test_the_record_is_exported_in_order(rig):
    scheduler, rank = await whole(rig)
    await scheduler.acked(2)
    await rank.acked(1)
    exported = [each async for each in stub(rig).Export(pb.ExportRequest(worker="w"))]
    assert sorted(each.record.WhichOneof("record") for each in exported) == [
        "commit",
        "launch",
        "rank_step",
    ]
    launched = next(each for each in exported if each.record.HasField("launch"))
    assert launched.record == first_steps()[0]
    assert all(each.chain and each.received_unix_ns for each in exported)
    await rank.records(rank_step(2, 5))
    await rank.acked(2)
    later = stub(rig).Export(pb.ExportRequest(worker="w", from_step=5, to_step=5))
    assert [each.record.seq async for each in later] == [2]
    for request, status in (
        (pb.ExportRequest(worker="x"), Status.NOT_FOUND),
        (pb.ExportRequest(worker="w", from_step=3, to_step=2), Status.INVALID_ARGUMENT),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(rig).Export(request).read()
        assert caught.value.code() is status


async def test_a_slow_watcher_is_told_how_much_it_missed():
    missed = []
    hub = WatchHub(limit=1, capacity=2, on_missed=lambda: missed.append(1))
    watcher = hub.open("w")
    for number in range(5):
        hub.publish(worker_verdict(f"v{number}"))
    assert await watcher.next() == Missed(3)
    assert (await watcher.next()).verification_id == "v3"
    assert (await watcher.next()).verification_id == "v4"
    assert len(missed) == 3
    hub.publish(StatusChanged("w"))
    hub.publish(StatusChanged("w"))
    assert await watcher.next() == StatusChanged("w")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watcher.next(), 0.01)
    with pytest.raises(TooManyWatchersError):
        hub.open("")
    hub.close(watcher)
    hub.open("")
