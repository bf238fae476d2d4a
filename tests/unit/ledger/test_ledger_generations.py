from pathlib import Path

import pytest
from ledger_world import (
    Recorded,
    Sources,
    World,
    attach,
    fold_rank,
    fold_scheduler,
    opened,
    record,
)

from sidecar.core.events import SchedulerAttestation
from sidecar.core.scheduler_state import SchedulerState
from sidecar.ledger.errors import (
    LedgerError,
)
from sidecar.ledger.sqlite import SqliteLedger
from sidecar.ledger.values import StoredRecord

NO_CUT = (1 << 63) - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def flat(steps: list[Recorded]) -> list[StoredRecord]:
    return [each for step in steps for each in (step.launch, step.commit)]


def run(ledger: SqliteLedger, world: World, count: int) -> tuple[Sources, list[Recorded]]:
    sources = attach(ledger)
    steps = [world.run(begin=int(index < 3)) for index in range(count)]
    for each in steps:
        record(ledger, sources, each)
    return sources, steps


def test_generations_share_what_was_before_the_branch(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, steps = run(ledger, world, 4)
        image = world.image()
        old = [world.run() for _ in range(5)]
        for each in old:
            record(ledger, sources, each)
        ledger.snapshot(sources.scheduler)
        for source, seq in ((sources.scheduler, 9), (sources.rank, 5)):
            ledger.open_generation(source, 1, seq, "restored")
        image.dice.seed(99)
        new = [image.run() for _ in range(3)]
        for each in new:
            record(ledger, sources, each, 1)
        assert ledger.newest_step(sources.scheduler, 0) == 9
        assert ledger.newest_step(sources.scheduler, 1) == 7
        for generation, history in ((0, steps + old), (1, steps + new)):
            at = len(history)
            found = ledger.scheduler_state(sources.scheduler, generation, at, at, NO_CUT)
            assert found.to_bytes() == fold_scheduler(flat(history)).to_bytes()
            rank = ledger.rank_state(sources.rank, generation, at, NO_CUT)
            assert rank.to_bytes() == fold_rank([each.rank for each in history]).to_bytes()
        assert ledger.verify().sound


def test_the_future_that_was(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, steps = run(ledger, world, 4)
        for index in range(3):
            steps.append(world.run(end=1 if index == 1 else None))
            record(ledger, sources, steps[-1])
        ledger.open_generation(sources.scheduler, 1, 9, "restored")
        futures = {each.session_id: each for each in ledger.future_tokens(sources.scheduler, 1)}
        before = fold_scheduler(flat(steps[:4]))
        after = fold_scheduler(flat(steps))
        first = futures["session-1"]
        whole = after.session("session-1")
        known = before.session("session-1")
        assert whole is not None
        assert known is not None
        assert first.first_position == known.emitted
        assert list(first.tokens) == list(whole.tokens[known.emitted :])
        assert (first.generation, first.ended) == (0, False)
        assert (len(futures["session-2"].tokens), futures["session-2"].ended) == (2, True)
        only = ledger.future_tokens(sources.scheduler, 1, frozenset({"session-3"}))
        assert [each.session_id for each in only] == ["session-3"]


def test_a_future_that_branched_off_earlier_is_none_of_ours(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, _steps = run(ledger, world, 6)
        ledger.open_generation(sources.scheduler, 1, 5, "restored")
        image = World()
        again = [image.run(begin=int(index < 3)) for index in range(5)]
        ledger.append(sources.scheduler, 1, flat(again)[4:])
        ledger.open_generation(sources.scheduler, 2, 9, "restored")
        found = ledger.future_tokens(sources.scheduler, 2)
        assert {each.generation for each in found} == {1}


def test_a_restore_of_an_older_life_names_its_parent(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, steps = run(ledger, world, 6)
        scheduler = sources.scheduler
        ledger.open_generation(scheduler, 1, 5, "restored")
        ledger.append(scheduler, 1, [flat(steps)[4]])
        # The next image is from generation 0, further on than generation 1 ever came.
        ledger.open_generation(scheduler, 2, 9, "restored", parent=0)
        found = ledger.scheduler_state(scheduler, 2, 4, 4, NO_CUT)
        assert found.to_bytes() == fold_scheduler(flat(steps[:4])).to_bytes()
        futures = ledger.future_tokens(scheduler, 2)
        assert {each.generation for each in futures} == {0}
        assert ledger.newest_step_of_branch(scheduler, 2) == 6
        assert ledger.newest_step_of_branch(scheduler, 0) == 0
        assert ledger.verify().sound


def test_an_image_restored_again_has_its_first_restore_as_a_future(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, _steps = run(ledger, world, 4)
        scheduler = sources.scheduler
        # The dump ended generation 0 where the image is of: only its restore has a future.
        ledger.open_generation(scheduler, 1, 9, "restored", parent=0)
        ledger.append(scheduler, 1, flat([world.run() for _ in range(3)]))
        ledger.open_generation(scheduler, 2, 9, "restored", parent=0)
        assert {each.generation for each in ledger.future_tokens(scheduler, 2)} == {1}
        assert ledger.newest_step_of_branch(scheduler, 2) == 7


def test_a_baseline_at_the_start_of_a_generation_is_not_its_parents(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, steps = run(ledger, world, 3)
        ledger.open_generation(sources.scheduler, 1, 7, "restored")
        attested = SchedulerAttestation(launched=3, committed=3, sessions=())
        state = SchedulerState.from_attestation(attested)
        ledger.put_baseline(sources.scheduler, 1, 6, state).result(5)
        assert not ledger.scheduler_state(sources.scheduler, 1, 3, 3, NO_CUT).sessions
        parents = ledger.scheduler_state(sources.scheduler, 0, 3, 3, NO_CUT)
        assert parents.to_bytes() == fold_scheduler(flat(steps)).to_bytes()
        world.positions.clear()
        world.lengths.clear()
        ledger.append(sources.scheduler, 1, flat([world.run(begin=1)]))
        assert len(ledger.scheduler_state(sources.scheduler, 1, 4, 4, NO_CUT).sessions) == 1
        with pytest.raises(LedgerError, match="no durable record 5"):
            ledger.put_baseline(sources.scheduler, 1, 5, state)
        assert ledger.verify().sound
