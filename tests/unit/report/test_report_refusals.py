"""What the sidecar refuses is sent once more and then given up, with its place marked."""

import grpc
from report_fakes import Script, wait_for
from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.attestations import RankBody
from engine_adapters.report.outbox import Outbox
from engine_adapters.report.outgoing import Outgoing
from engine_adapters.report.parts import Attested
from engine_adapters.report.records import CommitRecord, HoleRecord
from engine_adapters.report.refusals import MOST_TEXT, Refusals


def made() -> tuple[Outbox, Outgoing, Refusals]:
    outbox = Outbox(1_000_000)
    outgoing = Outgoing(outbox, (), fingerprint=dict, held=lambda: 0, heartbeat=pb.Heartbeat)
    return outbox, outgoing, Refusals(outgoing)


def stream(outgoing: Outgoing, durable: int) -> int:
    number = outgoing.open_stream()
    outgoing.welcomed(number, durable, 0, now=0.0)
    return number


def send_all(outgoing: Outgoing, number: int) -> list[pb.AttachRequest]:
    sent = []
    while (message := outgoing.next_message(number, 0.0)) is not None:
        sent.append(message)
    return sent


def test_the_second_refusal_at_one_point_makes_one_hole_of_what_was_sent_and_nothing_else():
    outbox, outgoing, refusals = made()
    for step in range(1, 6):
        outbox.put(CommitRecord(step=step))
    number = stream(outgoing, durable=0)
    assert [len(m.records.records) for m in send_all(outgoing, number)] == [5]
    assert refusals.refused("records[0] is bad")
    # Sent again as it was, for the records before the bad one.
    number = stream(outgoing, durable=2)
    assert [r.seq for r in send_all(outgoing, number)[0].records.records] == [3, 4, 5]
    assert refusals.refused("records[0] is bad")
    assert outbox.refused == 0
    number = stream(outgoing, durable=2)
    send_all(outgoing, number)
    outbox.put(CommitRecord(step=6))
    assert refusals.refused("records[0] is " + "bad " * 1_000)
    (hole, after) = send_all(outgoing, stream(outgoing, durable=2))[0].records.records
    assert (hole.seq, hole.hole.count) == (3, 3)
    assert (hole.hole.first_step, hole.hole.last_step) == (3, 5)
    assert hole.hole.reason.startswith("the sidecar refused: records[0] is bad bad")
    assert len(hole.hole.reason) <= MOST_TEXT + 50
    assert (after.seq, after.commit.step) == (6, 6)
    assert (outbox.refused, outbox.dropped) == (3, 3)


def test_where_nothing_was_sent_there_is_nothing_to_give_up():
    _, outgoing, refusals = made()
    stream(outgoing, durable=0)
    assert refusals.refused("a bad sign")
    assert not refusals.refused("a bad sign")


def test_a_refused_attestation_is_answered_by_an_error_and_one_not_sent_stays():
    outbox, outgoing, refusals = made()
    number = stream(outgoing, durable=0)
    outgoing.add_attestation(Attested(5, 0, idle=True, body=RankBody(kv=())))
    send_all(outgoing, number)
    assert refusals.refused("attestation.kv is bad")
    number = stream(outgoing, durable=0)
    send_all(outgoing, number)
    outgoing.add_attestation(Attested(6, 0, idle=True, body=RankBody(kv=())))
    assert refusals.refused("attestation.kv is bad")
    parts = [m.attestation for m in send_all(outgoing, stream(outgoing, durable=0))]
    assert [(part.attest_id, bool(part.error)) for part in parts] == [(5, True), (6, False)]
    assert outbox.refused == 0


def test_a_refused_attestation_costs_no_record():
    outbox, outgoing, refusals = made()
    number = stream(outgoing, durable=0)
    outbox.put(CommitRecord(step=1))
    outgoing.add_attestation(Attested(5, 0, idle=True, body=RankBody(kv=())))
    send_all(outgoing, number)
    assert refusals.refused("attestation.kv is bad")
    assert refusals.refused("attestation.kv is bad")
    assert outbox.refused == 0
    assert not refusals.refused("a bad sign")


def test_a_hole_forgets_its_reason_once_it_is_durable():
    outbox = Outbox(1_000)
    outbox.put(CommitRecord(step=1))
    outbox.take(1_000)
    outbox.give_up_sent("refused")
    outbox.rewind(0)
    ((_, hole),) = outbox.take(1_000)
    assert isinstance(hole, HoleRecord)
    assert hole.reason == "refused"
    outbox.ack(1)
    for step in range(2, 9):
        outbox.put(CommitRecord(step=step))
    assert outbox.take(1)[0][1].reason == "queue full"


def test_one_refusal_loses_nothing(start_sidecar, make_reporter):
    sidecar = start_sidecar(Script(acks=False))
    reporter = make_reporter(sidecar.address)
    reporter.put(CommitRecord(step=1))
    wait_for(lambda: sidecar.durable == 1, "sent")
    sidecar.drop_streams(grpc.StatusCode.INVALID_ARGUMENT)
    wait_for(lambda: sidecar.streams == 2, "comes again soon")
    reporter.put(CommitRecord(step=2))
    wait_for(lambda: sidecar.durable == 2, "goes on")
    assert reporter.counters.refused_records == 0
    assert not [r for r in sidecar.ledger.values() if r.WhichOneof("record") == "hole"]
