"""Continuations: what is identical, noise, nothing, and what becomes of the verdict."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import LAW, busy_engine, evidence_of

from sidecar.core.continuation import (
    Continuation,
    ContinuationCheck,
    ContinuationResult,
    ContinuationSettings,
    Exactness,
    Mode,
    Outcome,
    StreamEnd,
    UnseededRule,
    compare_continuation,
    not_chosen,
    not_compared,
    score_continuation,
)
from sidecar.core.final import (
    Verification,
    judge_session,
    judge_timeout,
    judge_worker,
    judge_worker_state,
)
from sidecar.core.judge import judge_state
from sidecar.core.verdicts import Compared, Finding, SessionVerdict, Verdict, worst_of

NOISY = ContinuationSettings(near_tie_margin=0.5)
EXACT = replace(NOISY, exactness=Exactness.BATCH_INVARIANT)
VERIFICATION = Verification("v1", "w", "life-1", 1, "hook")
TOKENS = st.lists(st.integers(0, 5), max_size=12)


@LAW
@given(TOKENS, TOKENS)
def test_identical_means_equal_as_far_as_both_go(reference, found):
    result = compare_continuation(reference, found, [], EXACT)
    common = min(len(reference), len(found))
    if result.outcome is Outcome.IDENTICAL:
        assert reference[:common] == found[:common]
        assert result.compared == common > 0
    elif result.outcome is Outcome.DIVERGED:
        first = result.first_difference
        assert reference[:first] == found[:first]
        assert reference[first] != found[first]
        assert (result.expected, result.found) == (reference[first], found[first])
    else:
        assert result.outcome is Outcome.NOTHING_COMPARED
        assert common == 0


@pytest.mark.parametrize(
    ("settings", "margin", "outcome"),
    [
        (EXACT, 0.1, Outcome.DIVERGED),
        (EXACT, None, Outcome.DIVERGED),
        (NOISY, 0.1, Outcome.NEAR_TIE),
        (NOISY, 0.5, Outcome.DIVERGED),
        (NOISY, 3.0, Outcome.DIVERGED),
        (NOISY, None, Outcome.UNMEASURED),
        (NOISY, float("nan"), Outcome.UNMEASURED),
        (NOISY, float("inf"), Outcome.UNMEASURED),
    ],
)
def test_a_difference_is_weighed_by_its_margin(settings, margin, outcome):
    result = compare_continuation([1, 2, 3], [1, 9, 3], [5.0, margin, 5.0], settings)
    assert (result.outcome, result.first_difference) == (outcome, 1)


def test_a_margin_beyond_the_known_ones_is_unknown():
    assert compare_continuation([1, 2], [1, 9], [5.0], NOISY).outcome is Outcome.UNMEASURED


def test_a_session_that_ended_early_differs_where_it_ended():
    result = compare_continuation([1, 2], [1, 2, 3], [], EXACT, reference_end=StreamEnd.ENDED)
    assert (result.outcome, result.first_difference) == (Outcome.DIVERGED, 2)
    assert (result.expected, result.found) == (None, 3)
    assert compare_continuation([1, 2], [1, 2, 3], [], EXACT).outcome is Outcome.IDENTICAL


def test_too_few_tokens_are_nothing_unless_both_ended():
    few = replace(EXACT, minimum_tokens=4)
    assert compare_continuation([1, 2], [1, 2], [], few).outcome is Outcome.NOTHING_COMPARED
    ended = StreamEnd.ENDED
    result = compare_continuation([1, 2], [1, 2], [], few, reference_end=ended, found_end=ended)
    assert (result.outcome, result.ended_alike) == (Outcome.IDENTICAL, True)
    none = compare_continuation([], [], [], few, reference_end=ended, found_end=ended)
    assert none.outcome is Outcome.NOTHING_COMPARED


@pytest.mark.parametrize(
    ("logprobs", "outcome"),
    [
        ([-1.0, -2.0], Outcome.PLAUSIBLE),
        ([-9.0, -9.0], Outcome.IMPLAUSIBLE),
        ([float("nan")], Outcome.IMPLAUSIBLE),
        ([float("-inf"), 0.0], Outcome.IMPLAUSIBLE),
        ([], Outcome.NOTHING_COMPARED),
    ],
)
def test_scores(logprobs, outcome):
    assert score_continuation(logprobs, NOISY).outcome is outcome


def result(mode: Mode, outcome: Outcome, compared=20, **more) -> ContinuationResult:
    return ContinuationResult(mode, Continuation(outcome, compared, reason="why", **more), 100)


STATE = SessionVerdict("s", Verdict.RESUMED_EXACT, compared=Compared(kv_rows=9))
SHADOW, RECORDED = Mode.INDEPENDENT, Mode.RECORDED


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([result(SHADOW, Outcome.IDENTICAL)], Verdict.RESUMED_EXACT),
        ([result(RECORDED, Outcome.IDENTICAL)], Verdict.RESUMED_EXACT),
        ([result(RECORDED, Outcome.IDENTICAL, 15)], Verdict.INCOMPARABLE),
        ([result(RECORDED, Outcome.IDENTICAL, 2, ended_alike=True)], Verdict.RESUMED_EXACT),
        (
            [result(RECORDED, Outcome.IDENTICAL, 15), result(SHADOW, Outcome.IDENTICAL)],
            Verdict.RESUMED_EXACT,
        ),
        (
            [result(RECORDED, Outcome.IDENTICAL), result(SHADOW, Outcome.NEAR_TIE)],
            Verdict.RESUMED_EXACT,
        ),
        (
            [result(RECORDED, Outcome.IDENTICAL, 15), result(SHADOW, Outcome.NEAR_TIE)],
            Verdict.INCOMPARABLE,
        ),
        (
            [result(RECORDED, Outcome.IDENTICAL), result(SHADOW, Outcome.DIVERGED)],
            Verdict.DIVERGED,
        ),
        ([result(SHADOW, Outcome.NEAR_TIE)], Verdict.INCOMPARABLE),
        ([result(SHADOW, Outcome.UNMEASURED)], Verdict.INCOMPARABLE),
        ([result(SHADOW, Outcome.DIVERGED)], Verdict.DIVERGED),
        (
            [result(SHADOW, Outcome.IDENTICAL), result(Mode.CACHED, Outcome.DIVERGED)],
            Verdict.DIVERGED,
        ),
        (
            [result(SHADOW, Outcome.IDENTICAL), result(Mode.CACHED, Outcome.NEAR_TIE)],
            Verdict.INCOMPARABLE,
        ),
        ([result(Mode.FORCED, Outcome.PLAUSIBLE)], Verdict.INCOMPARABLE),
        ([result(Mode.FORCED, Outcome.IMPLAUSIBLE)], Verdict.INCOMPARABLE),
        ([ContinuationResult(SHADOW, not_compared("engine gone"))], Verdict.INCOMPARABLE),
        ([ContinuationResult(SHADOW, not_chosen("budget"))], Verdict.RESUMED_EXACT),
        ([], Verdict.INCOMPARABLE),
    ],
)
def test_a_sessions_final_verdict(results, verdict):
    final = judge_session(STATE, results, NOISY)
    assert final.verdict is verdict
    assert final.compared.kv_rows == 9
    if not verdict.passes:
        assert final.findings
        assert all(finding.reason for finding in final.findings)


def test_a_plausible_score_passes_only_by_setting():
    scored = [result(Mode.FORCED, Outcome.PLAUSIBLE)]
    settings = replace(NOISY, unseeded=UnseededRule.SCORED_PASS)
    final = judge_session(STATE, scored, settings)
    assert (final.verdict, final.continuation_modes) == (Verdict.RESUMED_EXACT, ("scored",))
    assert final.compared.shadow_tokens == 0
    assert judge_session(STATE, [result(Mode.FORCED, Outcome.IMPLAUSIBLE)], settings).verdict is (
        Verdict.INCOMPARABLE
    )


@pytest.mark.parametrize("verdict", [v for v in Verdict if not v.passes and v])
def test_no_continuation_mends_a_state(verdict):
    state = replace(STATE, verdict=verdict)
    final = judge_session(state, [result(SHADOW, Outcome.IDENTICAL)], NOISY)
    assert final.verdict is verdict


def test_the_first_differing_token_is_told_by_its_position():
    found = compare_continuation([1, 2, 3], [1, 9, 3], [1.0, 2.5, 1.0], NOISY)
    final = judge_session(STATE, [ContinuationResult(SHADOW, found, 100)], NOISY)
    (finding,) = final.findings
    assert finding.verdict is Verdict.DIVERGED
    assert finding.first_differing_position == 101
    assert finding.logprob_margin == 2.5
    assert (finding.expected, finding.found) == ("token 2", "token 9")


def worker_of(results, settings=NOISY, engine=None):
    state = judge_state(evidence_of(engine or busy_engine()))
    by_session = {s.session_id: results for s in state.sessions}
    return judge_worker(VERIFICATION, state, by_session, settings)


def test_a_clean_worker_passes_and_counts_what_was_compared():
    worker = worker_of([result(RECORDED, Outcome.IDENTICAL), result(SHADOW, Outcome.IDENTICAL, 8)])
    assert (worker.verdict, worker.state_verdict, worker.final) == (
        Verdict.RESUMED_EXACT,
        Verdict.RESUMED_EXACT,
        True,
    )
    assert (worker.compared.recorded_tokens, worker.compared.shadow_tokens) == (80, 32)
    assert worker.compared.kv_rows > 0


def test_a_worker_of_which_no_continuation_was_compared_does_not_pass():
    left_out = [ContinuationResult(SHADOW, not_chosen("budget"))]
    worker = worker_of(left_out)
    assert worker.verdict is Verdict.INCOMPARABLE
    assert worker.findings
    asked = replace(NOISY, check=ContinuationCheck.NOT_REQUESTED)
    assert worker_of(left_out, asked).verdict is Verdict.RESUMED_EXACT
    assert worker_of([], asked).verdict is Verdict.RESUMED_EXACT


def test_a_divergence_counts_even_where_no_continuation_was_asked_for():
    asked = replace(NOISY, check=ContinuationCheck.NOT_REQUESTED)
    assert worker_of([result(SHADOW, Outcome.DIVERGED)], asked).verdict is Verdict.DIVERGED


def test_the_state_verdict_alone_is_never_final():
    state = judge_state(evidence_of(busy_engine()))
    worker = judge_worker_state(VERIFICATION, state)
    assert (worker.verdict, worker.final) == (Verdict.RESUMED_EXACT, False)


def test_a_worker_with_nothing_in_flight_needs_no_continuation():
    from engine_simulator import Engine

    engine = Engine()
    engine.step()
    assert worker_of([], engine=engine).verdict is Verdict.NOTHING_IN_FLIGHT


def test_a_timeout_is_final_and_no_pass():
    worker = judge_timeout(VERIFICATION, "no answer in 30 s")
    assert (worker.verdict, worker.final) == (Verdict.TIMEOUT, True)
    assert worker.findings == (Finding(Verdict.TIMEOUT, "no answer in 30 s"),)


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([], Verdict.INCOMPARABLE),
        ([Verdict.RESUMED_EXACT, Verdict.UNSPECIFIED], Verdict.INCOMPARABLE),
        ([Verdict.RESUMED_EXACT, Verdict.EQUIVALENT], Verdict.EQUIVALENT),
        ([Verdict.KV_MISMATCH, Verdict.LOST], Verdict.KV_MISMATCH),
    ],
)
def test_the_worst_of_verdicts(verdicts, worst):
    assert worst_of(verdicts) is worst


def test_only_three_verdicts_pass():
    assert {v for v in Verdict if v.passes} == {
        Verdict.RESUMED_EXACT,
        Verdict.EQUIVALENT,
        Verdict.NOTHING_IN_FLIGHT,
    }
