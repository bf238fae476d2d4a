import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shadow_fakes import FakeEngine, decode

from sidecar.core.events import Sampling
from sidecar.shadow.errors import EngineFrozen, EngineRefused, EngineUnreachable
from sidecar.shadow.plan import ShadowRequest
from sidecar.shadow.request_ids import ShadowIds
from sidecar.shadow.results import FailureKind
from sidecar.shadow.runner import run_shadow
from sidecar.shadow.settings import SeededReplay, ShadowMode, ShadowSettings

GREEDY = Sampling(temperature=0.0)
SEEDED = Sampling(temperature=0.8, seed=7)


def asked(session_id="a", sampling=GREEDY, *, restored_at=9, outputs=20, k=4):
    prompt = (*tuple(session_id.encode()), 1, 2, 3)
    return ShadowRequest(
        session_id=session_id,
        prompt_tokens=prompt,
        output_tokens=decode(prompt, sampling, outputs),
        restored_at=restored_at,
        sampling=sampling,
        k=k,
    )


def history(request):
    return (*request.prompt_tokens, *request.output_tokens)


@given(
    st.sampled_from([GREEDY, SEEDED, Sampling(temperature=1.0, seed=0)]),
    st.integers(4, 20),
    st.integers(1, 4),
)
@settings(max_examples=30, deadline=None)
def test_independent_replay_gives_the_session_s_own_tokens(sampling, restored_at, k):
    request = asked(sampling=sampling, restored_at=restored_at, k=k)
    (result,) = asyncio.run(run_shadow(FakeEngine(), [request], ShadowSettings()))
    end = result.first_position + len(result.tokens)
    assert end == restored_at + k
    assert result.tokens == history(request)[result.first_position : end]


async def test_seeded_replay_in_mid_generator_would_be_wrong():
    request = asked(sampling=SEEDED)
    positional = ShadowSettings(seeded_replay=SeededReplay.FROM_POSITION)
    (result,) = await run_shadow(FakeEngine(), [request], positional)
    assert result.tokens != history(request)[9:13]


async def test_corrupt_continuation_is_seen_at_its_first_token():
    request = asked(k=6)
    (result,) = await run_shadow(FakeEngine(), [request], ShadowSettings())
    found = list(history(request)[9:15])
    found[2] += 1
    assert [a == b for a, b in zip(result.tokens, found, strict=True)].index(False) == 2


async def test_forced_mode_sees_every_wrong_token():
    request = asked(k=8)
    output = list(request.output_tokens)
    wrong = [11, 14]
    for position in wrong:
        output[position - len(request.prompt_tokens)] += 1
    forced = ShadowSettings(modes=(ShadowMode.FORCED,))
    damaged = ShadowRequest(
        session_id="a",
        prompt_tokens=request.prompt_tokens,
        output_tokens=output,
        restored_at=9,
        sampling=GREEDY,
        k=8,
    )
    (result,) = await run_shadow(FakeEngine(), [damaged], forced)
    # What follows a wrong token is another text, so only the first is surely alone.
    assert result.scores[0].shortfall == 0
    assert result.scores[2].position == 11
    assert result.scores[2].shortfall == pytest.approx(4.0)
    margins = result.margins_against(history(damaged)[9:17])
    assert margins[2] == pytest.approx(4.0)
    assert margins[0] == pytest.approx(1.0)


async def test_unseeded_session_has_scores_and_no_tokens():
    (result,) = await run_shadow(
        FakeEngine(), [asked(sampling=Sampling(temperature=1.0))], ShadowSettings()
    )
    assert result.mode is ShadowMode.FORCED
    assert result.tokens == ()
    assert len(result.scores) == 4
    assert set(result.margins()) == {None}


async def test_salt_of_an_independent_replay_is_its_own():
    engine = FakeEngine()
    await run_shadow(engine, [asked("a"), asked("b")], ShadowSettings())
    salts = {call["cache_salt"] for call in engine.calls}
    assert len(salts) == 2
    assert None not in salts


async def test_cached_replay_has_no_salt():
    engine = FakeEngine(cached_tokens=8)
    (result,) = await run_shadow(engine, [asked()], ShadowSettings(modes=(ShadowMode.CACHED,)))
    assert engine.calls[0]["cache_salt"] is None
    assert result.cached_tokens == 8
    assert result.note == ""


async def test_cached_replay_says_when_nobody_knows_what_it_read():
    settings_ = ShadowSettings(modes=(ShadowMode.CACHED,))
    (result,) = await run_shadow(FakeEngine(), [asked()], settings_)
    assert "perhaps nothing restored was read" in result.note


async def test_cached_replay_that_read_nothing_proves_nothing():
    (result,) = await run_shadow(
        FakeEngine(cached_tokens=0), [asked()], ShadowSettings(modes=(ShadowMode.CACHED,))
    )
    assert result.error.kind is FailureKind.NOTHING_READ
    assert result.tokens == ()


async def test_independent_replay_that_read_the_cache_proves_nothing():
    (result,) = await run_shadow(FakeEngine(cached_tokens=32), [asked()], ShadowSettings())
    assert result.error.kind is FailureKind.NOT_ISOLATED
    assert result.tokens == ()


async def test_requests_carry_ids_that_the_recorder_knows():
    engine = FakeEngine()
    ids = ShadowIds()
    await run_shadow(engine, [asked()], ShadowSettings(), ids=ids)
    assert ids.is_shadow(f"cmpl-{engine.calls[0]['request_id']}-0-8a7b")


async def test_concurrency_is_bounded():
    engine = FakeEngine(delay_s=0.01)
    requests = [asked(chr(97 + number)) for number in range(9)]
    results = await run_shadow(engine, requests, ShadowSettings(concurrency=3))
    assert engine.most_running == 3
    assert all(result.error is None for result in results)


async def test_replays_wait_while_users_do():
    engine = FakeEngine(waiting=[5, 3, 1, 0])
    (result,) = await run_shadow(engine, [asked()], ShadowSettings(poll_s=0.001))
    assert result.error is None
    assert engine.looks == 4


async def test_replay_gives_way_until_its_deadline_and_says_so():
    engine = FakeEngine(waiting=[7] * 10_000)
    (result,) = await run_shadow(engine, [asked()], ShadowSettings(poll_s=0.001, deadline_s=0.05))
    assert engine.calls == []
    assert result.error.kind is FailureKind.DEADLINE
    assert "7 waiting requests" in result.error.reason


async def test_engine_without_load_figures_is_still_replayed():
    (result,) = await run_shadow(FakeEngine(waiting=[None]), [asked()], ShadowSettings())
    assert result.error is None


async def test_deadline_ends_the_round_and_keeps_what_was_done():
    engine = FakeEngine(delay_s=0.06)
    requests = [asked(chr(97 + number)) for number in range(6)]
    results = await run_shadow(engine, requests, ShadowSettings(concurrency=2, deadline_s=0.1))
    done = [result for result in results if result.error is None]
    late = [result for result in results if result.error is not None]
    assert len(done) == 2
    assert {result.error.kind for result in late} == {FailureKind.DEADLINE}
    assert engine.running == 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EngineUnreachable("http://x", "refused"), FailureKind.UNREACHABLE),
        (EngineRefused(400, "no"), FailureKind.REFUSED),
        (
            EngineFrozen(silent_s=1.0, total_s=2.0, tokens_received=3),
            FailureKind.FROZEN,
        ),
    ],
)
async def test_dead_engine_fails_every_session_by_name(error, kind):
    requests = [asked("a"), asked("b")]
    results = await run_shadow(FakeEngine(fail_with=error), requests, ShadowSettings())
    assert [(result.session_id, result.error.kind) for result in results] == [
        ("a", kind),
        ("b", kind),
    ]


async def test_progress_counts_up_to_the_total():
    seen = []
    requests = [asked("a"), asked("b"), asked("c", restored_at=1)]
    results = await run_shadow(FakeEngine(), requests, ShadowSettings(), seen.append)
    assert [(step.done, step.total) for step in seen] == [(1, 2), (2, 2)]
    assert len(results) == 3


async def test_no_session_is_no_work():
    engine = FakeEngine(fail_with=EngineRefused(500, "must not be asked"))
    assert await run_shadow(engine, [], ShadowSettings()) == []
