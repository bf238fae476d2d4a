"""Asking for attestations, collecting pushed ones, releasing held sources."""

import asyncio

import grpc
import pytest
from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import types_pb2

from sidecar.core.events import SourceKey, SourceKind
from sidecar.core.verdicts import Verdict
from sidecar.ports import AttestationOrigin
from sidecar.recorder.attestations import MAX_OPEN
from sidecar.registry import AttestationFailed, SourceAttestation
from tests.unit.services.scripted import Script, first_steps, kv_group
from tests.unit.services.waiting import eventually

SCHEDULER = SourceKey(SourceKind.SCHEDULER)
RANK = SourceKey(SourceKind.RANK, 0)
HELD = (1 << 63) | 5


def part(attest_id, number=0, *, last=True, step=1, sessions=("s",)):
    live = [
        pb.LiveSession(
            row=row,
            session_id=name,
            emitted=4,
            computed=3,
            prompt_length=3,
            tokens=[1, 2, 3, 10],
            sampling=types_pb2.Sampling(temperature=0.0),
        )
        for row, name in enumerate(sessions, start=number)
    ]
    body = pb.SchedulerAttestation(committed_step=1, sessions=live)
    return pb.AttestationPart(
        attest_id=attest_id, part=number, last=last, step=step, scheduler=body
    )


def rank_part(attest_id, *, step=1):
    body = pb.RankAttestation(
        kv_groups=[kv_group()],
        kv=[pb.SessionKv(row=0, session_id="s", kv_group=0, digests=bytes(16 * 3))],
    )
    return pb.AttestationPart(attest_id=attest_id, last=True, step=step, rank=body)


def asking(rig, *sources, deadline_s=5.0, origin=AttestationOrigin.AFTER_SIGN):
    return asyncio.create_task(
        rig.services.host.request_attestation(
            rig.worker(), sources, weights=True, deadline_s=deadline_s, origin=origin
        )
    )


async def test_all_sources_are_asked_under_one_id_and_answer(rig):
    scheduler, _ = await rig.workers.attach(Script())
    rank, _ = await rig.workers.attach(Script(rank=0))
    task = asking(rig, SCHEDULER, RANK)
    asked = await scheduler.expect("attest")
    assert asked.weights
    assert 0 < asked.deadline_ms <= 5000
    assert not asked.attest_id >> 63
    assert (await rank.expect("attest")).attest_id == asked.attest_id
    await scheduler.say(attestation=part(asked.attest_id))
    await rank.say(attestation=rank_part(asked.attest_id))
    answers = await task
    assert [type(each) for each in answers.values()] == [SourceAttestation] * 2
    assert answers[SCHEDULER].body.sessions[0].session_id == "s"
    assert answers[RANK].body.kv[0].digests.shape == (3, 2)
    whole = pb.AttestationPart.FromString(answers[SCHEDULER].payload)
    assert whole.scheduler.sessions[0].tokens == [1, 2, 3, 10]


async def test_parts_are_put_together(rig):
    scheduler, _ = await rig.workers.attach(Script())
    task = asking(rig, SCHEDULER)
    attest_id = (await scheduler.expect("attest")).attest_id
    await scheduler.say(attestation=part(attest_id, 0, last=False, sessions=("a",)))
    await scheduler.say(attestation=part(attest_id, 1, sessions=("b", "c")))
    answer = (await task)[SCHEDULER]
    assert [each.session_id for each in answer.body.sessions] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ([part(0)], "attest_id"),
        ([part(1, 1)], "attestation.part"),
        ([part(1, 0, last=False), part(1, 2)], "attestation.part"),
        ([part(1, 0, last=False), part(1, 1, step=9)], "attestation.step"),
        ([part(1, 0, last=False), part(1, 1, sessions=("s",))], "s"),
        ([rank_part(1)], "attestation.body"),
        ([pb.AttestationPart(attest_id=1, last=True, step=1)], "attestation.body"),
    ],
)
async def test_a_malformed_attestation_ends_the_stream(rig, bad, word):
    scheduler, _ = await rig.workers.attach(Script())
    for each in bad:
        await scheduler.say(attestation=each)
    code, details = await scheduler.ended()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert word in details


async def test_only_so_many_attestations_are_open_at_once(rig):
    scheduler, _ = await rig.workers.attach(Script())
    for attest_id in range(1, MAX_OPEN + 2):
        await scheduler.say(attestation=part(attest_id, 0, last=False))
    await scheduler.say(attestation=part(1, 1))
    code, details = await scheduler.ended()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "part" in details


async def test_a_source_that_cannot_attest_says_why(rig):
    scheduler, _ = await rig.workers.attach(Script())
    task = asking(rig, SCHEDULER)
    attest_id = (await scheduler.expect("attest")).attest_id
    await scheduler.say(
        attestation=pb.AttestationPart(attest_id=attest_id, last=True, error="no memory")
    )
    answer = (await task)[SCHEDULER]
    assert isinstance(answer, AttestationFailed)
    assert "no memory" in answer.reason


async def test_silence_and_absence_are_answers_too(rig):
    await rig.workers.attach(Script())
    answers = await asking(rig, SCHEDULER, RANK, deadline_s=0.05)
    assert "did not attest in time" in answers[SCHEDULER].reason
    assert "not attached" in answers[RANK].reason


async def test_a_source_that_comes_back_is_asked_over_its_new_stream(rig):
    scheduler, _ = await rig.workers.attach(Script())
    task = asking(rig, SCHEDULER)
    attest_id = (await scheduler.expect("attest")).attest_id
    await scheduler.hang_up()
    again, _ = await rig.workers.attach(Script())
    assert (await again.expect("attest")).attest_id == attest_id
    await again.say(attestation=part(attest_id))
    assert isinstance((await task)[SCHEDULER], SourceAttestation)


async def test_what_a_source_pushes_after_its_sign_is_taken_and_not_asked_for(rig):
    scheduler, _ = await rig.workers.attach(Script())
    await scheduler.records(*first_steps())
    await scheduler.sign(next_seq=3, held_attest_id=HELD)
    await eventually(lambda: rig.verifier.signs)
    task = asking(rig, SCHEDULER)
    await scheduler.say(attestation=part(HELD))
    answer = (await task)[SCHEDULER]
    assert answer.attest_id == HELD
    assert answer.generation == 1
    # Asked for afresh, the pushed one is no answer.
    task = asking(rig, SCHEDULER, origin=AttestationOrigin.FRESH)
    fresh = (await scheduler.expect("attest")).attest_id
    await scheduler.say(attestation=part(fresh, step=2))
    assert (await task)[SCHEDULER].step == 2


async def test_a_push_of_an_older_generation_is_no_answer(rig):
    scheduler, _ = await rig.workers.attach(Script())
    await scheduler.records(*first_steps())
    await scheduler.sign(next_seq=3, signs_seen=1)
    await scheduler.say(attestation=part(HELD))
    await scheduler.sign(next_seq=3, signs_seen=2)
    await eventually(lambda: len(rig.verifier.signs) == 2)
    task = asking(rig, SCHEDULER)
    await scheduler.say(attestation=part(HELD + 1, step=2))
    assert (await task)[SCHEDULER].step == 2


async def test_a_source_that_does_not_push_is_asked_when_half_the_time_is_over(rig):
    scheduler, _ = await rig.workers.attach(Script())
    await scheduler.records(*first_steps())
    await scheduler.sign(next_seq=3)
    await eventually(lambda: rig.verifier.signs)
    task = asking(rig, SCHEDULER, deadline_s=0.4)
    attest_id = (await scheduler.expect("attest")).attest_id
    await scheduler.say(attestation=part(attest_id))
    assert isinstance((await task)[SCHEDULER], SourceAttestation)


async def test_a_release_reaches_the_held_source(rig):
    scheduler, _ = await rig.workers.attach(Script())
    await scheduler.sign(next_seq=1, held_attest_id=HELD)
    await eventually(lambda: rig.worker().held)
    host, worker = rig.services.host, rig.worker()
    assert host.release(worker, SCHEDULER, HELD, Verdict.KV_MISMATCH, go=False)
    answer = await scheduler.expect("release")
    assert (answer.attest_id, answer.go) == (HELD, False)
    assert answer.verdict == types_pb2.VERDICT_KV_MISMATCH
    assert worker.held
    assert host.release(worker, SCHEDULER, HELD, Verdict.RESUMED_EXACT, go=True)
    assert (await scheduler.expect("release")).go
    assert not worker.held
    assert not host.release(worker, RANK, HELD, Verdict.RESUMED_EXACT, go=True)


async def test_a_hold_that_ends_by_itself_is_noticed(rig):
    scheduler, _ = await rig.workers.attach(Script())
    await scheduler.sign(next_seq=1, held_attest_id=HELD)
    await scheduler.beat(held=False)
    await scheduler.beat(held=True)
    await eventually(lambda: rig.worker().scheduler.hold_seen)
    assert rig.worker().held
    await scheduler.beat(held=False)
    await eventually(lambda: not rig.worker().held)


async def test_progress_is_told_and_bounded(rig):
    scheduler, _ = await rig.workers.attach(Script())
    host = rig.services.host
    waiting = asyncio.create_task(
        host.wait_progress(rig.worker(), lambda w: w.live.state.committed >= 1, 5.0)
    )
    await scheduler.records(*first_steps())
    assert await waiting
    assert not await host.wait_progress(rig.worker(), lambda w: w.live.state.committed >= 2, 0.02)
