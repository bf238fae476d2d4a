"""Clean states are never flagged; each corruption is named by its verdict."""

from dataclasses import replace

import numpy as np
import pytest
from engine_simulator import BLOCK, DIGEST_LAYERS, GROUP, Engine, u32
from hypothesis import assume, given
from hypothesis import strategies as st
from schedules import (
    BUSY,
    ENGINES,
    LAW,
    SCHEDULES,
    act,
    busy_engine,
    evidence_of,
    folded,
    folded_rank,
    play,
)

from sidecar.core.events import BlockUpdate, Fingerprint, Hole, TensorDigest, WeightDigests, Witness
from sidecar.core.evidence import (
    Lack,
    Missing,
    StateEvidence,
    StateJudgement,
    StepWindow,
    WeightsCheck,
)
from sidecar.core.judge import judge_state
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState
from sidecar.core.verdicts import Verdict

BOTH = pytest.mark.parametrize(("ranks", "depth"), [(1, 0), (2, 1)])


def session(evidence: StateEvidence, index: int):
    return evidence.attested.sessions[index]


def with_session(evidence: StateEvidence, index: int, **changes) -> StateEvidence:
    sessions = list(evidence.attested.sessions)
    sessions[index] = replace(sessions[index], **changes)
    return replace(evidence, attested=replace(evidence.attested, sessions=tuple(sessions)))


def with_rank(evidence: StateEvidence, rank: int, **changes) -> StateEvidence:
    ranks = list(evidence.ranks)
    ranks[rank] = replace(ranks[rank], attested=replace(ranks[rank].attested, **changes))
    return replace(evidence, ranks=tuple(ranks))


def with_expected_rank(evidence: StateEvidence, rank: int, expected) -> StateEvidence:
    ranks = list(evidence.ranks)
    ranks[rank] = replace(ranks[rank], expected=expected)
    return replace(evidence, ranks=tuple(ranks))


def verdict_of(judgement: StateJudgement, session_id: str) -> Verdict:
    return next(s.verdict for s in judgement.sessions if s.session_id == session_id)


def only_fault(judgement: StateJudgement, session_id: str):
    """The one session that is not exact, and its findings."""
    faulty = [s for s in judgement.sessions if s.verdict is not Verdict.RESUMED_EXACT]
    assert [s.session_id for s in faulty] == [session_id]
    return faulty[0].findings


@LAW
@given(ENGINES, SCHEDULES)
def test_a_clean_state_is_never_flagged(shape, schedule):
    engine = play(shape, schedule)
    assume(engine.launched)
    judgement = judge_state(evidence_of(engine))
    in_flight = len(engine.requests)
    assert judgement.findings == ()
    assert [s.findings for s in judgement.sessions] == [()] * in_flight
    expected = Verdict.RESUMED_EXACT if in_flight else Verdict.NOTHING_IN_FLIGHT
    assert judgement.verdict is expected
    rows = sum(engine.written(request) for request in engine.requests)
    assert judgement.compared.kv_rows == rows * engine.ranks
    assert judgement.compared.tokens == sum(len(r.tokens) for r in engine.requests)
    assert judgement.compared.tensors == 3 * engine.ranks


@LAW
@given(ENGINES, SCHEDULES)
def test_a_rank_that_has_not_run_the_newest_step_is_clean_too(shape, schedule):
    engine = Engine(ranks=shape[0], depth=1)
    for action, number in schedule:
        act(engine, action, number)
    assume(engine.launched)
    assert engine.executed < engine.launched
    judgement = judge_state(evidence_of(engine))
    assert judgement.verdict.passes


@LAW
@given(ENGINES, BUSY, st.data())
def test_one_bit_of_one_row_is_named(shape, schedule, data):
    engine = play(shape, schedule)
    live = [request for request in engine.requests if engine.written(request)]
    assume(live)
    request = data.draw(st.sampled_from(live))
    rank = data.draw(st.integers(0, engine.ranks - 1))
    position = data.draw(st.integers(0, engine.written(request) - 1))
    column = data.draw(st.integers(0, len(DIGEST_LAYERS) - 1))
    bit = data.draw(st.integers(0, 63))
    slot = request.table[position // BLOCK] * BLOCK + position % BLOCK
    engine.memory[rank, slot, column] ^= np.uint64(1 << bit)
    judgement = judge_state(evidence_of(engine))
    assert judgement.verdict is Verdict.KV_MISMATCH
    # A shared block is wrong in every session that reads it.
    found = next(s for s in judgement.sessions if s.session_id == request.session_id)
    (finding,) = found.findings
    assert finding.rank == rank
    assert finding.positions == ((position, position + 1),)
    assert finding.layers == [(0, 1, 2), (3, 4)][column]
    assert finding.mismatches == 1
    for other in judgement.sessions:
        holds = slot // BLOCK in next(
            r.table for r in engine.requests if r.session_id == other.session_id
        )
        assert (other.verdict is Verdict.KV_MISMATCH) == holds


@LAW
@given(ENGINES, BUSY, st.data())
def test_one_changed_token_is_named(shape, schedule, data):
    engine = play(shape, schedule)
    assume(engine.requests)
    request = data.draw(st.sampled_from(engine.requests))
    position = data.draw(st.integers(0, len(request.tokens) - 1))
    request.tokens[position] += 1
    evidence = evidence_of(engine)
    findings = only_fault(judge_state(evidence), request.session_id)
    assert [f.verdict for f in findings] == [Verdict.TOKENS_MISMATCH]
    assert findings[0].first_differing_position == position
    assert findings[0].found == f"token {request.tokens[position]}"
    assert findings[0].mismatches == 1


@LAW
@given(ENGINES, BUSY, st.data())
def test_a_position_ahead_or_behind_is_named(shape, schedule, data):
    engine = play(shape, schedule)
    assume(engine.requests)
    request = data.draw(st.sampled_from(engine.requests))
    name = data.draw(st.sampled_from(["computed", "in_flight"]))
    by = data.draw(st.sampled_from([-1, 1]))
    assume(getattr(request, name) + by >= 0)
    evidence = evidence_of(engine)
    index = next(
        i for i, s in enumerate(evidence.attested.sessions) if s.session_id == request.session_id
    )
    broken = with_session(evidence, index, **{name: getattr(request, name) + by})
    (finding,) = only_fault(judge_state(broken), request.session_id)
    assert finding.verdict is Verdict.POSITION_MISMATCH
    assert f"{name} {getattr(request, name) + by}" in finding.found
    assert f"{name} {getattr(request, name)}" in finding.expected


@LAW
@given(ENGINES, BUSY, st.data())
def test_two_swapped_blocks_are_named(shape, schedule, data):
    engine = play(shape, schedule)
    long = [r for r in engine.requests if engine.written(r) >= 2 * BLOCK]
    assume(long)
    request = data.draw(st.sampled_from(long))
    evidence = evidence_of(engine)
    request.table[0], request.table[1] = request.table[1], request.table[0]
    attested, ranks = engine.attest()
    broken = replace(evidence, attested=attested)
    for rank, found in enumerate(ranks):
        broken = with_rank(broken, rank, kv=found.kv)
    findings = only_fault(judge_state(broken), request.session_id)
    assert {f.verdict for f in findings} == {Verdict.KV_MISMATCH}
    assert any("block table" in f.reason for f in findings)
    assert any("not what rank" in f.reason for f in findings)
    assert {f.positions for f in findings} == {((0, 2 * BLOCK),)}


@BOTH
def test_a_claim_of_one_token_more_than_kv_holds_is_a_position(ranks, depth):
    evidence = evidence_of(busy_engine(ranks, depth))
    computed = session(evidence, 1).computed
    judgement = judge_state(with_session(evidence, 1, computed=computed + 1))
    assert judgement.verdict is Verdict.POSITION_MISMATCH


@BOTH
def test_a_stale_block_under_a_right_token_list_is_named(ranks, depth):
    engine = busy_engine(ranks, depth)
    request = engine.requests[2]
    slots = [request.table[0] * BLOCK + i for i in range(BLOCK)]
    engine.memory[0, slots] = 12345
    (finding, *rest) = only_fault(judge_state(evidence_of(engine)), request.session_id)
    assert not rest
    assert (finding.verdict, finding.rank) == (Verdict.KV_MISMATCH, 0)
    assert (finding.layers, finding.positions) == ((0, 1, 2, 3, 4), ((0, 4),))
    assert finding.mismatches == 4


def test_a_rank_one_step_ahead_is_named_and_sessions_are_not_judged():
    evidence = evidence_of(busy_engine(ranks=2))
    step = evidence.ranks[1].attested.step
    judgement = judge_state(with_rank(evidence, 1, step=step + 1))
    assert judgement.verdict is Verdict.RANK_SKEW
    (finding,) = judgement.findings
    assert (finding.rank, finding.found) == (1, f"step {step + 1}")
    assert f"step {step}" in finding.expected
    assert {s.verdict for s in judgement.sessions} == {Verdict.INCOMPARABLE}


@pytest.mark.parametrize("by", [-1, 1])
def test_ranks_that_agree_but_not_with_the_scheduler_are_skewed(by):
    evidence = evidence_of(busy_engine(ranks=2))
    step = evidence.ranks[0].attested.step + by
    judgement = judge_state(with_rank(with_rank(evidence, 0, step=step), 1, step=step))
    assert judgement.verdict is Verdict.RANK_SKEW
    assert [f.rank for f in judgement.findings] == [0, 1]


def test_a_lost_session_is_named():
    evidence = evidence_of(busy_engine())
    lost = session(evidence, 0).session_id
    sessions = evidence.attested.sessions[1:]
    judgement = judge_state(
        replace(evidence, attested=replace(evidence.attested, sessions=sessions))
    )
    assert judgement.verdict is Verdict.LOST
    assert verdict_of(judgement, lost) is Verdict.LOST


def test_a_session_that_ended_meanwhile_is_not_lost_and_no_pass():
    evidence = evidence_of(busy_engine())
    gone = session(evidence, 0).session_id
    sessions = evidence.attested.sessions[1:]
    judgement = judge_state(
        replace(
            evidence,
            attested=replace(evidence.attested, sessions=sessions),
            ended_meanwhile=frozenset({gone}),
        )
    )
    assert verdict_of(judgement, gone) is Verdict.INCOMPARABLE


def foreign(evidence: StateEvidence, **changes):
    stranger = replace(session(evidence, 0), row=77, session_id="stranger", **changes)
    sessions = (*evidence.attested.sessions, stranger)
    return replace(evidence, attested=replace(evidence.attested, sessions=sessions))


def test_a_foreign_session_is_unknown():
    judgement = judge_state(foreign(evidence_of(busy_engine())))
    assert judgement.verdict is Verdict.UNKNOWN
    assert verdict_of(judgement, "stranger") is Verdict.UNKNOWN


def test_a_foreign_session_that_only_says_that_it_waits_is_unknown():
    judgement = judge_state(foreign(evidence_of(busy_engine()), waiting=True))
    assert judgement.verdict is Verdict.UNKNOWN


def test_a_foreign_session_that_was_preempted_is_unknown():
    stranger = foreign(evidence_of(busy_engine()), waiting=True, computed=0, in_flight=0)
    assert judge_state(stranger).verdict is Verdict.UNKNOWN


def test_a_request_that_has_just_come_in_is_not_judged():
    engine = busy_engine()
    engine.add([1, 2, 3])
    judgement = judge_state(evidence_of(engine))
    assert judgement.verdict is Verdict.RESUMED_EXACT
    assert len(judgement.sessions) == 4


def test_shadow_decodes_are_not_judged():
    evidence = foreign(evidence_of(busy_engine()))
    lost = session(evidence, 0).session_id
    evidence = replace(
        evidence,
        ignored_sessions=frozenset({"stranger", lost}),
        attested=replace(evidence.attested, sessions=evidence.attested.sessions[1:]),
    )
    judgement = judge_state(evidence)
    assert judgement.verdict is Verdict.RESUMED_EXACT
    assert len(judgement.sessions) == 3


def test_another_seed_is_named():
    evidence = evidence_of(busy_engine())
    sampling = session(evidence, 1).sampling
    broken = with_session(evidence, 1, sampling=replace(sampling, seed=8))
    (finding,) = only_fault(judge_state(broken), session(evidence, 1).session_id)
    assert finding.verdict is Verdict.SAMPLER_MISMATCH
    assert (finding.expected, finding.found) == ("seed 7", "seed 8")


@pytest.mark.parametrize(
    ("sampler", "verdict"),
    [
        ({1: 44}, Verdict.RESUMED_EXACT),
        ({1: 45}, Verdict.SAMPLER_MISMATCH),
        ({2: 44}, Verdict.SAMPLER_MISMATCH),
        ({}, Verdict.RESUMED_EXACT),
    ],
)
def test_generators_are_compared_where_both_sides_have_them(sampler, verdict):
    evidence = evidence_of(busy_engine())
    name = session(evidence, 1).session_id
    ranks = (replace(evidence.ranks[0], generators={name: 44}),)
    judgement = judge_state(with_rank(replace(evidence, ranks=ranks), 0, sampler=sampler))
    assert judgement.verdict is verdict


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: {**t, "layer1.weight": TensorDigest(5, 64)}, "changed: layer1.weight"),
        (lambda t: {**t, "_k_scale": TensorDigest(5, 4)}, "not in the record: _k_scale"),
        (lambda t: {k: t[k] for k in t if k != "layer2.weight"}, "missing: layer2.weight"),
    ],
)
def test_other_weights_are_named(change, said):
    evidence = evidence_of(busy_engine(ranks=2))
    tensors = evidence.ranks[1].attested.weights.tensors
    judgement = judge_state(with_rank(evidence, 1, weights=WeightDigests(change(tensors))))
    assert judgement.verdict is Verdict.WEIGHTS_MISMATCH
    (finding,) = judgement.findings
    assert (finding.rank, finding.mismatches) == (1, 1)
    assert said in finding.reason


def changed_source(evidence: StateEvidence, index: int, **changes) -> StateEvidence:
    found = list(evidence.sources)
    found[index] = replace(found[index], **changes)
    return replace(evidence, sources=tuple(found))


def test_another_driver_ends_the_judgement():
    evidence = evidence_of(busy_engine())
    other = Fingerprint({"engine": "simulator", "driver": "590.2", "model": "none"})
    judgement = judge_state(changed_source(evidence, 1, found_fingerprint=other))
    assert judgement.verdict is Verdict.ENVIRONMENT_CHANGED
    (finding,) = judgement.findings
    assert (finding.rank, finding.expected, finding.found) == (0, "580.1", "590.2")
    assert {s.verdict for s in judgement.sessions} == {Verdict.INCOMPARABLE}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"engine": "simulator", "model": "none"}, Verdict.ENVIRONMENT_CHANGED),
        (
            {"engine": "simulator", "driver": "unknown", "model": "none"},
            Verdict.INCOMPARABLE,
        ),
        ({}, Verdict.ENVIRONMENT_CHANGED),
    ],
)
def test_absent_and_unreadable_names_are_no_pass(values, verdict):
    evidence = changed_source(evidence_of(busy_engine()), 0, found_fingerprint=Fingerprint(values))
    assert judge_state(evidence).verdict is verdict


def test_an_environment_of_which_nothing_could_be_read_is_no_pass():
    nothing = Fingerprint({"driver": "unknown"})
    evidence = changed_source(
        evidence_of(busy_engine()), 0, recorded_fingerprint=nothing, found_fingerprint=nothing
    )
    assert judge_state(evidence).verdict is Verdict.INCOMPARABLE
    absent = changed_source(evidence_of(busy_engine()), 0, found_fingerprint=None)
    assert judge_state(absent).verdict is Verdict.INCOMPARABLE
    assert judge_state(replace(evidence, sources=())).verdict is Verdict.INCOMPARABLE


@pytest.mark.parametrize("how", ["incarnation", "nonce"])
def test_a_restart_ends_the_judgement_and_every_session(how):
    evidence = evidence_of(busy_engine(ranks=2))
    if how == "incarnation":
        evidence = replace(evidence, incarnation_found="life-2")
    else:
        evidence = changed_source(evidence, 2, found_nonce=18)
    judgement = judge_state(evidence)
    assert judgement.verdict is Verdict.RESTARTED
    assert [s.verdict for s in judgement.sessions] == [Verdict.RESTARTED] * 4


def test_a_missing_rank_is_named_and_no_session_passes():
    evidence = evidence_of(busy_engine(ranks=2))
    for missing in (
        replace(evidence, ranks=evidence.ranks[:1]),
        replace(
            evidence,
            ranks=(
                evidence.ranks[0],
                replace(evidence.ranks[1], attested=Missing(Lack.NOT_ATTESTED, "no answer")),
            ),
        ),
        with_expected_rank(evidence, 1, Missing(Lack.HOLE, "ledger was full")),
    ):
        judgement = judge_state(missing)
        assert judgement.verdict is Verdict.INCOMPARABLE
        assert [f.rank for f in judgement.findings] == [1]
        assert {s.verdict for s in judgement.sessions} == {Verdict.INCOMPARABLE}


def test_a_scheduler_that_did_not_attest_is_no_pass():
    evidence = evidence_of(busy_engine())
    judgement = judge_state(
        replace(evidence, attested=Missing(Lack.NOT_ATTESTED, "no answer in 5 s"))
    )
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert "no answer in 5 s" in judgement.findings[0].reason


@pytest.mark.parametrize(
    ("why", "verdict"),
    [
        (Lack.NOT_RECORDED, Verdict.INCOMPARABLE),
        (Lack.HOLE, Verdict.INCOMPARABLE),
        (Lack.NEVER_PASSED, Verdict.POSITION_MISMATCH),
    ],
)
def test_a_boundary_without_a_record_is_no_pass(why, verdict):
    evidence = replace(evidence_of(busy_engine()), expected=Missing(why, "because"))
    judgement = judge_state(evidence)
    assert judgement.verdict is verdict
    assert {s.verdict for s in judgement.sessions} == {verdict}
    assert "because" in judgement.findings[0].reason


def test_steps_beyond_the_record_are_believed_only_up_to_the_allowance():
    evidence = evidence_of(busy_engine())
    launched = evidence.attested.launched
    assert judge_state(replace(evidence, newest_step=launched - 2)).verdict.passes
    judgement = judge_state(replace(evidence, newest_step=launched - 3))
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert "not recorded" in judgement.findings[0].reason


def with_late_steps(engine: Engine, late: int, *, scheduler: bool, rank: bool) -> StateEvidence:
    """Evidence whose newest `late` steps were recorded only after the restore."""
    first_late = engine.launched - late + 1

    def fold(state, log, is_late: bool):
        for event in log:
            newest = is_late and getattr(event, "step", 0) >= first_late
            state.apply(event, Witness.LATE if newest else Witness.WITNESSED)
        return state

    expected = fold(SchedulerState(), engine.scheduler_log, scheduler)
    evidence = replace(evidence_of(engine), expected=expected)
    return with_expected_rank(evidence, 0, fold(RankState([GROUP]), engine.rank_logs[0], rank))


@pytest.mark.parametrize("late", [1, 2])
def test_late_records_are_believed_up_to_the_allowance_and_counted(late):
    evidence = with_late_steps(busy_engine(), late, scheduler=True, rank=True)
    judgement = judge_state(evidence)
    assert judgement.verdict is Verdict.RESUMED_EXACT
    # Four sessions in steady decode: one row each in every late step.
    assert judgement.compared.kv_rows_late == 4 * late


def test_a_scheduler_or_a_rank_that_was_recorded_too_late_is_no_pass():
    for scheduler in (True, False):
        evidence = with_late_steps(busy_engine(), 3, scheduler=scheduler, rank=not scheduler)
        judgement = judge_state(evidence)
        assert judgement.verdict is Verdict.INCOMPARABLE
        assert "after the restore" in judgement.findings[0].reason


@pytest.mark.parametrize(
    ("first", "last", "verdict"),
    [
        (9, 9, Verdict.RESUMED_EXACT),
        (3, 7, Verdict.RESUMED_EXACT),
        (3, 6, Verdict.POSITION_MISMATCH),
        (10, 12, Verdict.POSITION_MISMATCH),
    ],
)
def test_the_boundary_lies_in_the_marks_window(first, last, verdict):
    evidence = evidence_of(busy_engine())
    assert evidence.attested.launched == 9
    assert judge_state(replace(evidence, window=StepWindow(first, last))).verdict is verdict


def test_rolled_back_steps_are_counted():
    evidence = evidence_of(busy_engine())
    assert judge_state(replace(evidence, newest_step=14)).rolled_back_steps == 5


def test_a_hole_in_a_ranks_record_is_no_pass_and_says_how_much():
    engine = busy_engine(ranks=2)
    evidence = evidence_of(engine)
    log = list(engine.rank_logs[1])
    log.insert(4, Hole(1, 4, 4, "queue was full"))
    judgement = judge_state(with_expected_rank(evidence, 1, folded_rank(log)))
    assert judgement.verdict is Verdict.INCOMPARABLE
    finding = judgement.sessions[0].findings[0]
    assert finding.rank == 1
    assert "queue was full" in finding.reason
    assert finding.positions[0][0] == 0


def test_a_broken_scheduler_record_is_no_pass():
    engine = busy_engine()
    evidence = evidence_of(engine)
    state = folded(engine.scheduler_log)
    state.apply(Hole(1, 9, 9, "queue was full"))
    judgement = judge_state(replace(evidence, expected=state))
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert "queue was full" in judgement.findings[0].reason


@BOTH
def test_rows_that_a_rank_did_not_read_are_no_pass(ranks, depth):
    evidence = evidence_of(busy_engine(ranks, depth))
    kv = evidence.ranks[0].attested.kv[1:]
    judgement = judge_state(with_rank(evidence, 0, kv=kv))
    assert judgement.verdict is Verdict.INCOMPARABLE
    assert "not attested" in judgement.sessions[0].findings[0].reason
    judgement = judge_state(with_rank(evidence, 0, kv=()))
    assert {s.verdict for s in judgement.sessions} == {Verdict.INCOMPARABLE}


def test_kv_that_was_never_recorded_is_no_pass():
    evidence = evidence_of(busy_engine())
    weights = evidence.ranks[0].expected.weights
    empty = RankState(evidence.ranks[0].expected.kv_groups)
    empty.apply(WeightDigests(weights))
    judgement = judge_state(with_expected_rank(evidence, 0, empty))
    assert {s.verdict for s in judgement.sessions} == {Verdict.INCOMPARABLE}
    assert judgement.compared.kv_rows == 0


def test_a_session_all_in_the_null_block_is_no_pass():
    engine = busy_engine()
    evidence = evidence_of(engine)
    state = folded(engine.scheduler_log)
    for each in state.sessions.values():
        each.tables[0] = [0] * len(each.tables[0])
    judgement = judge_state(replace(evidence, expected=state))
    assert {s.verdict for s in judgement.sessions} == {Verdict.INCOMPARABLE}


def test_weights_that_were_not_compared_are_no_pass():
    evidence = evidence_of(busy_engine())
    unread = with_rank(evidence, 0, weights=None)
    assert judge_state(unread).verdict is Verdict.INCOMPARABLE
    scrub = replace(unread, weights=WeightsCheck.WHERE_READ)
    assert judge_state(scrub).verdict is Verdict.RESUMED_EXACT
    late = folded_rank([e for e in busy_engine().rank_logs[0] if not isinstance(e, WeightDigests)])
    late.apply(WeightDigests(evidence.ranks[0].expected.weights), Witness.LATE)
    assert judge_state(with_expected_rank(evidence, 0, late)).verdict is Verdict.INCOMPARABLE


def test_nothing_in_flight_needs_weights_and_environment():
    engine = Engine()
    engine.step()
    evidence = evidence_of(engine)
    assert judge_state(evidence).verdict is Verdict.NOTHING_IN_FLIGHT
    unread = with_rank(evidence, 0, weights=None)
    assert judge_state(unread).verdict is Verdict.INCOMPARABLE
    unread = replace(unread, weights=WeightsCheck.WHERE_READ)
    assert judge_state(unread).verdict is Verdict.INCOMPARABLE


def test_a_record_in_doubt_is_no_pass():
    engine = busy_engine()
    state = folded(engine.scheduler_log)
    state.sessions[0].doubt = "step 4 was launched at position 9"
    judgement = judge_state(replace(evidence_of(engine), expected=state))
    assert judgement.verdict is Verdict.INCOMPARABLE


def test_rows_that_fell_out_of_a_sliding_window_are_not_judged():
    engine = busy_engine()
    request = engine.requests[1]
    outside = request.computed + request.in_flight - 6
    evidence = evidence_of(engine)
    window = replace(evidence.ranks[0].expected.kv_groups[0], sliding_window=6)
    state = RankState([window])
    for event in engine.rank_logs[0]:
        state.apply(event)
    evidence = with_expected_rank(evidence, 0, state)
    evidence = with_rank(evidence, 0, kv_groups=(window,))
    assert judge_state(evidence).verdict is Verdict.RESUMED_EXACT

    def flipped(position: int) -> Verdict:
        kv = []
        for part in evidence.ranks[0].attested.kv:
            at = position - part.first_position
            digests = part.digests.copy()
            if part.session_id == request.session_id and 0 <= at < len(digests):
                digests[at] ^= np.uint64(1)
            kv.append(replace(part, digests=digests))
        return judge_state(with_rank(evidence, 0, kv=tuple(kv))).verdict

    assert flipped(outside) is Verdict.RESUMED_EXACT
    assert flipped(outside + 1) is Verdict.KV_MISMATCH


def test_other_kv_groups_than_recorded_are_no_pass():
    evidence = evidence_of(busy_engine())
    group = evidence.ranks[0].expected.kv_groups[0]
    other = replace(group, layers=(0, 1, 2, 3, 9))
    judgement = judge_state(with_rank(evidence, 0, kv_groups=(other,)))
    assert judgement.verdict is Verdict.INCOMPARABLE


def test_blocks_allocated_ahead_are_not_compared():
    evidence = evidence_of(busy_engine())
    found = session(evidence, 0)
    ahead = u32([*found.blocks[0].blocks, 39])
    update = BlockUpdate(found.row, 0, 0, ahead)
    assert judge_state(with_session(evidence, 0, blocks=(update,))).verdict.passes


def test_the_worst_fault_is_the_workers():
    evidence = evidence_of(busy_engine())
    tokens = session(evidence, 0).tokens.copy()
    tokens[2] += 1
    broken = with_session(evidence, 0, tokens=tokens)
    broken = with_session(broken, 1, computed=session(evidence, 1).computed - 1)
    judgement = judge_state(broken)
    assert judgement.verdict is Verdict.POSITION_MISMATCH
    assert {s.verdict for s in judgement.sessions} >= {
        Verdict.TOKENS_MISMATCH,
        Verdict.POSITION_MISMATCH,
        Verdict.RESUMED_EXACT,
    }
