"""The fold of a rank's record: newest digest by slot, and what is not known."""

import numpy as np
import pytest
from engine_simulator import BLOCK, GROUP, u32
from hypothesis import given
from hypothesis import strategies as st
from schedules import ENGINES, LAW, SCHEDULES, busy_engine, folded, folded_rank, play

from sidecar.core.errors import (
    BadColumns,
    BadKvRows,
    OutOfOrderStep,
    SnapshotCorrupt,
    UnknownKvGroup,
)
from sidecar.core.events import (
    Hole,
    KvGroup,
    KvRows,
    RankStep,
    TensorDigest,
    WeightDigests,
    Witness,
)
from sidecar.core.rank_state import RankState, slots_of

WIDTH = GROUP.digests
_STEPS = st.lists(
    st.lists(st.integers(0, GROUP.slots - 1), max_size=8, unique=True), min_size=1, max_size=20
)


def step(number, slots, digests=None, group=0):
    if digests is None:
        digests = np.arange(len(slots) * WIDTH, dtype=np.uint64).reshape(-1, WIDTH) + number
    return RankStep(number, (KvRows(group, u32(slots), digests),))


@LAW
@given(_STEPS, st.integers(0, 20))
def test_each_slot_has_its_newest_digest_and_step(steps, late_from):
    state = RankState([GROUP])
    model = {}
    for number, slots in enumerate(steps, start=1):
        witness = Witness.LATE if number > late_from else Witness.WITNESSED
        event = step(number, slots)
        state.apply(event, witness)
        for slot, digest in zip(slots, event.kv[0].digests.tolist(), strict=True):
            model[slot] = (digest, witness)
    digests, witness = state.lookup(0, np.arange(GROUP.slots))
    for slot in range(GROUP.slots):
        expected, kind = model.get(slot, ([0] * WIDTH, Witness.UNKNOWN))
        assert witness[slot] == kind
        if kind is not Witness.UNKNOWN:
            assert digests[slot].tolist() == expected
    assert state.late_steps == max(0, len(steps) - late_from)
    assert state.step == len(steps)
    assert state.witnessed_step == min(late_from, len(steps))


@LAW
@given(ENGINES, SCHEDULES)
def test_a_snapshot_at_any_point_goes_on_as_the_straight_fold(shape, schedule):
    log = play(shape, schedule).rank_logs[0]
    straight = folded_rank(log).to_bytes()
    for cut in range(0, len(log) + 1, max(1, len(log) // 4)):
        resumed = RankState.from_bytes(folded_rank(log[:cut]).to_bytes())
        for event in log[cut:]:
            resumed.apply(event)
        assert resumed.to_bytes() == straight


def test_slots_never_seen_are_unknown():
    state = RankState([GROUP])
    state.apply(step(1, [5]))
    witness = state.lookup(0, np.array([4, 5, 6, GROUP.slots - 1, 10**9, -1]))[1]
    assert witness.tolist() == [0, 1, 0, 0, 0, 0]


def test_after_a_hole_only_slots_that_are_written_again_are_known():
    state = RankState([GROUP])
    state.apply(step(1, [5, 6]))
    state.apply(Hole(1, 2, 2, "queue was full"))
    state.apply(step(3, [6]))
    assert state.lookup(0, np.array([5, 6]))[1].tolist() == [Witness.UNKNOWN, Witness.WITNESSED]
    assert "queue was full" in state.broken
    assert RankState.from_bytes(state.to_bytes()).broken == state.broken


def test_a_baseline_knows_what_was_attested_and_nothing_else():
    engine = busy_engine()
    attested = engine.attest()[1][0]
    tables = folded(engine.scheduler_log).tables()
    state = RankState.from_attestation([GROUP], attested, tables)
    straight = folded_rank(engine.rank_logs[0])
    request = engine.requests[0]
    slots = slots_of(np.arange(request.computed), request.table, BLOCK)
    digests, witness = state.lookup(0, slots)
    assert set(witness.tolist()) == {Witness.BASELINE}
    assert (digests == straight.lookup(0, slots)[0]).all()
    assert state.step == attested.step
    assert state.weights == straight.weights
    assert state.weights_witness is Witness.BASELINE
    live = {b * BLOCK + i for r in engine.requests for b in r.table for i in range(BLOCK)}
    others = np.array(sorted(set(range(GROUP.slots)) - live))
    assert not state.lookup(0, others)[1].any()


def test_a_baseline_after_a_hole_makes_its_slots_known_again():
    engine = busy_engine()
    state = folded_rank(engine.rank_logs[0])
    state.apply(Hole(1, 1, 1, "lost"))
    state.rebase(engine.attest()[1][0], folded(engine.scheduler_log).tables())
    request = engine.requests[0]
    slots = slots_of(np.arange(request.computed), request.table, BLOCK)
    assert set(state.lookup(0, slots)[1].tolist()) == {Witness.BASELINE}


def test_positions_in_the_null_block_or_beyond_the_table_have_no_slot():
    slots = slots_of(np.arange(10), [3, 0], 4)
    assert slots.tolist() == [12, 13, 14, 15, -1, -1, -1, -1, -1, -1]


@pytest.mark.parametrize("number", [1, 2])
def test_a_step_that_is_not_newer_is_refused_and_changes_nothing(number):
    state = RankState([GROUP])
    state.apply(step(2, [5]))
    before = state.to_bytes()
    with pytest.raises(OutOfOrderStep):
        state.apply(step(number, [6]))
    assert state.to_bytes() == before


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (step(1, [1], group=3), UnknownKvGroup),
        (step(1, [GROUP.slots]), BadKvRows),
        (step(1, [1], np.zeros((1, WIDTH + 1), np.uint64)), BadKvRows),
        (step(1, [1, 2], np.zeros((1, WIDTH), np.uint64)), BadKvRows),
        (RankStep(1, (), u32([1, 2]), np.zeros(1, np.uint64)), BadColumns),
    ],
)
def test_rows_that_do_not_fit_the_declaration_are_refused(event, error):
    with pytest.raises(error):
        RankState([GROUP]).apply(event)


def test_a_late_record_of_weights_is_marked_as_such():
    state = RankState([GROUP])
    state.apply(WeightDigests({"w": TensorDigest(1, 2)}), Witness.LATE)
    assert state.weights_witness is Witness.LATE


def test_every_cut_or_lengthened_snapshot_is_refused():
    data = folded_rank(busy_engine().rank_logs[0]).to_bytes()
    for size in range(0, len(data), 11):
        with pytest.raises(SnapshotCorrupt):
            RankState.from_bytes(data[:size])
    with pytest.raises(SnapshotCorrupt, match="left over"):
        RankState.from_bytes(data + b"\0")


def test_a_damaged_snapshot_never_raises_anything_else():
    data = folded_rank(busy_engine().rank_logs[0]).to_bytes()
    rng = np.random.default_rng(4)
    for position in rng.integers(0, len(data), 300).tolist():
        damaged = bytearray(data)
        damaged[position] ^= 0xFF
        try:
            RankState.from_bytes(bytes(damaged))
        except SnapshotCorrupt:
            continue


def test_a_snapshot_holds_only_what_is_known():
    wide = KvGroup(0, 16, 60_000, (0,), (1,), 64)
    state = RankState([wide])
    state.apply(RankStep(1, (KvRows(0, u32([900_000]), np.ones((1, 1), np.uint64)),)))
    assert len(state.to_bytes()) < 300


def test_layers_of_a_digest_follow_the_declaration():
    assert [GROUP.layers_of(i) for i in range(2)] == [(0, 1, 2), (3, 4)]
