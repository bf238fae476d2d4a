from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shadow_fakes import decode

from sidecar.core.events import Sampling
from sidecar.shadow.plan import ShadowRequest, plan_shadow
from sidecar.shadow.results import FailureKind
from sidecar.shadow.settings import SeededReplay, ShadowMode, ShadowSettings

GREEDY = Sampling(temperature=0.0)
SEEDED = Sampling(temperature=0.8, seed=7)
PROMPT = (1, 2, 3, 4)


def request(session_id="a", sampling=GREEDY, *, restored_at=9, outputs=12, k=4, **more):
    return ShadowRequest(
        session_id=session_id,
        prompt_tokens=PROMPT,
        output_tokens=decode(PROMPT, sampling, outputs),
        restored_at=restored_at,
        sampling=sampling,
        k=k,
        **more,
    )


def only(plan):
    assert len(plan.replays) == 1, plan
    return plan.replays[0]


def test_greedy_session_is_replayed_from_the_restored_position():
    asked = request()
    replay = only(plan_shadow([asked], ShadowSettings()))
    assert replay.tokens == (PROMPT + asked.output_tokens)[:9]
    assert (replay.first_position, replay.max_tokens, replay.plain_greedy) == (9, 4, True)


def test_seeded_session_is_replayed_from_its_prompt():
    replay = only(plan_shadow([request(sampling=SEEDED)], ShadowSettings()))
    assert replay.tokens == PROMPT
    assert (replay.first_position, replay.max_tokens, replay.plain_greedy) == (4, 9, False)
    assert replay.sampling.seed == 7


def test_seeded_session_may_start_at_its_position_where_noise_is_positional():
    settings = ShadowSettings(seeded_replay=SeededReplay.FROM_POSITION)
    assert only(plan_shadow([request(sampling=SEEDED)], settings)).first_position == 9


@pytest.mark.parametrize(
    "change",
    [
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"repetition_penalty": 1.2},
        {"min_tokens": 6},
        {"stop": ("END",)},
    ],
)
def test_what_counts_output_is_replayed_from_the_prompt(change):
    asked = request(sampling=replace(GREEDY, **change))
    settings = ShadowSettings(seeded_replay=SeededReplay.FROM_POSITION)
    assert only(plan_shadow([asked], settings)).first_position == len(PROMPT)


def test_minimum_that_is_used_up_is_not_asked_for_again():
    replay = only(plan_shadow([request(sampling=replace(GREEDY, min_tokens=5))], ShadowSettings()))
    assert (replay.first_position, replay.sampling.min_tokens) == (9, 0)


def test_minimum_is_cut_to_the_replayed_window():
    replay = only(plan_shadow([request(sampling=replace(GREEDY, min_tokens=50))], ShadowSettings()))
    assert (replay.max_tokens, replay.sampling.min_tokens) == (9, 9)


def test_unseeded_sampling_is_scored_whatever_the_modes():
    plan = plan_shadow(
        [request(sampling=Sampling(temperature=1.0))],
        ShadowSettings(modes=(ShadowMode.INDEPENDENT, ShadowMode.CACHED)),
    )
    replay = only(plan)
    assert replay.mode is ShadowMode.FORCED
    assert "without a known seed" in replay.note


def test_forced_scores_the_emitted_continuation():
    asked = request()
    replay = only(plan_shadow([asked], ShadowSettings(modes=(ShadowMode.FORCED,))))
    assert replay.tokens == (PROMPT + asked.output_tokens)[:13]
    assert replay.first_position == 9


def test_forced_needs_a_token_after_the_restored_position():
    plan = plan_shadow([request(restored_at=16)], ShadowSettings(modes=(ShadowMode.FORCED,)))
    assert not plan.replays
    assert plan.left_out[0].kind is FailureKind.NOTHING_TO_REPLAY


def test_cached_replay_uses_the_salt_of_the_session_or_says_that_it_cannot():
    settings = ShadowSettings(modes=(ShadowMode.CACHED,))
    assert only(plan_shadow([request()], settings)).cache_salt is None
    known = request(cache_salted=True, cache_salt="pepper")
    assert only(plan_shadow([known], settings)).cache_salt == "pepper"
    plan = plan_shadow([request(cache_salted=True)], settings)
    assert [left.kind for left in plan.left_out] == [FailureKind.SALT_UNKNOWN]


def test_independent_replay_never_gets_the_session_s_salt():
    known = request(cache_salted=True, cache_salt="pepper")
    assert only(plan_shadow([known], ShadowSettings())).cache_salt is None


def test_cached_replay_from_the_prompt_says_how_little_it_reads():
    settings = ShadowSettings(modes=(ShadowMode.CACHED,))
    assert "only the prompt's KV" in only(plan_shadow([request(sampling=SEEDED)], settings)).note


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (request(restored_at=3), FailureKind.INVALID),
        (request(restored_at=17), FailureKind.INVALID),
        (replace(request(), prompt_tokens=()), FailureKind.INVALID),
        (
            request(sampling=replace(GREEDY, unreplayable=("structured_output",))),
            FailureKind.UNREPLAYABLE,
        ),
        (request(k=0), FailureKind.NOTHING_TO_REPLAY),
        (request(sampling=replace(GREEDY, max_tokens=5)), FailureKind.NOTHING_TO_REPLAY),
    ],
)
def test_session_that_cannot_be_replayed_is_left_out_by_name(bad, kind):
    plan = plan_shadow([bad, request("b")], ShadowSettings())
    assert [(left.session_id, left.kind) for left in plan.left_out] == [("a", kind)]
    assert plan.left_out[0].reason
    assert only(plan).session_id == "b"


def test_twin_of_a_session_is_left_out():
    plan = plan_shadow([request(), request()], ShadowSettings())
    assert [left.kind for left in plan.left_out] == [FailureKind.INVALID]


def test_k_ends_at_the_limits_of_session_and_engine():
    asked = request(sampling=replace(GREEDY, max_tokens=7))
    assert only(plan_shadow([asked], ShadowSettings())).max_tokens == 2
    assert only(plan_shadow([request()], ShadowSettings(), max_context=12)).max_tokens == 3
    forced = ShadowSettings(modes=(ShadowMode.FORCED,))
    assert len(only(plan_shadow([request()], forced, max_context=12)).tokens) == 11


def test_smaller_sessions_still_fit_when_a_large_one_does_not():
    large = request("large", outputs=200, restored_at=200)
    plan = plan_shadow([large, request("b"), request("c")], ShadowSettings(token_budget=26))
    assert {replay.session_id for replay in plan.replays} == {"b", "c"}
    assert [(left.session_id, left.kind) for left in plan.left_out] == [
        ("large", FailureKind.OVER_BUDGET)
    ]
    assert "204 tokens" in plan.left_out[0].reason


sessions = st.lists(
    st.builds(
        request,
        session_id=st.text("abcdef", min_size=1, max_size=3),
        sampling=st.sampled_from([GREEDY, SEEDED, Sampling(temperature=1.0)]),
        restored_at=st.integers(0, 20),
        k=st.integers(0, 8),
    ),
    max_size=12,
)


@given(
    sessions,
    st.integers(1, 8),
    st.integers(1, 200),
    st.sets(st.sampled_from(ShadowMode), min_size=1),
    st.one_of(st.none(), st.integers(5, 30)),
)
def test_every_request_is_planned_or_left_out_and_bounds_hold(
    asked, most, budget, modes, max_context
):
    settings = ShadowSettings(modes=tuple(modes), max_sessions=most, token_budget=budget)
    plan = plan_shadow(asked, settings, max_context=max_context)
    named = {r.session_id for r in plan.replays} | {left.session_id for left in plan.left_out}
    assert named == {r.session_id for r in asked}
    assert sum(replay.cost for replay in plan.replays) <= budget
    assert len({replay.session_id for replay in plan.replays}) <= most
    if max_context is not None:
        assert all(replay.cost <= max_context for replay in plan.replays)
    assert all(replay.sampling.min_tokens <= replay.max_tokens for replay in plan.replays)


@given(sessions, st.integers(1, 5), st.text(max_size=4), st.randoms())
def test_choice_depends_on_key_and_names_only(asked, most, key, shuffler):
    unique = list({r.session_id: r for r in asked}.values())
    settings = ShadowSettings(max_sessions=most, sample_key=key)
    first = plan_shadow(unique, settings)
    shuffler.shuffle(unique)
    assert plan_shadow(unique, settings).replays == first.replays


def test_another_key_chooses_other_sessions():
    asked = [request(f"s{number}") for number in range(40)]
    chosen = {
        frozenset(
            replay.session_id
            for replay in plan_shadow(asked, ShadowSettings(max_sessions=5, sample_key=key)).replays
        )
        for key in "abcd"
    }
    assert len(chosen) == 4


@pytest.mark.parametrize(
    "bad",
    [
        {"modes": ()},
        {"modes": (ShadowMode.FORCED, ShadowMode.FORCED)},
        {"k": 0},
        {"logprobs": 1},
        {"concurrency": 0},
        {"deadline_s": float("inf")},
        {"request_timeout_s": 0.0},
    ],
)
def test_bad_setting_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ShadowSettings(**bad)
