"""n-gram speculation: drafts that are rejected are no positions."""

import pytest

from engine_adapters.report.records import CommitRecord, LaunchRecord
from tests.engines.vllm_support import folding
from tests.engines.vllm_support.engine import MARKS, running

pytestmark = MARKS

SPECULATION = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
SETTINGS = {"speculative_config": SPECULATION, "max_num_batched_tokens": 256}
# Repeats itself, so that drafts are found; goes on differently, so that some are rejected.
PROMPTS = [[500, 600, 700, 800, 900] * 6 + [500, 600], list(range(1000, 1040)) * 2]


def cold():
    """Greedy: most drafts are taken."""
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)


def hot():
    """Most drafts are rejected. Not compared: the engine alone gives other tokens each time."""
    from vllm import SamplingParams

    return SamplingParams(temperature=0.9, seed=5, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def without():
    with running(adapter=False, **SETTINGS) as engine:
        return engine.generate(PROMPTS, cold())


@pytest.fixture(scope="module")
def engine(without):
    with running(**SETTINGS) as engine:
        engine.scheduler.every = 2
        engine.found = engine.generate(PROMPTS, cold())
        engine.generate(PROMPTS, hot())
        yield engine


def test_output_is_that_of_an_engine_without_the_adapter(engine, without):
    assert engine.found == without


def test_drafts_were_made_and_some_were_rejected(engine):
    drafts = [r.drafts for r in engine.scheduler.records if isinstance(r, LaunchRecord)]
    rejected = [r.rejected for r in engine.scheduler.records if isinstance(r, CommitRecord)]
    made = sum(int(d.sum()) for d in drafts if d is not None)
    taken_back = sum(int(r.sum()) for r in rejected if r is not None)
    assert 0 < taken_back < made


def test_every_attestation_equals_the_record(engine):
    rows, sessions = folding.check_attestations(engine)
    assert rows > 1_000
    assert sessions > 20
