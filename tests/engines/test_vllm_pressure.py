"""A KV cache that is too small for all: sessions are preempted and come back."""

import random

import pytest

from engine_adapters.report.records import CommitRecord, LaunchRecord
from tests.engines.vllm_support import folding
from tests.engines.vllm_support.engine import MARKS, running

pytestmark = MARKS

# 15 blocks of 32 tokens hold five of the eight sessions at their full length.
SETTINGS = {
    "num_gpu_blocks_override": 16,
    "max_model_len": 256,
    "max_num_batched_tokens": 128,
}
CHANCE = random.Random(3)
PROMPTS = [[CHANCE.randrange(100, 40_000) for _ in range(20 + n)] for n in range(8)]


def greedy(tokens=70):
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


@pytest.fixture(scope="module")
def without():
    with running(adapter=False, **SETTINGS) as engine:
        return engine.generate(PROMPTS, greedy())


@pytest.fixture(scope="module")
def engine(without):
    with running(**SETTINGS) as engine:
        engine.scheduler.every = 3
        engine.found = engine.generate(PROMPTS, greedy())
        yield engine


def test_output_is_that_of_an_engine_without_the_adapter(engine, without):
    assert engine.found == without


def test_sessions_were_preempted_and_came_back_with_a_whole_table(engine):
    launches = [r for r in engine.scheduler.records if isinstance(r, LaunchRecord)]
    preempted = [row for r in launches for row in r.preempted_rows]
    assert preempted
    again = [
        b
        for r in launches
        for b in r.blocks
        if b.row in preempted and b.offset == 0 and not r.started
    ]
    assert again


def test_the_record_has_every_token(engine):
    tokens = {}
    rows = {}
    for record in engine.scheduler.records:
        if isinstance(record, LaunchRecord):
            rows[record.step] = list(record.rows)
            for start in record.started:
                tokens[start.row] = []
        elif isinstance(record, CommitRecord):
            at = 0
            counts = record.token_counts
            for i, row in enumerate(rows[record.step]):
                count = 1 if counts is None else int(counts[i])
                tokens[row].extend(record.tokens[at : at + count])
                at += count
    assert sorted(tokens.values()) == sorted(each[0] for each in engine.found)


def test_every_attestation_equals_the_record_through_preemptions(engine):
    rows, sessions = folding.check_attestations(engine)
    assert rows > 5_000
    assert sessions > 100
    assert any(s.waiting for a in engine.scheduler.attested for s in a.body.sessions)


def test_nothing_is_left_when_all_have_ended(engine):
    state = folding.scheduler_state(engine)
    assert state.sessions == {}
    assert state.boundary == (engine.scheduler.step, engine.scheduler.step)
