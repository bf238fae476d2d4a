"""The fold of the scheduler's record against an engine that keeps its positions itself."""

import numpy as np
import pytest
from engine_simulator import Engine, u32
from hypothesis import given
from schedules import ENGINES, GREEDY, LAW, SCHEDULES, act, busy_engine, folded, play

from sidecar.core.errors import (
    BadColumns,
    BaselineIncomplete,
    BlockGap,
    OutOfOrderStep,
    RowInUse,
    SnapshotCorrupt,
    UnknownRow,
)
from sidecar.core.events import (
    BlockUpdate,
    Commit,
    Hole,
    Launch,
    LiveSession,
    SchedulerAttestation,
    SessionEnd,
    SessionEndReason,
    SessionStart,
    Witness,
)
from sidecar.core.scheduler_state import SchedulerState


def assert_equal_to_engine(state: SchedulerState, engine: Engine) -> None:
    assert state.boundary == (engine.launched, engine.committed)
    assert {s.session_id for s in state.sessions.values()} == {
        r.session_id for r in engine.requests
    }
    written = state.written(engine.executed)
    for request in engine.requests:
        session = state.sessions[request.row]
        assert session.session_id == request.session_id
        assert list(session.tokens) == request.tokens
        assert session.emitted == len(request.tokens)
        assert session.computed == request.computed
        assert session.in_flight == request.in_flight
        assert session.prompt_length == len(request.prompt)
        assert session.tables.get(0, []) == request.table
        assert session.doubt is None
        assert written[request.row] == engine.written(request)


@LAW
@given(ENGINES, SCHEDULES)
def test_positions_equal_the_engines_own_at_every_boundary(shape, schedule):
    engine = Engine(ranks=1, depth=shape[1])
    state = SchedulerState()
    taken = 0
    for action, number in schedule:
        act(engine, action, number)
        for event in engine.scheduler_log[taken:]:
            state.apply(event)
        taken = len(engine.scheduler_log)
        if engine.launched:
            assert_equal_to_engine(state, engine)
    engine.drain()
    for event in engine.scheduler_log[taken:]:
        state.apply(event)
    if engine.launched:
        assert_equal_to_engine(state, engine)


@LAW
@given(ENGINES, SCHEDULES)
def test_a_snapshot_at_any_point_goes_on_as_the_straight_fold(shape, schedule):
    log = play(shape, schedule).scheduler_log
    straight = folded(log)
    for cut in range(0, len(log) + 1, max(1, len(log) // 4)):
        resumed = SchedulerState.from_bytes(folded(log[:cut]).to_bytes())
        for event in log[cut:]:
            resumed.apply(event)
        assert resumed.to_bytes() == straight.to_bytes()


@LAW
@given(ENGINES, SCHEDULES)
def test_a_baseline_at_any_point_goes_on_as_the_straight_fold(shape, schedule):
    engine = Engine(ranks=1, depth=shape[1])
    for action, number in schedule[: len(schedule) // 2]:
        act(engine, action, number)
    engine.step()
    launches = [
        event
        for event in engine.scheduler_log
        if isinstance(event, Launch) and event.step > engine.committed
    ]
    state = SchedulerState.from_attestation(engine.attest()[0], tuple(launches))
    known = len(engine.scheduler_log)
    for action, number in schedule[len(schedule) // 2 :]:
        act(engine, action, number)
    # Sessions that waited at the attestation start later, in rows of their own.
    waiting = [s for s in state.sessions if s >= 10_000]
    for row in waiting:
        del state.sessions[row]
    for event in engine.scheduler_log[known:]:
        state.apply(event)
    assert_equal_to_engine(state, engine)


def started(row=0, session_id="a", prompt=(1, 2, 3)):
    return SessionStart(row, session_id, u32(prompt), GREEDY, 0, u32([]))


def launch(step, rows=(0,), starts=(0,), **more):
    return Launch(step, u32(rows), u32(starts), **more)


def after_prefill() -> SchedulerState:
    """Session "a" in row 0: prompt of three computed, one token emitted."""
    state = SchedulerState()
    state.apply(launch(1, counts=u32([3]), started=(started(),)))
    state.apply(Commit(1, u32([9])))
    return state


def test_rejected_drafts_are_no_positions():
    state = after_prefill()
    state.apply(launch(2, starts=[3], counts=u32([4]), drafts=u32([3])))
    assert state.sessions[0].in_flight == 4
    state.apply(Commit(2, u32([7, 8]), token_counts=u32([2]), rejected=u32([2])))
    session = state.sessions[0]
    assert (session.emitted, session.computed, session.in_flight) == (6, 5, 0)


def test_after_a_step_with_drafts_later_positions_are_not_counted_as_written():
    state = after_prefill()
    state.apply(launch(2, starts=[3], counts=u32([4]), drafts=u32([3])))
    state.apply(launch(3, starts=[7]))
    assert state.written(1) == {0: 3}
    assert state.written(2) == {0: 7}
    assert state.written(3) == {0: 7}


def test_a_prefix_hit_starts_behind_position_0():
    state = SchedulerState()
    state.apply(launch(1, starts=[2], started=(started(),)))
    state.apply(Commit(1, u32([9])))
    session = state.sessions[0]
    assert (session.computed, session.in_flight, session.doubt) == (3, 0, None)


def test_a_start_that_contradicts_the_record_leaves_the_session_in_doubt():
    state = after_prefill()
    state.apply(launch(2, starts=[4]))
    session = state.sessions[0]
    assert "launched at position 4" in session.doubt
    assert (session.computed, session.in_flight) == (4, 1)


def test_preemption_gives_up_kv_and_ends_the_doubt():
    state = after_prefill()
    state.apply(launch(2, starts=[4], blocks=(BlockUpdate(0, 0, 0, u32([5, 6])),)))
    state.apply(Commit(2, u32([4])))
    state.apply(launch(3, rows=(), starts=(), preempted_rows=(0,)))
    session = state.sessions[0]
    assert (session.emitted, session.computed, session.tables, session.doubt) == (5, 0, {}, None)


def test_the_outcome_of_a_step_does_not_reach_the_next_holder_of_its_row():
    state = after_prefill()
    state.apply(launch(2, starts=[3]))
    end = SessionEnd(0, SessionEndReason.ABORTED)
    state.apply(
        launch(3, counts=u32([2]), ended=(end,), started=(started(session_id="b", prompt=(4, 5)),))
    )
    state.apply(Commit(2, u32([8]), ended=(end,)))
    session = state.sessions[0]
    assert session.session_id == "b"
    assert (list(session.tokens), session.computed, session.in_flight) == ([4, 5], 0, 2)


def test_late_steps_are_counted():
    state = after_prefill()
    state.apply(launch(2, starts=[3]))
    assert state.late_steps == 0
    state.apply(Commit(2, u32([8])), Witness.LATE)
    state.apply(launch(3, starts=[4]), Witness.LATE)
    state.apply(launch(4, starts=[5]), Witness.LATE)
    assert state.late_steps == 2


@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_launch_out_of_order_is_refused_and_changes_nothing(step):
    state = after_prefill()
    state.apply(launch(2, starts=[3]))
    before = state.to_bytes()
    with pytest.raises(OutOfOrderStep) as caught:
        state.apply(launch(step, starts=[4]))
    assert (caught.value.found, caught.value.expected) == (step, 3)
    assert state.to_bytes() == before


@pytest.mark.parametrize("step", [1, 3])
def test_a_commit_out_of_order_is_refused_and_changes_nothing(step):
    state = after_prefill()
    state.apply(launch(2, starts=[3]))
    before = state.to_bytes()
    with pytest.raises(OutOfOrderStep) as caught:
        state.apply(Commit(step, u32([1])))
    assert (caught.value.found, caught.value.expected) == (step, 2)
    assert state.to_bytes() == before


def test_a_commit_before_its_launch_is_refused():
    state = after_prefill()
    with pytest.raises(OutOfOrderStep):
        state.apply(Commit(2, u32([1])))


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (launch(2, rows=[1]), UnknownRow),
        (launch(2, rows=[500]), UnknownRow),
        (launch(2, ended=(SessionEnd(3, SessionEndReason.STOPPED),)), UnknownRow),
        (launch(2, preempted_rows=(3,)), UnknownRow),
        (launch(2, blocks=(BlockUpdate(3, 0, 0, u32([1])),)), UnknownRow),
        (launch(2, blocks=(BlockUpdate(0, 0, 1, u32([1])),)), BlockGap),
        (launch(2, started=(started(),)), RowInUse),
        (launch(2, rows=[0, 0], starts=[3, 3]), BadColumns),
        (launch(2, starts=[3, 3]), BadColumns),
        (launch(2, starts=[3], counts=u32([1, 1])), BadColumns),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(event, error):
    with pytest.raises(error):
        after_prefill().apply(event)


@pytest.mark.parametrize(
    "event",
    [
        Commit(2, u32([1, 2])),
        Commit(2, u32([1]), token_counts=u32([2])),
        Commit(2, u32([1]), token_counts=u32([1, 0])),
        Commit(2, u32([1]), rejected=u32([2])),
    ],
)
def test_an_outcome_that_does_not_fit_its_launch_is_refused(event):
    state = after_prefill()
    state.apply(launch(2, starts=[3]))
    with pytest.raises(BadColumns):
        state.apply(event)


def test_a_block_update_replaces_from_its_offset():
    state = after_prefill()
    state.apply(launch(2, starts=[3], blocks=(BlockUpdate(0, 0, 0, u32([3, 4, 5])),)))
    state.apply(launch(3, starts=[4], blocks=(BlockUpdate(0, 0, 1, u32([7])),)))
    assert state.sessions[0].tables == {0: [3, 7]}


def test_a_hole_breaks_the_state_until_it_is_rebased():
    engine = busy_engine(depth=1)
    state = folded(engine.scheduler_log)
    engine.step()
    state.apply(Hole(2, engine.launched, engine.launched, "queue was full"))
    assert "queue was full" in state.broken
    assert not state.sessions
    known = len(engine.scheduler_log)
    engine.step()
    for event in engine.scheduler_log[known:]:
        state.apply(event)
    assert state.boundary == (engine.launched, engine.committed)
    assert SchedulerState.from_bytes(state.to_bytes()).broken == state.broken
    whole = state.rebased(engine.attest()[0])
    known = len(engine.scheduler_log)
    engine.step()
    for event in engine.scheduler_log[known:]:
        whole.apply(event)
    assert whole.broken is None
    assert whole.origin is Witness.BASELINE
    assert_equal_to_engine(whole, engine)


def test_a_broken_state_is_not_rebased_at_another_boundary():
    engine = busy_engine()
    attested = engine.attest()[0]
    state = folded(engine.scheduler_log)
    state.apply(Hole(1, 10, 10, "lost"))
    engine.step()
    state.apply(engine.scheduler_log[-2])
    with pytest.raises(OutOfOrderStep):
        state.rebased(attested)


def test_a_baseline_with_unknown_steps_in_flight_is_refused():
    engine = busy_engine(depth=1)
    with pytest.raises(BaselineIncomplete, match="needs the launches"):
        SchedulerState.from_attestation(engine.attest()[0])


def preempted_in_flight() -> tuple[SchedulerState, tuple[Launch, ...]]:
    """Step 2 of session "a" has no outcome yet when its KV is given up and begun anew."""
    state = after_prefill()
    steps = (
        launch(2, starts=[3]),
        launch(3, starts=[0], counts=u32([2]), preempted_rows=(0,)),
    )
    for step in steps:
        state.apply(step)
    return state, steps


def finish(state: SchedulerState) -> tuple[int, int, int]:
    state.apply(Commit(2, u32([8])))
    state.apply(Commit(3, u32([]), token_counts=u32([0])))
    session = state.sessions[0]
    return session.emitted, session.computed, session.in_flight


def test_a_preempted_session_keeps_its_token_and_not_its_kv():
    state, _ = preempted_in_flight()
    assert finish(state) == (5, 2, 0)


def test_a_snapshot_remembers_whose_kv_a_step_in_flight_writes():
    state, _ = preempted_in_flight()
    assert finish(SchedulerState.from_bytes(state.to_bytes())) == (5, 2, 0)


def live_as(session, **changes) -> LiveSession:
    """The session as its scheduler would attest it."""
    values = {
        "row": session.row,
        "session_id": session.session_id,
        "emitted": session.emitted,
        "computed": session.computed,
        "in_flight": session.in_flight,
        "prompt_length": session.prompt_length,
        "tokens": session.token_array(),
        "sampling": GREEDY,
    }
    return LiveSession(**{**values, **changes})


def test_a_baseline_knows_kv_that_was_given_up_in_flight():
    state, steps = preempted_in_flight()
    attestation = SchedulerAttestation(3, 1, (live_as(state.sessions[0]),))
    assert finish(SchedulerState.from_attestation(attestation, steps)) == (5, 2, 0)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_baseline_whose_launches_do_not_explain_its_positions_is_refused(in_flight):
    state, steps = preempted_in_flight()
    live = live_as(state.sessions[0], in_flight=in_flight)
    with pytest.raises(BaselineIncomplete):
        SchedulerState.from_attestation(SchedulerAttestation(3, 1, (live,)), steps)


def test_every_cut_or_lengthened_snapshot_is_refused():
    data = folded(busy_engine(depth=1).scheduler_log).to_bytes()
    for size in range(0, len(data), 7):
        with pytest.raises(SnapshotCorrupt):
            SchedulerState.from_bytes(data[:size])
    with pytest.raises(SnapshotCorrupt, match="left over"):
        SchedulerState.from_bytes(data + b"\0")
    with pytest.raises(SnapshotCorrupt, match="version"):
        SchedulerState.from_bytes(data[:4] + b"\7" + data[5:])
    with pytest.raises(SnapshotCorrupt, match="begin"):
        SchedulerState.from_bytes(b"TWR1" + data[4:])


def test_a_damaged_snapshot_never_raises_anything_else():
    data = folded(busy_engine(depth=1).scheduler_log).to_bytes()
    rng = np.random.default_rng(3)
    for position in rng.integers(0, len(data), 300).tolist():
        damaged = bytearray(data)
        damaged[position] ^= 0xFF
        try:
            SchedulerState.from_bytes(bytes(damaged))
        except SnapshotCorrupt:
            continue
