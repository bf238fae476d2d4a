"""What the adapter records of an ordinary engine, held against the engine's own memory."""

import random

import pytest
import torch

from engine_adapters.report.attestations import DueAttestation, Origin
from engine_adapters.report.records import CommitRecord, LaunchRecord, RankStepRecord
from tests.engines.vllm_support import folding
from tests.engines.vllm_support.engine import MARKS, running

pytestmark = MARKS

# Prompts longer than a step's budget are prefilled in chunks.
SETTINGS = {"max_num_batched_tokens": 64, "enable_chunked_prefill": True}
CHANCE = random.Random(7)


def prompt(length):
    return [CHANCE.randrange(100, 40_000) for _ in range(length)]


PROMPTS = [prompt(n) for n in (5, 150, 33, 64, 90)]


def greedy(tokens=24, **given):
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, **given)


def seeded(tokens=24, **given):
    from vllm import SamplingParams

    return SamplingParams(temperature=0.9, top_p=0.9, seed=11, max_tokens=tokens, **given)


def workload(engine):
    """Everything whose outcome has to be the same with and without the adapter."""
    return [
        engine.generate(PROMPTS, greedy()),
        # A seeded request whose prefill is cut crashes vLLM's CPU runner (generator offsets).
        engine.generate([PROMPTS[0], PROMPTS[2]], seeded()),
        engine.generate(PROMPTS[:1], seeded(n=3)),
        engine.generate([PROMPTS[1], PROMPTS[1][:100] + prompt_tail()], greedy()),
    ]


def prompt_tail():
    return [7, 8, 9, 10]


@pytest.fixture(scope="module")
def without():
    with running(adapter=False, **SETTINGS) as engine:
        return workload(engine)


@pytest.fixture(scope="module")
def engine(without):
    with running(**SETTINGS) as engine:
        yield engine


@pytest.fixture(autouse=True)
def fresh(request):
    if "engine" in request.fixturenames:
        running_engine = request.getfixturevalue("engine")
        for reporter in running_engine.reporters:
            reporter.attested.clear()
            reporter.owed.clear()
            reporter.every = 0


def records(engine, kind, since=0):
    reporter = engine.rank if kind is RankStepRecord else engine.scheduler
    return [r for r in reporter.records[since:] if isinstance(r, kind)]


def test_output_is_that_of_an_engine_without_the_adapter(engine, without):
    assert workload(engine) == without
    assert engine.scheduler.records
    assert engine.rank.records


def test_every_attestation_equals_the_record_position_by_position(engine):
    engine.scheduler.every = 5
    workload(engine)
    rows, sessions = folding.check_attestations(engine)
    assert rows > 5_000
    assert sessions > 50


def test_chunked_prefill_starts_where_the_last_chunk_ended(engine):
    since = len(engine.scheduler.records)
    engine.generate([prompt(200)], greedy(3))
    launches = records(engine, LaunchRecord, since)
    spans = [(int(r.starts[0]), int(r.counts[0]) if r.counts is not None else 1) for r in launches]
    assert spans[:4] == [(0, 64), (64, 64), (128, 64), (192, 8)]
    commits = records(engine, CommitRecord, since)
    assert [len(r.tokens) for r in commits[:4]] == [0, 0, 0, 1]


def test_a_prefix_hit_starts_behind_rows_that_another_session_wrote(engine):
    shared = prompt(96)
    engine.generate([shared], greedy(2))
    since, every = len(engine.scheduler.records), engine.scheduler
    every.every = 2
    engine.llm.generate([{"prompt_token_ids": [*shared, 5, 6, 7]}], greedy(8), use_tqdm=False)
    first = records(engine, LaunchRecord, since)[0]
    assert int(first.starts[0]) == 96
    rows, _ = folding.check_attestations(engine)
    assert rows >= 99


def test_every_child_of_n_is_a_session(engine):
    since = len(engine.scheduler.records)
    engine.generate([PROMPTS[0]], seeded(4, n=3))
    started = [s for r in records(engine, LaunchRecord, since) for s in r.started]
    assert len({s.session_id for s in started}) == 3
    assert len({s.sampling.seed for s in started}) == 3
    assert all(s.sampling.seed_given for s in started)


def test_the_end_is_told_after_the_last_token(engine):
    since = len(engine.scheduler.records)
    found = engine.generate([PROMPTS[0]], greedy(4))
    commits = records(engine, CommitRecord, since)
    assert [t for r in commits for t in r.tokens] == found[0][0]
    assert [bool(r.ended) for r in commits] == [False, False, False, True]
    assert folding.scheduler_state(engine).sessions == {}


def test_an_abort_ends_the_session_and_its_row_is_used_again(engine):
    step_engine = engine.llm.llm_engine
    for name in ("stays", "goes"):
        step_engine.add_request(name, {"prompt_token_ids": PROMPTS[0]}, greedy(50))
    for _ in range(3):
        step_engine.step()
    step_engine.abort_request(["goes"])
    engine.scheduler.every = 2
    for _ in range(3):
        step_engine.step()
    state = folding.scheduler_state(engine)
    assert [s.session_id.split("-")[0] for s in state.sessions.values()] == ["stays"]
    ended = [e.row for r in records(engine, LaunchRecord)[-4:] for e in r.ended]
    step_engine.add_request("next", {"prompt_token_ids": PROMPTS[2]}, greedy(3))
    step_engine.step()
    assert [s.row for r in records(engine, LaunchRecord)[-1:] for s in r.started] == ended
    while step_engine.has_unfinished_requests():
        step_engine.step()
    folding.check_attestations(engine)
    assert folding.scheduler_state(engine).sessions == {}


def test_a_request_that_never_ran_leaves_no_trace(engine):
    step_engine = engine.llm.llm_engine
    since = len(engine.scheduler.records)
    step_engine.add_request("never", {"prompt_token_ids": PROMPTS[0]}, greedy(5))
    step_engine.abort_request(["never"])
    step_engine.add_request("other", {"prompt_token_ids": PROMPTS[0]}, greedy(2))
    while step_engine.has_unfinished_requests():
        step_engine.step()
    started = [s.session_id for r in records(engine, LaunchRecord, since) for s in r.started]
    assert len(started) == 1
    assert not started[0].startswith("never")


def test_idle_memory_is_read_from_another_thread(engine):
    step_engine = engine.llm.llm_engine
    step_engine.add_request("idle", {"prompt_token_ids": PROMPTS[1]}, greedy(50))
    for _ in range(6):
        step_engine.step()
    due = DueAttestation(77, weights=True, hold=False, origin=Origin.REQUEST)
    for reporter in (engine.scheduler, engine.rank):
        body = reporter.on_idle_attest(due)
        assert body is not None
        reporter.attest(due, body, step=reporter.step, idle=True)
    rows, sessions = folding.check_attestations(engine)
    assert (rows > 150, sessions) == (True, 1)
    assert len(engine.rank.attested[0].body.weights.names) > 100
    step_engine.abort_request(["idle"])
    while step_engine.has_unfinished_requests():
        step_engine.step()


def test_idle_reading_waits_for_a_step_that_runs(engine, monkeypatch):
    due = DueAttestation(78, weights=False, hold=False, origin=Origin.REQUEST)
    runner = engine.llm.llm_engine.model_executor.driver_worker.worker.model_runner
    forward, seen = runner._model_forward, []

    def watched(*args, **kwargs):
        seen.append(engine.rank.on_idle_attest(due))
        return forward(*args, **kwargs)

    monkeypatch.setattr(runner, "_model_forward", watched)
    engine.generate([PROMPTS[0]], greedy(2))
    assert seen == [None, None]


def test_memory_can_be_read_while_the_engine_is_held(engine):
    due = DueAttestation(78, weights=False, hold=False, origin=Origin.REQUEST)
    seen = []
    engine.rank.owe(79, hold=True, origin=Origin.SIGN)
    engine.rank.on_hold = lambda _: seen.append(engine.rank.on_idle_attest(due))
    try:
        engine.generate([PROMPTS[0]], greedy(3))
    finally:
        engine.rank.on_hold = None
    assert len(seen) == 1
    assert seen[0] is not None
    assert [a.due.attest_id for a in engine.rank.attested] == [79]


def test_a_held_rank_has_attested_before_its_step_wrote_anything(engine):
    step_engine = engine.llm.llm_engine
    step_engine.add_request("held", {"prompt_token_ids": PROMPTS[0]}, greedy(9))
    for _ in range(3):
        step_engine.step()
    engine.rank.owe(80, weights=True, hold=True, origin=Origin.SIGN)
    engine.scheduler.owe(81, weights=True, origin=Origin.SIGN)
    before = engine.rank.step
    held_at = []
    engine.rank.on_hold = lambda due: held_at.append((due.attest_id, engine.rank.step))
    step_engine.step()
    engine.rank.on_hold = None
    assert held_at == [(80, before)]
    assert engine.rank.attested[0].step == before
    while step_engine.has_unfinished_requests():
        step_engine.step()


def test_seeded_sessions_have_their_generator_recorded_before_each_step(engine):
    step_engine = engine.llm.llm_engine
    step_engine.add_request("dice", {"prompt_token_ids": PROMPTS[0]}, seeded(6))
    for _ in range(3):
        step_engine.step()
    due = DueAttestation(90, weights=False, hold=False, origin=Origin.REQUEST)
    attested = engine.rank.on_idle_attest(due)
    step_engine.step()
    steps = records(engine, RankStepRecord)[-3:]
    digests = [list(r.sampler_digests) for r in steps]
    # Before the step that follows is now; every step has another state.
    assert digests[-1] == list(attested.sampler_digests)
    assert len({tuple(d) for d in digests}) == 3
    while step_engine.has_unfinished_requests():
        step_engine.step()


def test_a_changed_byte_in_a_live_row_is_seen_at_its_position(engine):
    step_engine = engine.llm.llm_engine
    step_engine.add_request("flip", {"prompt_token_ids": PROMPTS[2]}, greedy(50))
    for _ in range(3):
        step_engine.step()
    due = DueAttestation(91, weights=False, hold=False, origin=Origin.REQUEST)
    before = engine.rank.on_idle_attest(due).kv[0]
    scheduler = engine.scheduler.on_idle_attest(due).sessions[0]
    block = int(scheduler.blocks[0].blocks[0])
    runner = engine.llm.llm_engine.model_executor.driver_worker.worker.model_runner
    layer = runner.kv_caches[12]
    bits = layer.view(dtype=torch.int16)
    bits[block, 1, 3, 5] ^= 1
    after = engine.rank.on_idle_attest(due).kv[0]
    different = before.digests != after.digests
    assert different.sum() == 1
    # Layer 12 lies in the second of (8, 8, 7, 7) layers.
    assert different.any(axis=0).tolist() == [False, True, False, False]
    bits[block, 1, 3, 5] ^= 1
    assert (engine.rank.on_idle_attest(due).kv[0].digests == before.digests).all()
    step_engine.abort_request(["flip"])
    while step_engine.has_unfinished_requests():
        step_engine.step()
