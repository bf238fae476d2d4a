"""What happens at a restore: sign first, attestation at a boundary or idle, the hold."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from report_fakes import Script, wait_for
from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.attestations import (
    DueAttestation,
    Origin,
    RankBody,
    SchedulerBody,
    SessionKv,
)
from engine_adapters.report.identity import SourceKind
from engine_adapters.report.records import CommitRecord, WeightsRecord
from engine_adapters.report.reporter import HoldOutcome

HIGHEST_BIT = 1 << 63


def restore(reporter) -> None:
    """As if the process had been re-created: its start time is another one."""
    watch = reporter._watch
    with watch._lock:
        process = replace(watch.process, start_ticks=watch.process.start_ticks + 1)
        watch._read = lambda: process
        watch._polled = watch._looked = 0


def policy(**fields) -> pb.HoldPolicy:
    fields = {"mode": pb.HOLD_MODE_VERDICT, "deadline_ms": 5_000} | fields
    return pb.HoldPolicy(**fields)


def attached(start_sidecar, make_reporter, script=None, **settings):
    sidecar = start_sidecar(script or Script(policy=policy()))
    reporter = make_reporter(sidecar.address, **settings)
    wait_for(lambda: reporter.counters.connects == 1, "attached")
    return sidecar, reporter


def in_thread(call):
    """Runs the call; a function that waits for its result."""
    box = []
    thread = threading.Thread(target=lambda: box.append(call()), daemon=True)
    thread.start()

    def result():
        thread.join(10)
        assert box, "still running"
        return box[0]

    return result


def test_a_sign_comes_first_and_its_attestation_after_the_records_before_it(
    start_sidecar, make_reporter
):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    reporter.put(CommitRecord(step=1))
    reporter.note_step(1)
    wait_for(lambda: reporter._outbox.acked == 1, "durable")
    before = len(sidecar.messages)
    restore(reporter)
    reporter.put(CommitRecord(step=2))
    due = reporter.due()
    assert due.origin is Origin.SIGN
    assert due.hold
    assert due.weights
    reporter.attest(due, RankBody(kv=()), step=2, idle=False)
    reporter.put(CommitRecord(step=3))
    wait_for(lambda: sidecar.durable == 3, "all there")
    after = [m for _, m in sidecar.messages[before:] if m.WhichOneof("message") != "heartbeat"]
    assert [m.WhichOneof("message") for m in after] == [
        "sign",
        "records",
        "attestation",
        "records",
    ]
    sign = after[0].sign
    assert sign.kind == pb.SIGN_KIND_PROCESS_RECREATED
    assert sign.held_attest_id == due.attest_id
    assert sign.held_attest_id & HIGHEST_BIT
    assert sign.signs_seen == 1
    assert sign.step == 1
    assert list(sign.fingerprint.names) == ["engine", "kernel"]
    assert [r.commit.step for r in after[1].records.records] == [2]
    part = after[2].attestation
    assert (part.attest_id, part.step, part.last, part.idle) == (due.attest_id, 2, True, False)
    assert reporter.due() is None


def test_the_sending_thread_alone_sends_the_sign_before_anything_else(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    reporter._ticker.stop()
    wait_for(lambda: "tokenwitness-ticker" not in {t.name for t in threading.enumerate()}, "alone")
    before = len(sidecar.messages)
    with reporter._outgoing._lock:
        # The sender is kept out until the record is there and the process another one.
        reporter.put(CommitRecord(step=1))
        restore(reporter)
    wait_for(lambda: sidecar.durable == 1, "record")
    kinds = [m.WhichOneof("message") for _, m in sidecar.messages[before:]]
    assert kinds[0] == "sign"
    assert kinds.count("sign") == 1
    assert reporter.due().origin is Origin.SIGN


def test_hello_and_sign_name_the_generation_that_was_told_last(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    assert sidecar.of_kind("hello")[0].hello.generation == 0
    # By an Ack: the generation that this source's own sign opened.
    sidecar.script.generation = 3
    restore(reporter)
    wait_for(lambda: sidecar.of_kind("sign"), "first sign")
    assert sidecar.of_kind("sign")[0].sign.generation == 0
    sidecar.ack(0)
    wait_for(lambda: reporter._outgoing.generation == 3, "told by the ack")
    restore(reporter)
    wait_for(lambda: len(sidecar.of_kind("sign")) == 2, "second sign")
    assert sidecar.of_kind("sign")[1].sign.generation == 3
    # By a Welcome; another ledger may even say less.
    sidecar.script.generation = 1
    sidecar.drop_streams()
    wait_for(lambda: reporter.counters.connects == 2, "attached again")
    assert sidecar.of_kind("hello")[1].hello.generation == 3
    assert reporter._outgoing.generation == 1


def test_an_acknowledgement_of_an_older_stream_tells_no_generation(start_sidecar, make_reporter):
    _, reporter = attached(start_sidecar, make_reporter)
    stream = reporter._outgoing._stream
    reporter._outgoing.acked(stream - 1, 0, 9)
    assert reporter._outgoing.generation == 0
    reporter._outgoing.acked(stream, 0, 9)
    assert reporter._outgoing.generation == 9


def test_an_unheard_sign_makes_a_refused_source_knock_soon(start_sidecar, make_reporter):
    import grpc

    sidecar, reporter = attached(start_sidecar, make_reporter, kind=SourceKind.SCHEDULER)
    sidecar.script.refuse = grpc.StatusCode.ALREADY_EXISTS
    sidecar.drop_streams()
    restore(reporter)
    wait_for(lambda: sidecar.streams >= 2, "refused")
    sidecar.script.refuse = None
    wait_for(lambda: sidecar.of_kind("sign"), "told soon", limit_s=5)


def test_a_scheduler_attests_and_holds_as_ranks_do(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter, kind=SourceKind.SCHEDULER)
    restore(reporter)
    due = reporter.due()
    reporter.attest(due, SchedulerBody(committed_step=4, sessions=()), step=5, idle=False)
    wait_for(lambda: sidecar.parts(due.attest_id), "attestation")
    assert sidecar.parts(due.attest_id)[0].scheduler.committed_step == 4
    assert sidecar.of_kind("sign")[0].sign.held_attest_id == due.attest_id
    outcome = in_thread(lambda: reporter.hold(due))
    sidecar.release(due.attest_id, go=True)
    assert outcome() is HoldOutcome.RELEASED


def test_a_hold_ends_with_the_release(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    restore(reporter)
    due = reporter.due()
    reporter.attest(due, RankBody(kv=()), step=1, idle=False)
    outcome = in_thread(lambda: reporter.hold(due))
    wait_for(lambda: any(m.heartbeat.held for m in sidecar.of_kind("heartbeat")), "held beat")
    sidecar.release(due.attest_id ^ 1, go=True)
    sidecar.release(due.attest_id, go=True)
    assert outcome() is HoldOutcome.RELEASED
    assert not reporter._heartbeat().held


def test_a_release_may_come_before_the_engine_waits(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    restore(reporter)
    due = reporter.due()
    wait_for(lambda: sidecar.of_kind("sign"), "sign")
    sidecar.release(due.attest_id, go=True)
    assert reporter.hold(due) is HoldOutcome.RELEASED


def test_fail_open_goes_on_at_the_deadline(start_sidecar, make_reporter):
    script = Script(policy=policy(deadline_ms=100, closed_limit_ms=60_000))
    _, reporter = attached(start_sidecar, make_reporter, script)
    restore(reporter)
    assert reporter.hold(reporter.due()) is HoldOutcome.TIMED_OUT


def test_fail_closed_stays_to_its_limit(start_sidecar, make_reporter):
    script = Script(policy=policy(deadline_ms=50, fail_closed=True, closed_limit_ms=400))
    _, reporter = attached(start_sidecar, make_reporter, script)
    restore(reporter)
    due = reporter.due()
    began = time.monotonic()
    assert reporter.hold(due) is HoldOutcome.LIMIT_REACHED
    assert time.monotonic() - began >= 0.4


def test_told_to_stay_the_engine_stays_to_the_limit_also_when_it_fails_open(
    start_sidecar, make_reporter
):
    script = Script(policy=policy(deadline_ms=100, closed_limit_ms=500))
    sidecar, reporter = attached(start_sidecar, make_reporter, script)
    restore(reporter)
    due = reporter.due()
    wait_for(lambda: sidecar.of_kind("sign"), "sign")
    sidecar.release(due.attest_id, go=False)
    wait_for(lambda: reporter._duties._release.value == "stay", "heard")
    assert reporter.hold(due) is HoldOutcome.LIMIT_REACHED


def test_without_a_sidecar_a_hold_ends_at_its_deadline(start_sidecar, make_reporter):
    script = Script(policy=policy(deadline_ms=300))
    sidecar, reporter = attached(start_sidecar, make_reporter, script)
    sidecar.stop()
    restore(reporter)
    due = reporter.due()
    assert due.hold
    assert reporter.hold(due) is HoldOutcome.TIMED_OUT


@pytest.mark.parametrize(("fail", "holds"), [("open", False), ("closed", True)])
def test_a_source_that_no_sidecar_ever_answered_holds_only_if_it_fails_closed(
    make_reporter, fail, holds
):
    reporter = make_reporter("127.0.0.1:1", hold_fail=fail)
    restore(reporter)
    assert reporter.due().hold is holds


def test_another_restore_during_a_hold_is_a_hold_of_its_own(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    restore(reporter)
    first = reporter.due()
    outcome = in_thread(lambda: reporter.hold(first))
    restore(reporter)
    assert outcome() is HoldOutcome.SUPERSEDED
    second = reporter.due()
    assert second.attest_id != first.attest_id
    outcome = in_thread(lambda: reporter.hold(second))
    wait_for(lambda: len(sidecar.of_kind("sign")) == 2, "second sign")
    sidecar.release(second.attest_id, go=True)
    assert outcome() is HoldOutcome.RELEASED


def test_closing_ends_a_hold(start_sidecar, make_reporter):
    _, reporter = attached(start_sidecar, make_reporter)
    restore(reporter)
    due = reporter.due()
    outcome = in_thread(lambda: reporter.hold(due))
    reporter.close(0.1)
    assert outcome() is HoldOutcome.NOT_HELD


def test_a_hold_is_told_again_on_a_new_stream(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    restore(reporter)
    due = reporter.due()
    reporter.attest(due, RankBody(kv=()), step=1, idle=False)
    outcome = in_thread(lambda: reporter.hold(due))
    wait_for(lambda: sidecar.parts(due.attest_id), "attested")
    sidecar.drop_streams()
    wait_for(lambda: len(sidecar.parts(due.attest_id)) == 2, "attested again")
    assert sidecar.kinds(2)[:2] == ["hello", "sign"]
    assert sidecar.of_kind("sign")[1].sign.held_attest_id == due.attest_id
    sidecar.release(due.attest_id, go=True)
    assert outcome() is HoldOutcome.RELEASED


def test_a_hold_is_told_again_even_when_its_attestation_had_arrived(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    restore(reporter)
    due = reporter.due()
    reporter.attest(due, RankBody(kv=()), step=1, idle=False)
    reporter.put(CommitRecord(step=2))
    wait_for(lambda: reporter._outbox.acked == 1, "a record after it is acknowledged")
    sidecar.drop_streams()
    # The sidecar that answers now may be another one, which knows of no hold.
    wait_for(lambda: len(sidecar.parts(due.attest_id)) == 2, "attested again")
    assert sidecar.kinds(2)[:2] == ["hello", "sign"]
    sidecar.release(due.attest_id, go=True)
    assert reporter.hold(due) is HoldOutcome.RELEASED


def test_an_answered_attestation_is_not_told_again(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    due = DueAttestation(3, weights=False, hold=False, origin=Origin.REQUEST)
    reporter.attest(due, RankBody(kv=()), step=1, idle=False)
    wait_for(lambda: sidecar.parts(3), "attested")
    reporter.put(CommitRecord(step=2))
    wait_for(lambda: reporter._outbox.acked == 1, "a record after it is acknowledged")
    sidecar.drop_streams()
    reporter.put(CommitRecord(step=3))
    wait_for(lambda: sidecar.durable == 2, "goes on")
    assert sidecar.kinds(2) == ["hello", "records"]


def test_a_hello_after_an_unheard_sign_says_where_the_memory_branched_off(
    start_sidecar, make_reporter
):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    for step in range(1, 11):
        reporter.put(CommitRecord(step=step))
        reporter.note_step(step)
    wait_for(lambda: reporter._outbox.acked == 10, "durable")
    sidecar.stop()
    restore(reporter)
    reporter.attest(reporter.due(), RankBody(kv=()), step=10, idle=False)
    for step in range(11, 21):
        reporter.put(CommitRecord(step=step))
        reporter.note_step(step)
    later = start_sidecar(port=sidecar.port)
    later.ledger.update(sidecar.ledger)
    wait_for(lambda: later.durable == 20, "all there")
    hello = later.messages[0][1].hello
    assert (hello.next_seq, hello.step, hello.signs_seen) == (11, 10, 1)
    assert later.kinds(1)[:4] == ["hello", "sign", "attestation", "records"]
    assert later.of_kind("sign")[0].sign.next_seq == 11
    # Heard now: the next stream stands where the source stands.
    wait_for(lambda: reporter._outbox.acked == 20, "acknowledged")
    later.drop_streams()
    wait_for(lambda: later.streams == 2, "again")
    second = next(m.hello for n, m in later.messages if n == 2)
    assert (second.next_seq, second.step) == (21, 20)


def test_requests_are_answered_at_a_boundary(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    sidecar.ask(77, weights=True)
    wait_for(lambda: reporter._duties.attention, "request heard")
    due = reporter.due()
    assert (due.attest_id, due.origin, due.hold, due.weights) == (77, Origin.REQUEST, False, True)
    kv = SessionKv(3, "s", 0, 0, np.arange(8, dtype=np.int64).reshape(4, 2))
    weights = WeightsRecord(("a",), np.array([-1], dtype=np.int64), (4,))
    reporter.attest(due, RankBody(kv=(kv,), weights=weights), step=9, idle=False)
    wait_for(lambda: sidecar.parts(77), "answered")
    [part] = sidecar.parts(77)
    assert part.step == 9
    assert np.frombuffer(part.rank.kv[0].digests, "<u8").tolist() == list(range(8))
    assert part.rank.weights.digests == [2**64 - 1]
    assert part.rank.kv_groups[0].block_size == 16


def test_an_idle_engine_attests_from_the_reporters_thread(start_sidecar, make_reporter):
    asked = []

    def idle(due):
        asked.append(due)
        # Not safe at first: a step was running.
        return None if len(asked) < 3 else RankBody(kv=())

    sidecar, reporter = attached(start_sidecar, make_reporter, idle=idle, idle_after_ms=20)
    reporter.note_step(41)
    sidecar.ask(5)
    wait_for(lambda: sidecar.parts(5), "answered")
    assert len(asked) == 3
    assert (sidecar.parts(5)[0].idle, sidecar.parts(5)[0].step) == (True, 41)
    assert reporter.due() is None


def test_after_an_idle_attestation_only_the_hold_is_left(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter, idle_after_ms=20)
    restore(reporter)
    wait_for(lambda: sidecar.of_kind("attestation"), "attested idle")
    due = reporter.due()
    assert due.attested
    assert due.hold
    reporter.attest(due, RankBody(kv=()), step=1, idle=False)
    outcome = in_thread(lambda: reporter.hold(due))
    sidecar.release(due.attest_id, go=True)
    assert outcome() is HoldOutcome.RELEASED
    assert len(sidecar.parts(due.attest_id)) == 1


def test_an_idle_hold_that_was_released_holds_nobody(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter, idle_after_ms=20)
    restore(reporter)
    wait_for(lambda: sidecar.of_kind("attestation"), "attested idle")
    sidecar.release(sidecar.of_kind("sign")[0].sign.held_attest_id, go=True)
    wait_for(lambda: not reporter._duties.attention, "released")
    assert reporter.due() is None


def test_the_engine_wins_over_an_idle_reading(start_sidecar, make_reporter):
    reading, go_on = threading.Event(), threading.Event()

    def idle(due):
        reading.set()
        assert go_on.wait(5)
        return RankBody(kv=())

    sidecar, reporter = attached(start_sidecar, make_reporter, idle=idle, idle_after_ms=20)
    sidecar.ask(6)
    assert reading.wait(5)
    due = reporter.due()
    assert due.attest_id == 6
    reporter.attest(due, RankBody(kv=()), step=2, idle=False)
    go_on.set()
    wait_for(lambda: sidecar.parts(6), "answered")
    reporter.close(2)
    assert [part.idle for part in sidecar.parts(6)] == [False]


def test_a_request_nobody_serves_is_answered_with_why(start_sidecar, make_reporter):
    sidecar, _ = attached(start_sidecar, make_reporter, idle=lambda due: None, idle_after_ms=20)
    sidecar.ask(8, deadline_ms=100)
    wait_for(lambda: sidecar.parts(8), "answered")
    assert "no step boundary" in sidecar.parts(8)[0].error
    assert sidecar.parts(8)[0].last


def test_too_many_requests_are_refused_one_by_one(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    for attest_id in range(1, 10):
        sidecar.ask(attest_id)
    wait_for(lambda: sidecar.parts(9), "the ninth is refused")
    assert "too many" in sidecar.parts(9)[0].error
    assert [reporter.due().attest_id for _ in range(8)] == list(range(1, 9))


def test_a_failure_to_attest_is_told(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    sidecar.ask(4)
    wait_for(lambda: reporter._duties.attention, "heard")
    reporter.attest_failed(reporter.due(), "the layout is not known")
    wait_for(lambda: sidecar.parts(4), "told")
    assert sidecar.parts(4)[0].error == "the layout is not known"


def test_attestations_that_nobody_takes_give_way_and_say_so(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    sidecar.stop()
    for attest_id in range(1, 7):
        due = DueAttestation(attest_id, weights=False, hold=False, origin=Origin.REQUEST)
        reporter.attest(due, RankBody(kv=()), step=1, idle=False)
    later = start_sidecar(port=sidecar.port)
    wait_for(lambda: later.parts(6), "the newest")
    errors = {i: later.parts(i)[0].error for i in range(1, 7)}
    assert [bool(errors[i]) for i in range(1, 7)] == [True, True, False, False, False, False]
    assert "gave way" in errors[1]


def test_an_attestation_that_cannot_be_encoded_says_so(start_sidecar, make_reporter):
    sidecar, reporter = attached(start_sidecar, make_reporter)
    kv = SessionKv(1, "s", 0, 0, np.zeros((2, 2), dtype=np.int16))
    due = DueAttestation(3, weights=False, hold=False, origin=Origin.REQUEST)
    reporter.attest(due, RankBody(kv=(kv,)), step=1, idle=False)
    wait_for(lambda: sidecar.parts(3), "told")
    assert "8 bytes wide" in sidecar.parts(3)[-1].error
    assert sidecar.parts(3)[-1].last


def test_an_attestation_that_was_cut_short_is_sent_again_from_its_first_part(
    start_sidecar, make_reporter
):
    # Messages of the first stream: the Hello, a part, and then it is cut.
    sidecar, reporter = attached(
        start_sidecar, make_reporter, Script(drop_after=[3], policy=policy())
    )
    kv = [SessionKv(row, f"s{row}", 0, 0, np.zeros((30_000, 4), np.int64)) for row in range(4)]
    due = DueAttestation(3, weights=False, hold=False, origin=Origin.REQUEST)
    reporter.attest(due, RankBody(kv=kv), step=1, idle=False)
    wait_for(lambda: any(part.last for part in sidecar.parts(3)), "whole")
    second = [m.attestation.part for n, m in sidecar.messages if n == 2 and m.attestation.attest_id]
    assert sidecar.streams == 2
    assert second == list(range(len(second)))
    assert len(second) >= 4
