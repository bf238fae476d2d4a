"""The outbox against a plain model: nothing vanishes, nothing is told twice on one stream."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.outbox import Outbox
from engine_adapters.report.records import HoleRecord


@dataclass(frozen=True)
class Sized:
    step: int
    weight: int = 10

    def encode(self, seq: int) -> pb.Record:
        return pb.Record(seq=seq, commit=pb.Commit(step=self.step))


def ranges(batch) -> list[tuple[int, int]]:
    """(first seq, last seq) of each entry."""
    return [
        (seq, seq + (record.count if isinstance(record, HoleRecord) else 1) - 1)
        for seq, record in batch
    ]


def test_records_come_out_in_order_and_once():
    outbox = Outbox(1_000)
    for step in range(1, 6):
        outbox.put(Sized(step))
    assert [seq for seq, _ in outbox.take(25)] == [1, 2]
    assert [seq for seq, _ in outbox.take(1_000)] == [3, 4, 5]
    assert outbox.take(1_000) == []


def test_a_batch_stops_before_the_barrier():
    outbox = Outbox(1_000)
    for step in range(1, 6):
        outbox.put(Sized(step))
    assert [seq for seq, _ in outbox.take(1_000, before=4)] == [1, 2, 3]
    assert outbox.take(1_000, before=4) == []
    assert [seq for seq, _ in outbox.take(1_000)] == [4, 5]


def test_a_record_larger_than_a_batch_goes_alone():
    outbox = Outbox(1_000)
    outbox.put(Sized(1, weight=500))
    outbox.put(Sized(2))
    assert [seq for seq, _ in outbox.take(100)] == [1]


def test_overflow_drops_the_oldest_and_says_so():
    outbox = Outbox(30)
    for step in range(1, 8):
        outbox.put(Sized(step))
    [(seq, hole), *rest] = outbox.take(1_000)
    assert (seq, hole.count, hole.first_step, hole.last_step) == (1, 4, 1, 4)
    assert [seq for seq, _ in rest] == [5, 6, 7]
    assert outbox.dropped == 4


def test_a_later_hole_tells_only_of_its_own_steps():
    outbox = Outbox(30)
    for step in range(1, 6):
        outbox.put(Sized(step))
    assert outbox.take(1)[0][1].last_step == 2
    outbox.take(1_000)
    for step in range(6, 11):
        outbox.put(Sized(step))
    seq, hole = outbox.take(1)[0]
    assert (seq, hole.count, hole.first_step, hole.last_step) == (6, 2, 6, 7)


def test_dropping_what_was_sent_makes_a_hole_only_for_the_next_stream():
    outbox = Outbox(30)
    for step in range(1, 4):
        outbox.put(Sized(step))
    outbox.take(1_000)
    outbox.put(Sized(4))
    assert ranges(outbox.take(1_000)) == [(4, 4)]
    outbox.rewind(0)
    assert ranges(outbox.take(1_000)) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert isinstance(outbox.take(1_000, before=0), list)


def test_an_acknowledgement_of_what_was_never_sent_is_cut():
    outbox = Outbox(1_000)
    for step in range(1, 4):
        outbox.put(Sized(step))
    outbox.take(15)
    assert outbox.ack(99) == 1
    assert ranges(outbox.take(1_000)) == [(2, 2), (3, 3)]


def test_durable_beyond_what_exists_is_another_history():
    outbox = Outbox(1_000)
    outbox.put(Sized(1))
    outbox.rewind(500)
    assert outbox.acked == 1
    assert outbox.next_seq == 2


def test_a_lost_ledger_turns_what_was_acknowledged_into_a_hole():
    outbox = Outbox(1_000)
    for step in range(1, 6):
        outbox.put(Sized(step))
    outbox.take(1_000)
    outbox.ack(3)
    outbox.rewind(1)
    [(seq, hole), *rest] = outbox.take(1_000)
    assert (seq, hole.count) == (2, 2)
    assert hole.last_step == 3
    assert "lost" in hole.reason
    assert [seq for seq, _ in rest] == [4, 5]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(20, 120))
def test_the_bound_holds(weights, limit):
    outbox = Outbox(limit)
    for step, weight in enumerate(weights, start=1):
        outbox.put(Sized(step, weight))
        assert outbox.weight <= limit


class Delivery(RuleBasedStateMachine):
    """A sidecar that keeps what it got, over streams that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(60)
        self.put_steps: list[int] = []
        self.got: dict[int, int] = {}  # seq -> step, 0 in a hole
        self.stream: list[tuple[int, int]] = []
        self.expected = 1  # first seq that this stream has not told

    @rule(weight=st.integers(1, 25))
    def put(self, weight):
        step = len(self.put_steps) + 1
        assert self.outbox.put(Sized(step, weight)) == step
        self.put_steps.append(step)

    @rule(most=st.integers(1, 80))
    def send(self, most):
        for seq, record in self.outbox.take(most):
            assert seq == self.expected, "in order, without a gap, once on a stream"
            count = record.count if isinstance(record, HoleRecord) else 1
            for missing in range(seq, seq + count):
                if isinstance(record, HoleRecord):
                    assert record.first_step <= missing <= record.last_step
                    self.got.setdefault(missing, 0)
                else:
                    assert record.step == seq
                    self.got[missing] = record.step
            self.expected = seq + count

    @precondition(lambda self: self.expected > 1)
    @rule(data=st.data())
    def ack(self, data):
        self.outbox.ack(data.draw(st.integers(0, self.expected - 1)))

    @rule(data=st.data())
    def reconnect(self, data):
        # Everything acknowledged is durable; perhaps more that was sent.
        durable = data.draw(st.integers(self.outbox.acked, max(self.got, default=0)))
        self.outbox.rewind(durable)
        self.expected = durable + 1

    @rule(data=st.data())
    def lose_ledger(self, data):
        durable = data.draw(st.integers(0, self.outbox.acked))
        self.got = {seq: step for seq, step in self.got.items() if seq <= durable}
        self.outbox.rewind(durable)
        self.expected = durable + 1

    @invariant()
    def nothing_is_unaccounted(self):
        box = self.outbox
        hole = box.oldest_seq - 1 - box.acked
        held = box.next_seq - box.oldest_seq
        assert hole >= 0
        assert box.acked + hole + held == len(self.put_steps)
        assert 0 <= box.unsent_weight <= box.weight <= 60

    def teardown(self):
        self.send(1_000_000)
        assert sorted(self.got) == list(range(1, len(self.put_steps) + 1))
        assert self.outbox.drained


Delivery.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestDelivery = Delivery.TestCase


@pytest.mark.parametrize("durable", [0, 1, 2, 3])
def test_rewind_sends_exactly_what_is_not_durable(durable):
    outbox = Outbox(1_000)
    for step in range(1, 4):
        outbox.put(Sized(step))
    outbox.take(1_000)
    outbox.rewind(durable)
    assert [seq for seq, _ in outbox.take(1_000)] == list(range(durable + 1, 4))
