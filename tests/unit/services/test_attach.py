"""Attaching: what gets in, what is refused and with which words."""

import grpc
import pytest
from tokenwitness.v1 import recorder_pb2 as pb

from tests.unit.services.scripted import (
    Script,
    ScriptedWorker,
    commit,
    first_steps,
    kv_group,
    launch,
    process,
    rank_step,
    session_start,
)
from tests.unit.services.waiting import eventually

Status = grpc.StatusCode
SCHEDULER = Script()
RANK = Script(rank=0, nonce=8)


async def test_a_new_source_is_welcomed_and_its_records_acknowledged(rig):
    source, welcome = await rig.workers.attach(SCHEDULER)
    assert (welcome.protocol, welcome.durable_seq, welcome.generation) == (1, 0, 0)
    assert welcome.hold.mode == pb.HOLD_MODE_VERDICT
    await source.records(*first_steps(steps=2))
    await source.acked(4)
    (session,) = rig.worker().live.sessions
    assert (session.session_id, session.emitted, session.computed) == ("s", 5, 4)


async def test_acknowledged_records_survive_a_killed_stream_and_are_not_taken_twice(rig):
    source, _ = await rig.workers.attach(SCHEDULER)
    await source.records(*first_steps(steps=2))
    await source.acked(4)
    await source.hang_up()
    again, welcome = await rig.workers.attach(SCHEDULER.but(next_seq=5))
    assert (welcome.durable_seq, welcome.generation) == (4, 0)
    await again.records(*first_steps(steps=3))
    await again.acked(6)
    assert rig.worker().live.sessions[0].emitted == 6
    metrics = rig.services.recorder._metrics
    assert metrics.duplicates.labels("w", "scheduler")._value.get() == 4
    assert not rig.verifier.signs


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"protocol": 2}, Status.FAILED_PRECONDITION, ["hello.protocol", "2"]),
        ({"worker": "a b"}, Status.INVALID_ARGUMENT, ["hello.worker", "a b"]),
        ({"worker": ""}, Status.INVALID_ARGUMENT, ["hello.worker"]),
        ({"worker": "x" * 129}, Status.INVALID_ARGUMENT, ["hello.worker", "xxx"]),
        ({"incarnation": ""}, Status.INVALID_ARGUMENT, ["hello.incarnation"]),
        ({"ranks": 0}, Status.INVALID_ARGUMENT, ["hello.ranks", "0"]),
        ({"ranks": 65}, Status.INVALID_ARGUMENT, ["hello.ranks", "65", "max_ranks"]),
        ({"next_seq": 0}, Status.INVALID_ARGUMENT, ["hello.next_seq", "0"]),
        ({"oldest_seq": 2}, Status.INVALID_ARGUMENT, ["hello.oldest_seq", "2"]),
        ({"engine_url": "u" * 600}, Status.INVALID_ARGUMENT, ["hello.engine_url", "600"]),
    ],
)
async def test_a_hello_that_cannot_be_used_is_refused(rig, changes, status, words):
    code, details = await rig.workers.refused(SCHEDULER.but(changes=changes))
    assert code is status
    assert all(word in details for word in words), details


async def test_the_source_and_its_kv_groups_are_checked(rig):
    hello = RANK.hello()
    hello.source.rank = 3
    source = await rig.workers.open(pb.AttachRequest(hello=hello))
    assert (await source.ended())[0] is Status.INVALID_ARGUMENT
    hello = RANK.hello()
    group = kv_group()
    group.block_size = 0
    del hello.kv_groups[:]
    hello.kv_groups.append(group)
    source = await rig.workers.open(pb.AttachRequest(hello=hello))
    code, details = await source.ended()
    assert code is Status.INVALID_ARGUMENT
    assert "block_size" in details


async def test_the_first_message_has_to_be_a_hello(rig):
    source = await rig.workers.open(pb.AttachRequest(heartbeat=pb.Heartbeat()))
    code, details = await source.ended()
    assert code is Status.FAILED_PRECONDITION
    assert "heartbeat" in details
    source = await rig.workers.open(pb.AttachRequest())
    assert (await source.ended())[0] is Status.FAILED_PRECONDITION


async def test_a_second_hello_is_refused(rig):
    source, _ = await rig.workers.attach(SCHEDULER)
    await source.say(hello=SCHEDULER.hello())
    code, details = await source.ended()
    assert code is Status.INVALID_ARGUMENT
    assert "hello" in details


@pytest.mark.parametrize(
    ("script", "bad", "words"),
    [
        (SCHEDULER, launch(4, 2, rows=[0], starts=[3]), ["seq", "4", "expected 3"]),
        (SCHEDULER, launch(3, 3, rows=[0], starts=[3]), ["step 3", "step 2"]),
        (SCHEDULER, launch(3, 2, rows=[1], starts=[3]), ["row 1"]),
        (SCHEDULER, launch(3, 2, rows=[0], starts=[3], counts=[1, 1]), ["counts", "2"]),
        (SCHEDULER, commit(3, 2, tokens=[1]), ["commit of step 2"]),
        (
            SCHEDULER,
            launch(3, 2, started=[session_start(0, "t", [1])], rows=[0], starts=[0]),
            ["row 0"],
        ),
        (SCHEDULER, rank_step(3, 2), ["rank_step", "scheduler"]),
        (SCHEDULER, pb.Record(seq=3), ["records[0]"]),
        (SCHEDULER, pb.Record(seq=3, hole=pb.Hole(count=0)), ["records[0]", "0"]),
        (RANK, rank_step(3, 1), ["step 1"]),
        (RANK, rank_step(3, 3, slots=[64 * 4]), ["slot", "256"]),
        (RANK, commit(3, 2), ["commit", "rank 0"]),
    ],
)
async def test_a_bad_record_ends_the_stream_and_loses_nothing(rig, script, bad, words):
    good = first_steps() if script.rank is None else [rank_step(1, 1), rank_step(2, 2)]
    source, _ = await rig.workers.attach(script)
    await source.records(*good)
    await source.acked(2)
    await source.records(bad)
    code, details = await source.ended()
    assert code is Status.INVALID_ARGUMENT
    assert all(word in details for word in words), details
    # What was acknowledged is there, and the right record goes on from it.
    again, welcome = await rig.workers.attach(script.but(next_seq=3))
    assert welcome.durable_seq == 2
    right = launch(3, 2, rows=[0], starts=[3]) if script.rank is None else rank_step(3, 3)
    await again.records(right)
    await again.acked(3)


async def test_records_before_a_bad_one_of_the_same_batch_are_kept(rig):
    source, _ = await rig.workers.attach(SCHEDULER)
    await source.records(*first_steps(), launch(9, 2))
    assert (await source.ended())[0] is Status.INVALID_ARGUMENT
    await eventually(lambda: rig.worker().scheduler.durable_seq == 2)


async def test_an_oversized_message_is_refused(start_rig):
    rig = await start_rig(max_message_bytes=2 * 1024 * 1024)
    source, _ = await rig.workers.attach(SCHEDULER)
    await source.records(
        launch(1, 1, started=[session_start(0, "s", [200] * 2_000_000)], rows=[0], starts=[0])
    )
    code, _ = await source.ended()
    assert code is Status.RESOURCE_EXHAUSTED
    _, welcome = await rig.workers.attach(SCHEDULER)
    assert welcome.durable_seq == 0


async def test_what_neither_side_has_becomes_a_hole(rig):
    source, _ = await rig.workers.attach(SCHEDULER.but(next_seq=41, oldest_seq=41))
    await source.records(launch(41, 20))
    await source.acked(41)
    worker = rig.worker()
    assert worker.hole_records == 40
    assert "missing" in worker.live.unknown


async def test_another_live_worker_of_the_same_name_is_refused(rig):
    first, _ = await rig.workers.attach(SCHEDULER)
    async with first.beating():
        code, details = await rig.workers.refused(SCHEDULER.but(incarnation="life-2"))
    assert code is Status.ALREADY_EXISTS
    assert "life-1" in details
    assert "life-2" in details
    assert rig.worker().incarnation == "life-1"


async def test_a_live_clone_is_refused(rig):
    first, _ = await rig.workers.attach(SCHEDULER)
    async with first.beating():
        code, details = await rig.workers.refused(SCHEDULER.but(process=process(pid=200)))
    assert code is Status.ALREADY_EXISTS
    assert "200" in details
    await first.records(*first_steps())
    await first.acked(2)


async def test_a_newcomer_whose_rival_stays_silent_is_let_in(start_rig):
    rig = await start_rig(heartbeat_timeout_ms=300)
    await rig.workers.attach(SCHEDULER)
    _, welcome = await rig.workers.attach(SCHEDULER.but(process=process(pid=200)))
    assert welcome.generation == 1


async def test_the_same_process_takes_its_place_over_from_its_older_stream(rig):
    first, _ = await rig.workers.attach(SCHEDULER)
    second, welcome = await rig.workers.attach(SCHEDULER)
    assert welcome.generation == 0
    code, _ = await first.ended()
    assert code is Status.ABORTED
    await second.records(*first_steps())
    await second.acked(2)


async def test_too_many_workers_are_refused_until_one_is_gone(start_rig):
    rig = await start_rig(max_workers=1)
    first, _ = await rig.workers.attach(SCHEDULER)
    code, details = await rig.workers.refused(SCHEDULER.but(worker="other"))
    assert code is Status.RESOURCE_EXHAUSTED
    assert "max_workers" in details
    await first.hang_up()
    await eventually(lambda: not rig.services.registry.any_alive(rig.worker()))
    await rig.workers.attach(SCHEDULER.but(worker="other"))
    assert rig.services.gates.state("w") is None


async def test_other_numbers_of_ranks_are_refused(rig):
    await rig.workers.attach(SCHEDULER)
    code, details = await rig.workers.refused(RANK.but(ranks=2))
    assert code is Status.INVALID_ARGUMENT
    assert "hello.ranks is 2" in details


async def test_a_stopping_sidecar_says_so(rig):
    source, _ = await rig.workers.attach(SCHEDULER)
    rig.services.stop_streams()
    code, details = await source.ended()
    assert code is Status.UNAVAILABLE
    assert "shutting down" in details
    assert (await ScriptedWorker(rig.channel).refused(SCHEDULER))[0] is Status.UNAVAILABLE
