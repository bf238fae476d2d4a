"""Random legal schedules for the simulated engine, and evidence taken from it."""

from collections.abc import Sequence

from engine_simulator import GROUP, Engine
from hypothesis import settings
from hypothesis import strategies as st

from sidecar.core.events import Fingerprint, Sampling, SourceKey, SourceKind, Witness
from sidecar.core.evidence import RankEvidence, SourceEvidence, StateEvidence
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState

# A loaded machine is no failure.
LAW = settings(deadline=None, max_examples=60)

ENVIRONMENT = Fingerprint({"engine": "simulator", "driver": "580.1", "model": "none"})
GREEDY = Sampling(temperature=0.0)

_ACTIONS = st.sampled_from(
    ["add", "add", "step", "step", "step", "step", "draft", "abort", "preempt"]
)
SCHEDULES = st.lists(st.tuples(_ACTIONS, st.integers(0, 20)), min_size=1, max_size=40)
# Ends with a session of some blocks in flight.
BUSY = SCHEDULES.map(lambda some: [*some, ("add", 19), ("step", 0), ("step", 0), ("step", 0)])
ENGINES = st.tuples(st.integers(1, 2), st.integers(0, 1))


def act(engine: Engine, action: str, number: int) -> None:
    if action == "add":
        # Few prefixes, so that blocks are shared.
        prompt = [number % 3] * (number % 11 + 1) + [number]
        engine.add(prompt, limit=number + 1, seed=number if number % 2 else None)
    elif action == "step":
        engine.step()
    elif action == "draft":
        engine.step(drafts=number % 4)
    elif engine.requests:
        chosen = engine.requests[number % len(engine.requests)]
        (engine.abort if action == "abort" else engine.preempt)(chosen)


def play(shape: tuple[int, int], schedule: Sequence[tuple[str, int]]) -> Engine:
    engine = Engine(ranks=shape[0], depth=shape[1])
    for action, number in schedule:
        act(engine, action, number)
    engine.execute()
    return engine


def busy_engine(ranks: int = 1, depth: int = 0) -> Engine:
    """Four sessions in mid-decode, greedy and seeded, two with a shared prefix."""
    engine = Engine(ranks=ranks, depth=depth)
    engine.add([5] * 9, limit=20)
    engine.add([5] * 9 + [6], limit=20, seed=7)
    engine.add([1, 2, 3], limit=20, seed=8)
    for _ in range(5):
        engine.step()
    engine.add([5] * 13, limit=20)
    for _ in range(4):
        engine.step()
    engine.execute()
    return engine


def folded(log, witness=Witness.WITNESSED) -> SchedulerState:
    state = SchedulerState()
    for event in log:
        state.apply(event, witness)
    return state


def folded_rank(log, witness=Witness.WITNESSED) -> RankState:
    state = RankState([GROUP])
    for event in log:
        state.apply(event, witness)
    return state


def sources(ranks: int) -> tuple[SourceEvidence, ...]:
    keys = [SourceKey(SourceKind.SCHEDULER)] + [
        SourceKey(SourceKind.RANK, rank) for rank in range(ranks)
    ]
    return tuple(SourceEvidence(key, ENVIRONMENT, ENVIRONMENT, 17, 17) for key in keys)


def evidence_of(engine: Engine) -> StateEvidence:
    """What a sidecar that recorded everything has after a clean restore at this moment."""
    scheduler, ranks = engine.attest()
    return StateEvidence(
        incarnation_recorded="life-1",
        incarnation_found="life-1",
        sources=sources(engine.ranks),
        expected=folded(engine.scheduler_log),
        attested=scheduler,
        ranks=tuple(
            RankEvidence(rank, folded_rank(log), attested)
            for rank, (log, attested) in enumerate(zip(engine.rank_logs, ranks, strict=True))
        ),
        ranks_expected=engine.ranks,
        newest_step=engine.launched,
        late_steps_allowed=2,
    )
