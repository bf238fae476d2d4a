"""Noticing restores: generations, gates, cuts, restarts."""

import asyncio
from pathlib import Path

import grpc
import pytest
from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.core.events import SourceKey, SourceKind
from sidecar.core.verdicts import Verdict
from sidecar.gate import GatePosition
from sidecar.identity import RestoreEvidence
from sidecar.ledger.errors import LedgerFullError, StateNotRecordedError
from sidecar.ledger.values import StoredVerdict
from sidecar.wire import codec
from tests.unit.services.conftest import worker_verdict
from tests.unit.services.scripted import (
    Script,
    commit,
    first_steps,
    launch,
    process,
    rank_step,
)
from tests.unit.services.waiting import eventually

SCHEDULER = Script()
RANK = Script(rank=0, nonce=8)
HELD = (1 << 63) | 5


async def whole(rig):
    scheduler, _ = await rig.workers.attach(SCHEDULER)
    rank, _ = await rig.workers.attach(RANK)
    await scheduler.records(*first_steps(steps=2))
    await rank.records(rank_step(1, 1), rank_step(2, 2))
    await scheduler.acked(4)
    await rank.acked(2)
    return scheduler, rank


def gate(rig):
    return rig.services.gates.state("w")


async def test_the_gate_opens_when_the_last_rank_attaches_and_closes_when_one_goes(rig):
    await rig.workers.attach(SCHEDULER)
    assert gate(rig).reason == "not attached: rank 0"
    rank, _ = await rig.workers.attach(RANK)
    assert gate(rig).open
    await rank.hang_up()
    await eventually(lambda: gate(rig).reason == "not attached: rank 0")
    await rig.workers.attach(RANK)
    assert gate(rig).open


async def test_a_sign_closes_the_gate_and_opens_one_generation_for_all_sources(rig):
    scheduler, rank = await whole(rig)
    before = rig.services.host.ledger.cut(rig.worker().scheduler.source_id)
    await scheduler.sign(next_seq=5, held_attest_id=HELD, gap_ns=9_000_000_000)
    await eventually(lambda: rig.verifier.signs)
    assert not gate(rig).open
    assert "not judged" in gate(rig).reason
    # Records between the two signs, and after them, are late.
    await rank.records(rank_step(3, 3))
    await rank.acked(3)
    await rank.sign(next_seq=4, process=process(), signs_seen=1, held_attest_id=HELD + 1)
    await eventually(lambda: len(rig.verifier.signs) == 2)
    worker = rig.worker()
    assert worker.generation == 1
    assert [(name, generation, source) for name, generation, source, _ in rig.verifier.signs] == [
        ("w", 1, "scheduler"),
        ("w", 1, "rank 0"),
    ]
    assert {source.cut for source in worker.sources.values()} == {before}
    assert worker.held == {
        SourceKey(SourceKind.SCHEDULER): HELD,
        SourceKey(SourceKind.RANK, 0): HELD + 1,
    }
    notice = rig.verifier.signs[0][3]
    assert notice.evidence is RestoreEvidence.STOOD_STILL
    assert notice.sign.gap_ns == 9_000_000_000


async def test_a_source_that_signs_again_opens_the_next_generation(rig):
    scheduler, rank = await whole(rig)
    await scheduler.sign(next_seq=5, signs_seen=1)
    await scheduler.sign(next_seq=5, signs_seen=2)
    await eventually(lambda: len(rig.verifier.signs) == 2)
    await rank.sign(next_seq=3, signs_seen=2)
    await eventually(lambda: len(rig.verifier.signs) == 3)
    assert [generation for _, generation, _, _ in rig.verifier.signs] == [1, 2, 2]
    ledger = rig.services.host.ledger
    for source in rig.worker().sources.values():
        assert [each.generation for each in ledger.generations(source.source_id)] == [0, 1, 2]


async def test_a_sign_long_after_the_generation_was_opened_opens_the_next(rig):
    scheduler, rank = await whole(rig)
    await scheduler.sign(next_seq=5)
    await eventually(lambda: rig.verifier.signs)
    rig.clock.ahead += 21
    await rank.sign(next_seq=3)
    await eventually(lambda: len(rig.verifier.signs) == 2)
    assert rig.worker().generation == 2


async def test_a_rollback_starts_from_the_state_as_of_the_branch(rig):
    scheduler, _ = await whole(rig)
    await scheduler.hang_up()
    # The image was taken after step 1: two records, one token.
    restored, welcome = await rig.workers.attach(
        SCHEDULER.but(next_seq=3, oldest_seq=3, process=process(pid=101), signs_seen=1)
    )
    assert (welcome.generation, welcome.durable_seq) == (1, 2)
    (_, generation, source, notice) = rig.verifier.signs[0]
    assert (generation, source, notice.evidence) == (1, "scheduler", RestoreEvidence.REATTACH)
    assert "behind the record" in notice.why
    await eventually(lambda: not rig.worker().live.unknown)
    assert list(rig.worker().live.sessions[0].tokens) == [1, 2, 3, 10]
    await restored.records(launch(3, 2, rows=[0], starts=[3]), commit(4, 2, tokens=[77]))
    await restored.acked(4)
    assert list(rig.worker().live.sessions[0].tokens) == [1, 2, 3, 10, 77]
    # The future that was is still there.
    ledger = rig.services.host.ledger
    source_id = rig.worker().scheduler.source_id
    old = await asyncio.to_thread(ledger.scheduler_state, source_id, 0, 2, 2, 1 << 60)
    assert list(old.session("s").tokens) == [1, 2, 3, 10, 12]


async def restore_older_then_newer_image(rig):
    """Image A holds 2 steps, image B 6, the run they are of went to 8. A is restored and goes on
    otherwise for a step, then B. B's scheduler and what it was told when it came.
    """
    scheduler, _ = await rig.workers.attach(SCHEDULER)
    await scheduler.records(*first_steps(steps=8))
    await scheduler.acked(16)
    await scheduler.hang_up()
    image_a = SCHEDULER.but(next_seq=5, oldest_seq=5, process=process(pid=101), signs_seen=1)
    restored, welcome = await rig.workers.attach(image_a)
    assert (welcome.generation, welcome.durable_seq) == (1, 4)
    await restored.records(launch(5, 3, rows=[0], starts=[4]), commit(6, 3, tokens=[77]))
    await restored.acked(6)
    await restored.hang_up()
    image_b = SCHEDULER.but(next_seq=13, oldest_seq=13, process=process(pid=102), signs_seen=1)
    return await rig.workers.attach(image_b)


async def test_an_image_of_an_older_generation_goes_on_from_its_own_history(rig):
    restored, welcome = await restore_older_then_newer_image(rig)
    assert (welcome.generation, welcome.durable_seq) == (2, 12)
    worker = rig.worker()
    ledger = rig.services.host.ledger
    newest = ledger.generations(worker.scheduler.source_id)[-1]
    assert (newest.generation, newest.parent, newest.first_seq) == (2, 0, 13)
    await eventually(lambda: not worker.live.unknown)
    assert list(worker.live.sessions[0].tokens) == [1, 2, 3, 10, 12, 13, 14, 15, 16]
    await restored.records(launch(13, 7, rows=[0], starts=[8]), commit(14, 7, tokens=[55]))
    await restored.acked(14)
    assert list(worker.live.sessions[0].tokens)[-2:] == [16, 55]
    assert worker.hole_records == 0
    # What it went back from is the run that it is an image of: that came to step 8.
    assert ledger.newest_step_of_branch(worker.scheduler.source_id, 2) == 8


async def test_a_restarted_sidecar_remembers_what_a_generation_branched_off_from(start_rig):
    rig = await start_rig()
    await restore_older_then_newer_image(rig)
    await rig.close()
    rig = await start_rig()
    again = SCHEDULER.but(next_seq=13, process=process(pid=102), signs_seen=1, generation=2)
    _, welcome = await rig.workers.attach(again)
    assert (welcome.generation, welcome.durable_seq) == (2, 12)
    assert (rig.worker().scheduler.parent, rig.worker().hole_records) == (0, 0)


async def test_a_memory_that_does_not_know_what_it_was_told_was_restored(rig):
    """As a virtual machine's image of before the first restore: same process, same count of signs,
    ahead of the record.
    """
    scheduler, _ = await rig.workers.attach(SCHEDULER)
    await scheduler.records(*first_steps(steps=8))
    await scheduler.acked(16)
    await scheduler.hang_up()
    restored, welcome = await rig.workers.attach(SCHEDULER.but(next_seq=5, signs_seen=1))
    assert welcome.generation == 1
    await restored.beat()
    await eventually(lambda: rig.worker().scheduler.told_generation == 1)
    await restored.hang_up()
    _, welcome = await rig.workers.attach(SCHEDULER.but(next_seq=13, signs_seen=1))
    assert (welcome.generation, welcome.durable_seq) == (2, 12)
    assert "knows of generation 0" in rig.verifier.signs[-1][3].why


async def test_a_source_is_told_at_once_of_the_generation_that_its_sign_opened(rig):
    scheduler, _ = await whole(rig)
    await scheduler.sign(next_seq=5)
    told = await scheduler.expect("ack")
    assert (told.seq, told.generation) == (4, 1)
    await scheduler.records(launch(5, 3, rows=[0], starts=[4]), commit(6, 3, tokens=[9]))
    told = await scheduler.expect("ack")
    while told.seq < 6:
        told = await scheduler.expect("ack")
    assert told.generation == 1
    # It signs again before it has read that: what it sent meanwhile is in generation 1.
    await scheduler.sign(next_seq=7, signs_seen=2, generation=0)
    await eventually(lambda: rig.worker().generation == 2)
    newest = rig.services.host.ledger.generations(rig.worker().scheduler.source_id)[-1]
    assert (newest.parent, newest.first_seq) == (1, 7)


async def test_a_sign_may_name_an_older_generation_too(rig):
    """A stream that survived a rollback: a virtual machine with its sockets."""
    scheduler, _ = await whole(rig)
    await scheduler.sign(next_seq=3)
    await scheduler.records(launch(3, 2, rows=[0], starts=[3]), commit(4, 2, tokens=[77]))
    await scheduler.acked(4)
    await scheduler.sign(next_seq=5, signs_seen=2, generation=0)
    await eventually(lambda: rig.worker().generation == 2)
    assert rig.worker().scheduler.parent == 0
    await eventually(lambda: not rig.worker().live.unknown)
    assert list(rig.worker().live.sessions[0].tokens) == [1, 2, 3, 10, 12]


async def test_a_generation_that_the_ledger_does_not_have_means_the_newest(rig):
    scheduler, _ = await whole(rig)
    await scheduler.hang_up()
    await rig.workers.attach(SCHEDULER.but(next_seq=5, process=process(pid=101), generation=9))
    newest = rig.services.host.ledger.generations(rig.worker().scheduler.source_id)[-1]
    assert (newest.generation, newest.parent) == (1, 0)


async def test_the_sign_behind_a_hello_of_the_same_restore_opens_nothing_more(rig):
    scheduler, _ = await whole(rig)
    await scheduler.hang_up()
    restored, _ = await rig.workers.attach(SCHEDULER.but(next_seq=5, process=process(pid=101)))
    await restored.sign(
        next_seq=5,
        process=process(pid=101),
        signs_seen=1,
        held_attest_id=HELD,
        kind=pb.SIGN_KIND_PROCESS_RECREATED,
    )
    await eventually(lambda: len(rig.verifier.signs) == 2)
    assert [generation for _, generation, _, _ in rig.verifier.signs] == [1, 1]
    assert rig.worker().held == {SourceKey(SourceKind.SCHEDULER): HELD}
    # The stream breaks, and the same sign is told again.
    await restored.hang_up()
    again, welcome = await rig.workers.attach(
        SCHEDULER.but(next_seq=5, process=process(pid=101), signs_seen=1, generation=1)
    )
    assert welcome.generation == 1
    await again.sign(next_seq=5, process=process(pid=101), signs_seen=1, held_attest_id=HELD)
    await eventually(lambda: len(rig.verifier.signs) >= 3)
    assert rig.worker().generation == 1


async def test_another_incarnation_is_a_restart_when_the_first_is_gone(rig):
    scheduler, rank = await whole(rig)
    await scheduler.hang_up()
    await rank.hang_up()
    await eventually(lambda: not rig.services.registry.any_alive(rig.worker()))
    _, welcome = await rig.workers.attach(SCHEDULER.but(incarnation="life-2", nonce=1))
    assert (welcome.generation, welcome.durable_seq) == (0, 0)
    assert rig.verifier.restarts == [("w", "life-1", "life-2")]
    await rig.workers.attach(RANK.but(incarnation="life-2", nonce=2))
    assert len(rig.verifier.restarts) == 1
    assert not gate(rig).open
    assert "restarted" in gate(rig).reason


async def test_another_nonce_is_other_memory(rig):
    scheduler, _ = await whole(rig)
    await scheduler.hang_up()
    fresh, welcome = await rig.workers.attach(SCHEDULER.but(nonce=99))
    assert welcome.durable_seq == 0
    assert rig.verifier.restarts == [("w", "life-1", "life-1")]
    assert not gate(rig).open
    await fresh.records(*first_steps("other"))
    await fresh.acked(2)
    assert [each.session_id for each in rig.worker().live.sessions] == ["other"]


async def test_other_memory_that_the_ledger_does_not_take_is_a_restart_when_it_comes_again(
    rig, monkeypatch
):
    scheduler, _ = await whole(rig)
    await scheduler.hang_up()

    def full(*_, **__):
        raise LedgerFullError(Path("ledger"), None)

    monkeypatch.setattr(rig.services.host.ledger, "open_generation", full)
    code, _ = await rig.workers.refused(SCHEDULER.but(nonce=99))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert rig.verifier.restarts == []
    assert not gate(rig).open
    assert rig.worker().scheduler.nonce == SCHEDULER.nonce
    monkeypatch.undo()
    fresh, welcome = await rig.workers.attach(SCHEDULER.but(nonce=99))
    assert (welcome.generation, welcome.durable_seq) == (1, 0)
    assert rig.verifier.restarts == [("w", "life-1", "life-1")]
    await fresh.records(*first_steps("other"))
    await fresh.acked(2)
    assert [each.session_id for each in rig.worker().live.sessions] == ["other"]
    # Once only.
    await fresh.hang_up()
    await rig.workers.attach(SCHEDULER.but(nonce=99, next_seq=3, generation=1))
    assert len(rig.verifier.restarts) == 1


async def test_a_pass_opens_the_gate_and_an_older_one_does_not(rig):
    scheduler, _ = await whole(rig)
    await scheduler.sign(next_seq=5, signs_seen=1)
    await scheduler.sign(next_seq=5, signs_seen=2)
    await eventually(lambda: len(rig.verifier.signs) == 2)
    host, worker = rig.services.host, rig.worker()
    assert not host.set_gate(worker, 1, GatePosition.OPEN, "")
    assert not gate(rig).open
    assert host.set_gate(worker, 2, GatePosition.CLOSED, "KV_MISMATCH rank 0")
    assert gate(rig).reason == "KV_MISMATCH rank 0"
    assert host.set_gate(worker, 2, GatePosition.OPEN, "")
    assert gate(rig).open


async def test_a_late_verdict_about_an_older_life_does_not_touch_the_gate(rig):
    scheduler, rank = await whole(rig)
    old = rig.worker()
    await scheduler.hang_up()
    await rank.hang_up()
    await eventually(lambda: not rig.services.registry.any_alive(old))
    await rig.workers.attach(SCHEDULER.but(incarnation="life-2"))
    assert not rig.services.host.set_gate(old, 5, GatePosition.OPEN, "")
    assert not gate(rig).open


async def test_a_silent_source_closes_the_gate_and_has_to_be_heard_for_a_while(rig):
    scheduler, _ = await whole(rig)
    assert gate(rig).open
    rig.clock.ahead += 5
    await eventually(lambda: not gate(rig).open)
    async with scheduler.beating():
        await eventually(lambda: gate(rig).reason == "not attached: rank 0")


async def test_a_silent_stream_goes_on_after_a_sign(rig):
    """What a frozen worker does: nothing for long, then a Sign on the stream that survived."""
    scheduler, _ = await whole(rig)
    rig.clock.ahead += 60
    await eventually(lambda: not gate(rig).open)
    await scheduler.sign(next_seq=5)
    await eventually(lambda: rig.verifier.signs)
    await scheduler.records(launch(5, 3, rows=[0], starts=[4]), commit(6, 3, tokens=[9]))
    await scheduler.acked(6)
    assert rig.worker().scheduler.generation == 1


@pytest.mark.parametrize("restored", [False, True], ids=["same process", "another process"])
async def test_a_restarted_sidecar_goes_on_from_the_ledger(start_rig, restored):
    rig = await start_rig()
    scheduler, _ = await whole(rig)
    await scheduler.hang_up()
    await rig.close()
    rig = await start_rig()
    script = SCHEDULER.but(next_seq=5)
    if restored:
        script = script.but(process=process(pid=101), signs_seen=1)
    again, welcome = await rig.workers.attach(script)
    assert (welcome.durable_seq, welcome.generation) == (4, int(restored))
    assert bool(rig.verifier.signs) is restored
    await eventually(lambda: not rig.worker().live.unknown)
    assert rig.worker().live.sessions[0].emitted == 5
    await again.records(launch(5, 3, rows=[0], starts=[4]), commit(6, 3, tokens=[9]))
    await again.acked(6)
    await rig.workers.attach(RANK.but(next_seq=3))
    assert gate(rig).open is not restored


async def test_a_restarted_sidecar_verifies_what_was_not_judged(start_rig):
    rig = await start_rig()
    scheduler, _ = await whole(rig)
    await scheduler.sign(next_seq=5, signs_seen=1)
    await eventually(lambda: rig.verifier.signs)
    await rig.close()
    rig = await start_rig()
    _, welcome = await rig.workers.attach(SCHEDULER.but(next_seq=5, signs_seen=1))
    assert welcome.generation == 1
    assert [generation for _, generation, _, _ in rig.verifier.signs] == [1]
    assert not gate(rig).open
    assert rig.services.host.set_gate(rig.worker(), 1, GatePosition.OPEN, "")


async def test_a_bad_verdict_keeps_the_gate_closed_over_a_restart_of_the_sidecar(start_rig):
    rig = await start_rig()
    await whole(rig)
    verdict = worker_verdict(verdict=Verdict.KV_MISMATCH, generation=0)
    payload = codec.encode_verdict(verdict).SerializeToString()
    stored = StoredVerdict("w", "v1", 1, payload)
    rig.services.host.ledger.put_verdict(stored).result(5)
    await rig.close()
    rig = await start_rig()
    await rig.workers.attach(SCHEDULER.but(next_seq=5))
    await rig.workers.attach(RANK.but(next_seq=3))
    assert not gate(rig).open
    assert "KV_MISMATCH" in gate(rig).reason


async def test_a_sign_that_the_ledger_does_not_take_is_said_again(rig, monkeypatch):
    """The gate is closed at once; nothing else has changed until the generation is written."""
    scheduler, _ = await whole(rig)
    ledger = rig.services.host.ledger

    def full(*_, **__):
        raise LedgerFullError(Path("ledger"), None)

    monkeypatch.setattr(ledger, "open_generation", full)
    await scheduler.sign(next_seq=5, process=process(pid=101))
    code, details = await scheduler.ended()
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "disk is full" in details
    assert not gate(rig).open
    assert rig.worker().generation == 0
    monkeypatch.undo()
    again, welcome = await rig.workers.attach(
        SCHEDULER.but(next_seq=5, process=process(pid=101), signs_seen=1)
    )
    assert welcome.generation == 1
    await again.records(launch(5, 3, rows=[0], starts=[4]), commit(6, 3, tokens=[9]))
    await again.acked(6)
    assert rig.services.host.set_gate(rig.worker(), 1, GatePosition.OPEN, "")


async def test_a_worker_that_is_gone_for_very_long_is_forgotten_and_recalled(rig):
    scheduler, rank = await whole(rig)
    await scheduler.hang_up()
    await rank.hang_up()
    await eventually(lambda: not rig.worker().attached)
    rig.clock.ahead += 3601
    await eventually(lambda: rig.worker() is None)
    assert gate(rig) is None
    _, welcome = await rig.workers.attach(SCHEDULER.but(next_seq=5))
    assert (welcome.durable_seq, welcome.generation) == (4, 0)
    assert not rig.verifier.signs


async def test_a_state_that_cannot_be_read_back_leaves_sessions_unknown(rig, monkeypatch):
    scheduler, _ = await whole(rig)
    await scheduler.records(launch(9, 9))
    await scheduler.ended()

    def gone(*_):
        raise StateNotRecordedError(1, 0, "newest", "retention removed it")

    rig.worker().live.stale = "a bad record"
    monkeypatch.setattr(rig.services.host.ledger, "newest_state", gone)
    again, _ = await rig.workers.attach(SCHEDULER.but(next_seq=5))
    await again.records(launch(5, 3, rows=[0], starts=[4]), commit(6, 3, tokens=[9]))
    await again.acked(6)
    assert "retention removed it" in rig.worker().live.unknown
    assert not rig.worker().live.sessions


async def test_watchers_are_told_of_changes_only(rig):
    await whole(rig)
    watcher = rig.services.hub.open("w")
    await asyncio.sleep(0.6)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watcher.next(), 0.01)
