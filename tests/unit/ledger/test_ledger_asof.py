from pathlib import Path

import numpy as np
import pytest
from ledger_world import (
    DESCRIPTION,
    GROUP,
    INCARNATION,
    QUIET,
    RANK,
    WORKER,
    Recorded,
    Sources,
    World,
    attach,
    damage_snapshot,
    flip,
    fold_rank,
    fold_scheduler,
    opened,
    record,
)

from sidecar.core.events import SchedulerAttestation, Witness
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState
from sidecar.ledger.errors import (
    BoundaryNeverStoodError,
    LedgerCorruptError,
    StateNotRecordedError,
)
from sidecar.ledger.settings import LedgerSettings
from sidecar.ledger.sqlite import SqliteLedger
from sidecar.ledger.values import StoredRecord
from sidecar.wire.payload import decode_payload

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


@pytest.mark.parametrize("snapshots_at", [(), (5,), (5, 9, 10)])
def test_a_state_is_the_straight_fold(path: Path, snapshots_at: tuple[int, ...]) -> None:
    world = World()
    with opened(path) as ledger:
        sources = attach(ledger)
        steps = []
        for index in range(15):
            steps.append(world.run(begin=1, end=index // 2 if index % 3 == 0 else None))
            record(ledger, sources, steps[-1])
            if index in snapshots_at:
                ledger.snapshot(sources.scheduler)
                ledger.snapshot(sources.rank)
        for at in range(1, 16):
            scheduler = ledger.scheduler_state(sources.scheduler, 0, at, at, NO_CUT)
            assert scheduler.to_bytes() == fold_scheduler(flat(steps[:at])).to_bytes()
            between = ledger.scheduler_state(sources.scheduler, 0, at, at - 1, NO_CUT)
            assert between.to_bytes() == fold_scheduler(flat(steps[:at])[:-1]).to_bytes()
            rank = ledger.rank_state(sources.rank, 0, at, NO_CUT)
            assert rank.to_bytes() == fold_rank([each.rank for each in steps[:at]]).to_bytes()
        assert ledger.verify().sound


def test_what_comes_after_the_cut_is_late(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, _steps = run(ledger, world, 5)
        cut = ledger.cut(sources.rank)
        record(ledger, sources, world.run())
        late = ledger.scheduler_state(sources.scheduler, 0, 6, 6, cut)
        assert (late.late_steps, late.witnessed_committed) == (1, 5)
        assert ledger.scheduler_state(sources.scheduler, 0, 6, 6, NO_CUT).late_steps == 0
        rank = ledger.rank_state(sources.rank, 0, 6, cut)
        assert (rank.late_steps, rank.witnessed_step) == (1, 5)


def test_a_snapshot_that_holds_late_records_does_not_make_them_witnessed(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, _steps = run(ledger, world, 5)
        cut = ledger.cut(sources.rank)
        record(ledger, sources, world.run())
        ledger.snapshot(sources.rank)
        assert ledger.rank_state(sources.rank, 0, 6, cut).late_steps == 1


def test_a_boundary_that_was_never_passed_is_not_one_that_is_not_recorded(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, _steps = run(ledger, world, 5)
        scheduler = sources.scheduler
        with pytest.raises(BoundaryNeverStoodError):
            # Step 4 was launched only after step 3 was committed.
            ledger.scheduler_state(scheduler, 0, 4, 2, NO_CUT)
        for launched, committed in ((6, 5), (6, 6)):
            with pytest.raises(StateNotRecordedError) as caught:
                ledger.scheduler_state(scheduler, 0, launched, committed, NO_CUT)
            assert not isinstance(caught.value, BoundaryNeverStoodError)
            assert "ends at launched 5, committed 5" in caught.value.why


def test_a_boundary_beside_a_hole_is_not_recorded(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, _steps = run(ledger, world, 3)
        ledger.append(sources.scheduler, 0, [world.hole()])
        for step in (3, 4):
            if step == 3:
                assert ledger.scheduler_state(sources.scheduler, 0, 3, 3, NO_CUT).broken is None
                continue
            with pytest.raises(StateNotRecordedError) as caught:
                ledger.scheduler_state(sources.scheduler, 0, step, step, NO_CUT)
            assert not isinstance(caught.value, BoundaryNeverStoodError)


@pytest.mark.parametrize("snapshot_after", [False, True])
def test_a_snapshot_beyond_a_hole_is_not_for_what_was_before_it(
    path: Path, snapshot_after: bool
) -> None:
    world = World()
    with opened(path) as ledger:
        sources, steps = run(ledger, world, 3)
        ledger.append(sources.scheduler, 0, [world.hole()])
        world.step -= 1
        ledger.append(sources.rank, 0, [world.rank_hole(1)])
        if snapshot_after:
            ledger.snapshot(sources.scheduler)
            ledger.snapshot(sources.rank)
        found = ledger.scheduler_state(sources.scheduler, 0, 3, 3, NO_CUT)
        assert found.to_bytes() == fold_scheduler(flat(steps)).to_bytes()
        rank = ledger.rank_state(sources.rank, 0, 3, NO_CUT)
        assert rank.to_bytes() == fold_rank([each.rank for each in steps]).to_bytes()
        assert ledger.rank_state(sources.rank, 0, 4, NO_CUT).broken is not None


def test_a_boundary_inside_a_step_whose_outcome_was_lost_is_recorded(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, steps = run(ledger, world, 3)
        launched = world.run()
        ledger.append(sources.scheduler, 0, [launched.launch])
        # The commit of step 4 is in the hole: its first step is one that was launched.
        world.scheduler_seq -= 1
        world.step -= 1
        ledger.append(sources.scheduler, 0, [world.hole()])
        found = ledger.scheduler_state(sources.scheduler, 0, 4, 3, NO_CUT)
        assert found.to_bytes() == fold_scheduler([*flat(steps), launched.launch]).to_bytes()
        with pytest.raises(StateNotRecordedError, match="hole"):
            ledger.scheduler_state(sources.scheduler, 0, 4, 4, NO_CUT)


def test_a_baseline_stands_in_for_what_is_missing(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, _steps = run(ledger, world, 3)
        hole = world.hole()
        ledger.append(sources.scheduler, 0, [hole])
        attested = SchedulerAttestation(launched=4, committed=4, sessions=())
        state = SchedulerState.from_attestation(attested)
        ledger.put_baseline(sources.scheduler, 0, hole.seq + 1, state).result(5)
        world.positions.clear()
        world.lengths.clear()
        record(ledger, sources, world.run(begin=1))
        ledger.snapshot(sources.scheduler)
        found = ledger.scheduler_state(sources.scheduler, 0, 5, 5, NO_CUT)
        assert found.broken is None
        assert found.origin is Witness.BASELINE
        assert len(found.sessions) == 1
        assert ledger.verify().sound


def test_snapshots_come_by_themselves_and_only_the_newest_stay(path: Path) -> None:
    settings = LedgerSettings(
        snapshot_bytes=2000, snapshot_ratio=1, retention_interval_s=None, batch_interval_s=0.001
    )
    world = World()
    with opened(path, settings) as ledger:
        sources = attach(ledger)
        steps = []
        for index in range(150):
            steps.append(world.run(begin=int(index < 3)))
            record(ledger, sources, steps[-1])
            if index % 10 == 0:
                ledger.flush(5)
        ledger.snapshot(sources.rank)
        report = ledger.verify()
        assert report.sound
        assert 2 <= report.snapshots <= 4
        found = ledger.rank_state(sources.rank, 0, 3, NO_CUT)
        assert found.to_bytes() == fold_rank([each.rank for each in steps[:3]]).to_bytes()


def test_damage_is_an_error_and_never_a_state(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, steps = run(ledger, world, 10)
    flip(path, steps[5].rank.payload[-24:])
    with opened(path) as ledger:
        # Seq 5 is whole; where a replay ends is known only from the record after it.
        assert ledger.rank_state(sources.rank, 0, 4, NO_CUT).step == 4
        with pytest.raises(LedgerCorruptError) as caught:
            ledger.rank_state(sources.rank, 0, 6, NO_CUT)
        assert "seq 6" in caught.value.what


def test_a_damaged_snapshot_is_not_used(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources, _steps = run(ledger, world, 10)
        ledger.snapshot(sources.rank)
        expected = ledger.rank_state(sources.rank, 0, 10, NO_CUT).to_bytes()
    damage_snapshot(path)
    with opened(path) as ledger:
        assert ledger.rank_state(sources.rank, 0, 10, NO_CUT).to_bytes() == expected
        assert not ledger.verify().sound


def test_a_rank_that_says_nothing_has_an_empty_state(path: Path) -> None:
    with opened(path) as ledger:
        rank = ledger.source(WORKER, INCARNATION, RANK, DESCRIPTION).source_id
        state = ledger.rank_state(rank, 0, 5, NO_CUT)
        assert state.step == 0
        assert not state.lookup(GROUP.group, np.arange(4))[1].any()
        assert state.to_bytes() == RankState((GROUP,)).to_bytes()
        with pytest.raises(StateNotRecordedError):
            ledger.scheduler_state(rank, 0, 1, 1, NO_CUT)


def test_readers_do_not_hold_up_the_writer(path: Path) -> None:
    world = World()
    with opened(path, QUIET) as ledger:
        sources, _steps = run(ledger, world, 3)
        ledger.flush(5)
        reading = ledger.export(WORKER)
        next(reading)
        record(ledger, sources, world.run())
        ledger.flush(5)
        assert ledger.durable_seq(sources.rank, 0) == 4
        assert len([*reading]) == 8
        assert decode_payload(next(ledger.export(WORKER, 4)).record.payload).step == 4
