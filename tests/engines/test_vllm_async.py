"""Steps launched before the last one's outcome: the real scheduler, a worker of numbers."""

import random
import time

import pytest

from engine_adapters.report.attestations import Origin
from engine_adapters.report.records import CommitRecord, LaunchRecord
from tests.engines.vllm_support import folding
from tests.engines.vllm_support.engine import MARKS
from tests.engines.vllm_support.simulated import SimulatedEngine

pytestmark = MARKS


def run(engine, seed, *, aborts=True):
    """Twenty sessions that come, share prefixes, are preempted, are aborted."""
    chance = random.Random(seed)
    shared = [chance.randrange(100, 9_000) for _ in range(80)]
    waiting = [f"s{i}" for i in range(20)]
    alive = []
    while waiting or engine.busy():
        if waiting and chance.random() < 0.2:
            name = waiting.pop()
            prompt = [*shared[: chance.randrange(1, 80)], chance.randrange(100, 9_000)]
            engine.add(name, prompt, chance.randrange(1, 60))
            alive.append(name)
        if aborts and alive and chance.random() < 0.02:
            engine.abort(alive.pop(chance.randrange(len(alive))))
        engine.step()


def check(engine):
    rows, sessions = folding.check_attestations(engine)
    assert not engine.scheduler.failed
    assert not engine.rank.failed
    state = folding.scheduler_state(engine)
    assert state.sessions == {}
    return rows, sessions


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("seed", range(6))
def test_every_attestation_equals_the_record(monkeypatch, seed, drafts):
    engine = SimulatedEngine(monkeypatch, seed=seed, blocks=10, drafts=drafts)
    engine.scheduler.every = 3
    run(engine, seed)
    rows, sessions = check(engine)
    assert rows > 2_000
    assert sessions > 100
    in_flight = [s.in_flight for a in engine.scheduler.attested for s in a.body.sessions]
    assert max(in_flight) > 0


def test_steps_are_launched_before_the_outcome_of_the_last(monkeypatch):
    engine = SimulatedEngine(monkeypatch, seed=1, blocks=40)
    run(engine, 1)
    ahead = most = 0
    for record in engine.scheduler.records:
        ahead += isinstance(record, LaunchRecord)
        ahead -= isinstance(record, CommitRecord)
        most = max(most, ahead)
    assert most == 2


def test_a_session_is_preempted_while_its_step_is_in_flight(monkeypatch):
    engine = SimulatedEngine(monkeypatch, seed=0, blocks=9)
    engine.scheduler.every = 2
    run(engine, 0, aborts=False)
    check(engine)
    launches = [r for r in engine.scheduler.records if isinstance(r, LaunchRecord)]
    last = {r.step: set(map(int, r.rows)) for r in launches}
    lost = [row for r in launches for row in r.preempted_rows if row in last.get(r.step - 1, set())]
    assert lost


def test_a_rejected_draft_is_no_position(monkeypatch):
    engine = SimulatedEngine(monkeypatch, seed=2, blocks=40, drafts=3)
    run(engine, 2)
    check(engine)
    rejected = [r.rejected for r in engine.scheduler.records if isinstance(r, CommitRecord)]
    assert sum(int(r.sum()) for r in rejected if r is not None) > 0


def test_a_request_reaches_all_sources_at_one_boundary(monkeypatch):
    """The sidecar's request reaches the rank first: it waits for the scheduler's boundary."""
    engine = SimulatedEngine(monkeypatch, seed=3, blocks=40)
    engine.add("one", range(100, 120), 40)
    for _ in range(20):
        engine.step()
    engine.rank.owe(7)
    engine.scheduler.owe(7)
    for _ in range(8):
        engine.step()
    (scheduler,), (rank,) = engine.scheduler.attested, engine.rank.attested
    assert scheduler.due.attest_id == rank.due.attest_id == 7
    assert scheduler.body.committed_step <= rank.step <= scheduler.step
    while engine.busy():
        engine.step()
    rows, _ = check(engine)
    assert rows > 20


def test_a_rank_without_a_scheduler_answers_alone(monkeypatch):
    monkeypatch.setattr("engine_adapters.vllm.rank_role._PATIENCE_S", 0.05)
    engine = SimulatedEngine(monkeypatch, seed=4, blocks=40)
    engine.add("one", range(100, 120), 10)
    for _ in range(4):
        engine.step()
    engine.rank.owe(9)
    while engine.busy():
        engine.step()
    deadline = time.monotonic() + 5
    while not engine.rank.attested and time.monotonic() < deadline:
        pass
    assert [(a.due.attest_id, a.idle) for a in engine.rank.attested] == [(9, True)]


def test_a_sign_is_attested_before_the_next_step_runs(monkeypatch):
    engine = SimulatedEngine(monkeypatch, seed=5, blocks=40)
    engine.add("one", range(100, 120), 30)
    for _ in range(12):
        engine.step()
    before = engine.rank.step
    engine.rank.owe(1 << 63, hold=True, weights=True, origin=Origin.SIGN)
    engine.scheduler.owe(1 << 63, weights=True, origin=Origin.SIGN)
    while not engine.rank.attested or not engine.scheduler.attested:
        engine.step()
    assert engine.rank.attested[0].step == before
    assert engine.rank.held[0].attest_id == 1 << 63
    while engine.busy():
        engine.step()
    check(engine)
