"""The reporter against a scripted sidecar: what arrives, in what order, whatever happens."""

import socket
import threading
import time

import numpy as np
from report_fakes import Script, wait_for
from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.records import CommitRecord, LaunchRecord


def put_steps(reporter, first: int, last: int) -> None:
    for step in range(first, last + 1):
        reporter.put(CommitRecord(step=step, tokens=np.arange(4, dtype=np.uint32)))
        reporter.note_step(step)


def steps_in(ledger: dict) -> list[int]:
    """The step of each durable seq, in order; 0 for a missing one."""
    return [ledger[seq].commit.step for seq in sorted(ledger)]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_records_arrive_in_order_after_a_hello(sidecar, make_reporter):
    reporter = make_reporter(sidecar.address)
    put_steps(reporter, 1, 500)
    wait_for(lambda: sidecar.durable == 500, "all records durable")
    assert steps_in(sidecar.ledger) == list(range(1, 501))
    hello = sidecar.messages[0][1].hello
    assert hello.protocol == 1
    assert hello.worker == "w"
    assert hello.incarnation == "life-1"
    assert hello.nonce != 0
    assert list(hello.fingerprint.names) == ["engine", "kernel"]
    assert hello.process.start_ticks > 0
    assert hello.kv_groups[0].digest_layers == [1, 1]
    assert reporter.counters.errors == 0


def test_a_stream_that_is_cut_at_any_message_loses_nothing(start_sidecar, make_reporter):
    sidecar = start_sidecar(Script(drop_after=[2, 3, 4, 2]))
    reporter = make_reporter(sidecar.address)
    for first in range(1, 1001, 50):
        put_steps(reporter, first, first + 49)
        wait_for(lambda: reporter.counters.queued_bytes < 60_000, "queue drains")
    wait_for(lambda: sidecar.durable == 1000, "all records durable")
    assert steps_in(sidecar.ledger) == list(range(1, 1001))
    assert sidecar.streams >= 5
    assert reporter.counters.dropped_records == 0


def test_what_is_not_acknowledged_is_sent_again_and_what_is_is_not(start_sidecar, make_reporter):
    sidecar = start_sidecar(Script(acks=False))
    reporter = make_reporter(sidecar.address)
    put_steps(reporter, 1, 20)
    wait_for(lambda: sidecar.durable == 20, "all sent")
    assert reporter.counters.queued_bytes > 0
    sidecar.ack(12)
    sidecar.script.durable = 12
    wait_for(lambda: reporter._outbox.acked == 12, "ack is heard")
    sidecar.drop_streams()
    wait_for(lambda: sidecar.kinds(2) == ["hello", "records"], "sent again")
    again = [m for n, m in sidecar.messages if n == 2]
    assert again[0].hello.oldest_seq == 13
    assert again[0].hello.next_seq == 21
    assert [r.seq for r in again[1].records.records] == list(range(13, 21))


def test_sidecar_absent_then_there(start_sidecar, make_reporter, caplog):
    port = free_port()
    reporter = make_reporter(f"127.0.0.1:{port}")
    put_steps(reporter, 1, 100)
    wait_for(lambda: "no sidecar at" in caplog.text, "said so")
    sidecar = start_sidecar(port=port)
    wait_for(lambda: sidecar.durable == 100, "all records arrive")
    assert caplog.text.count("no sidecar at") == 1


def test_sidecar_killed_and_restarted_with_its_ledger(start_sidecar, make_reporter):
    first = start_sidecar()
    reporter = make_reporter(first.address)
    put_steps(reporter, 1, 50)
    wait_for(lambda: reporter._outbox.acked == 50, "first half is durable")
    first.stop()
    put_steps(reporter, 51, 90)
    second = start_sidecar(port=first.port)
    second.ledger.update(first.ledger)
    wait_for(lambda: second.durable == 90, "second half arrives")
    assert steps_in(second.ledger) == list(range(1, 91))


def test_a_lost_ledger_gets_one_hole_for_what_is_gone(start_sidecar, make_reporter):
    first = start_sidecar()
    reporter = make_reporter(first.address)
    put_steps(reporter, 1, 50)
    wait_for(lambda: reporter._outbox.acked == 50, "durable")
    first.stop()
    put_steps(reporter, 51, 60)
    second = start_sidecar(port=first.port)
    wait_for(lambda: second.durable == 60, "the rest arrives")
    assert second.ledger[1].hole.count == 50
    assert (second.ledger[1].hole.first_step, second.ledger[1].hole.last_step) == (1, 50)
    assert steps_in(second.ledger) == [0] * 50 + list(range(51, 61))


def test_overflow_is_one_hole_in_its_place(start_sidecar, make_reporter):
    port = free_port()
    reporter = make_reporter(f"127.0.0.1:{port}", queue_bytes=100_000)
    put_steps(reporter, 1, 2_000)
    counters = reporter.counters
    assert counters.dropped_records > 1_000
    assert counters.queued_bytes <= 100_000
    sidecar = start_sidecar(port=port)
    wait_for(lambda: sidecar.durable == 2_000, "what is left arrives")
    hole = sidecar.ledger[1].hole
    assert hole.count == counters.dropped_records
    assert (hole.first_step, hole.last_step) == (1, hole.count)
    assert steps_in(sidecar.ledger)[hole.count :] == list(range(hole.count + 1, 2_001))
    assert reporter.counters.holes_sent == 1


def test_a_record_that_cannot_be_encoded_is_a_hole_of_one(sidecar, make_reporter):
    reporter = make_reporter(sidecar.address)
    put_steps(reporter, 1, 2)
    reporter.put(LaunchRecord(step=3, rows=[-1], starts=[0]))
    reporter.put(CommitRecord(step=4, tokens=17))
    put_steps(reporter, 5, 6)
    wait_for(lambda: sidecar.durable == 6, "the others arrive")
    assert sidecar.ledger[3].hole.count == sidecar.ledger[4].hole.count == 1
    assert sidecar.ledger[3].hole.first_step == 3
    assert "could not be encoded" in sidecar.ledger[3].hole.reason
    assert reporter.counters.errors == 2


def test_a_record_too_large_for_a_message_is_a_hole(sidecar, make_reporter):
    reporter = make_reporter(sidecar.address)
    reporter.put(CommitRecord(step=1, tokens=np.full(2_000_000, 1 << 20, dtype=np.uint32)))
    put_steps(reporter, 2, 3)
    wait_for(lambda: sidecar.durable == 3, "the others arrive")
    assert "too many to send" in sidecar.ledger[1].hole.reason


def test_twenty_thousand_records_go_through(sidecar, make_reporter):
    reporter = make_reporter(sidecar.address)
    put_steps(reporter, 1, 20_000)
    wait_for(lambda: sidecar.durable == 20_000, "all durable", limit_s=20)
    assert steps_in(sidecar.ledger) == list(range(1, 20_001))
    assert len(sidecar.of_kind("records")) < 1_000


def test_close_sends_what_is_left(sidecar, make_reporter):
    reporter = make_reporter(sidecar.address)
    wait_for(lambda: sidecar.streams == 1, "attached")
    put_steps(reporter, 1, 300)
    reporter.close(5)
    assert sidecar.durable == 300
    reporter.put(CommitRecord(step=301))
    assert reporter.counters.records == 300


def test_a_source_that_is_refused_says_the_remedy_once(start_sidecar, make_reporter, caplog):
    import grpc

    from engine_adapters.report import stream

    sidecar = start_sidecar(Script(refuse=grpc.StatusCode.ALREADY_EXISTS))
    reporter = make_reporter(sidecar.address)
    wait_for(lambda: "ALREADY_EXISTS" in caplog.text, "said so")
    assert "set another `worker`" in caplog.text
    put_steps(reporter, 1, 10)
    assert sidecar.streams == 1
    assert stream.SLOW_RETRY_S == 30


def test_a_sidecar_that_never_answers_is_tried_again(start_sidecar, make_reporter, monkeypatch):
    from engine_adapters.report import stream

    monkeypatch.setattr(stream, "WELCOME_S", 0.3)
    sidecar = start_sidecar(Script(mute=True))
    reporter = make_reporter(sidecar.address)
    put_steps(reporter, 1, 10)
    wait_for(lambda: sidecar.streams >= 2, "second attempt")
    sidecar.script.mute = False
    wait_for(lambda: sidecar.durable == 10, "records arrive")


def test_heartbeats_tell_where_the_source_stands(sidecar, make_reporter):
    reporter = make_reporter(sidecar.address)
    put_steps(reporter, 1, 7)
    wait_for(lambda: sidecar.of_kind("heartbeat"), "a heartbeat", limit_s=3)
    beat = sidecar.of_kind("heartbeat")[0].heartbeat
    assert beat.step == 7
    assert beat.next_seq == 8
    assert not beat.held


def test_a_source_that_was_let_in_and_thrown_out_is_back_soon_once(
    start_sidecar, make_reporter, monkeypatch
):
    import grpc

    from engine_adapters.report import stream

    monkeypatch.setattr(stream, "SLOW_RETRY_S", 0.6)
    sidecar = start_sidecar()
    make_reporter(sidecar.address)
    times = []
    for count in (1, 2, 3):
        wait_for(lambda count=count: sidecar.streams == count and sidecar._live, "attached")
        times.append(time.monotonic())
        sidecar.drop_streams(grpc.StatusCode.INVALID_ARGUMENT)
    assert times[1] - times[0] < 0.5
    assert times[2] - times[1] >= 0.6


def test_a_sidecar_that_stops_reading_holds_up_nothing(start_sidecar, make_reporter):
    sidecar = start_sidecar(Script(reads=threading.Event()))
    reporter = make_reporter(sidecar.address, queue_bytes=300_000)
    wait_for(lambda: reporter.counters.connects == 1, "attached")
    for step in range(1, 3_001):
        reporter.put(CommitRecord(step=step, tokens=np.full(500, step, dtype=np.uint32)))
    assert reporter.counters.queued_bytes <= 300_000
    assert reporter.counters.dropped_records > 1_000
    sidecar.script.reads.set()
    wait_for(lambda: sidecar.durable == 3_000, "the rest arrives")
    # What was on its way before the queue ran over arrived as well: holes may stand between.
    missing = [seq for seq, r in sidecar.ledger.items() if r.WhichOneof("record") == "hole"]
    assert 0 < len(missing) <= reporter.counters.dropped_records
    there = {seq: r.commit.step for seq, r in sidecar.ledger.items() if seq not in missing}
    assert all(seq == step for seq, step in there.items())
    assert max(there) == 3_000


def test_a_second_welcome_on_a_stream_changes_nothing(sidecar, make_reporter):
    reporter = make_reporter(sidecar.address)
    put_steps(reporter, 1, 5)
    wait_for(lambda: reporter._outbox.acked == 5, "durable")
    sidecar.say(pb.AttachResponse(welcome=pb.Welcome(protocol=1, durable_seq=0)))
    put_steps(reporter, 6, 9)
    wait_for(lambda: sidecar.durable == 9, "the rest")
    seqs = [r.seq for m in sidecar.of_kind("records") for r in m.records.records]
    assert seqs == list(range(1, 10))
