"""No room on the disk, and retention that makes some."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_world import (
    INCARNATION,
    QUIET,
    WORKER,
    Sources,
    World,
    attach,
    fold_rank,
    fold_scheduler,
    opened,
    record,
)

from sidecar.ledger import retention as retention_module
from sidecar.ledger.errors import LedgerError, LedgerFullError, StateNotRecordedError
from sidecar.ledger.settings import LedgerSettings, Retention
from sidecar.ledger.sqlite import SqliteLedger, open_ledger
from sidecar.ledger.values import Mark, MarkOutcome, RecordKind, StoredAttestation, StoredRecord

NO_CUT = (1 << 63) - 1
KEEP_NOTHING = Retention(max_bytes=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.005)


def big(seq: int) -> StoredRecord:
    return StoredRecord(seq, seq, RecordKind.RANK_STEP, bytes(20_000))


def small_disk(path: Path) -> LedgerSettings:
    return LedgerSettings(
        max_file_bytes=400_000,
        full_retry_s=0.02,
        retention_interval_s=None,
        batch_interval_s=0.001,
        snapshot_bytes=1 << 40,
        read_flush_s=0.05,
    )


def fill(ledger: SqliteLedger, source: int) -> int:
    """Appends until it is refused; returns the newest seq that was taken."""
    for seq in range(1000):
        try:
            ledger.append(source, 0, [big(seq + 1)])
        except LedgerFullError as error:
            if error.limit_bytes != 400_000:
                raise
            return seq
        time.sleep(0.001)
    raise AssertionError("it was never refused")


def test_a_full_disk_refuses_keeps_and_recovers(path: Path) -> None:
    ledger = open_ledger(path, small_disk(path))
    rank = attach(ledger).rank
    taken = fill(ledger, rank)
    durable = ledger.durable_seq(rank, 0)
    assert 0 < durable < taken
    assert isinstance(ledger.refuses, LedgerFullError)
    with pytest.raises(LedgerFullError):
        ledger.flush(0.1)
    # What is committed can be read meanwhile.
    assert len(list(ledger.export(WORKER))) == durable
    ledger.limit_file(None)
    until(lambda: ledger.durable_seq(rank, 0) == taken)
    assert ledger.refuses is None
    ledger.append(rank, 0, [big(taken + 1)])
    ledger.flush(5)
    assert ledger.verify().problems == ()
    ledger.close()


def test_what_was_acknowledged_survives_a_close_without_room(path: Path) -> None:
    ledger = open_ledger(path, small_disk(path))
    rank = attach(ledger).rank
    fill(ledger, rank)
    durable = ledger.durable_seq(rank, 0)
    mark = None
    with pytest.raises(LedgerFullError):
        mark = ledger.put_mark(Mark("m", WORKER, INCARNATION, 0, 1, 0, 1))
    assert mark is None
    ledger.close()
    with opened(path) as again:
        assert again.durable_seq(rank, 0) == durable
        assert again.lost_tail is None
        again.append(rank, 0, [big(durable + 1)])
        assert again.verify().problems == ()


def test_retention_makes_room_for_what_waits(path: Path) -> None:
    ledger = open_ledger(path, small_disk(path))
    old = attach(ledger, "life-0").rank
    fill(ledger, old)
    ledger.limit_file(500_000)
    until(lambda: ledger.refuses is None)
    rank = attach(ledger, "life-1").rank
    seq = 0
    while ledger.refuses is None:
        try:
            ledger.append(rank, 0, [big(seq + 1)])
        except LedgerFullError:
            break
        seq += 1
        time.sleep(0.001)
    report = ledger.apply_retention(KEEP_NOTHING)
    assert report.records > 0
    until(lambda: ledger.refuses is None)
    until(lambda: ledger.durable_seq(rank, 0) == seq)
    assert {each.source.incarnation for each in ledger.export(WORKER)} == {"life-1"}
    assert ledger.verify().problems == ()
    ledger.close()


def run(ledger: SqliteLedger, world: World, sources: Sources, count: int) -> list[object]:
    steps = []
    for _ in range(count):
        steps.append(world.run(begin=int(world.step < 3)))
        record(ledger, sources, steps[-1])
    return steps


def snapshot(ledger: SqliteLedger, sources: Sources) -> None:
    ledger.snapshot(sources.scheduler)
    ledger.snapshot(sources.rank)


def test_a_living_log_is_cut_up_to_a_snapshot_and_goes_on(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources = attach(ledger)
        steps = run(ledger, world, sources, 10)
        snapshot(ledger, sources)
        steps += run(ledger, world, sources, 10)
        snapshot(ledger, sources)
        steps += run(ledger, world, sources, 5)
        report = ledger.apply_retention(KEEP_NOTHING)
        assert report.records == 30
        assert ledger.verify().problems == ()
        for at in (10, 15, 25):
            history = [each for step in steps[:at] for each in (step.launch, step.commit)]
            found = ledger.scheduler_state(sources.scheduler, 0, at, at, NO_CUT)
            assert found.to_bytes() == fold_scheduler(history).to_bytes()
            rank = ledger.rank_state(sources.rank, 0, at, NO_CUT)
            assert rank.to_bytes() == fold_rank([step.rank for step in steps[:at]]).to_bytes()
        with pytest.raises(StateNotRecordedError, match="removed by retention"):
            ledger.scheduler_state(sources.scheduler, 0, 9, 9, NO_CUT)
    with opened(path) as again:
        assert again.durable_seq(sources.rank, 0) == 25
        record(again, sources, world.run())
        snapshot(again, sources)
        assert again.verify().problems == ()


def test_an_open_mark_keeps_its_window(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources = attach(ledger)
        run(ledger, world, sources, 5)
        snapshot(ledger, sources)
        run(ledger, world, sources, 3)
        ledger.put_mark(Mark("m", WORKER, INCARNATION, 0, step=8, sessions=3, made_unix_ns=1))
        for _ in range(4):
            run(ledger, world, sources, 5)
            snapshot(ledger, sources)
        ledger.apply_retention(KEEP_NOTHING)
        assert ledger.scheduler_state(sources.scheduler, 0, 8, 8, NO_CUT).launched == 8
        assert ledger.rank_state(sources.rank, 0, 8, NO_CUT).step == 8
        _, done = ledger.complete_mark(
            WORKER, "m", outcome=MarkOutcome.FAILED, last_step=8, completed_unix_ns=2
        )
        done.result(5)
        assert ledger.apply_retention(KEEP_NOTHING).records > 0
        with pytest.raises(StateNotRecordedError):
            ledger.scheduler_state(sources.scheduler, 0, 8, 8, NO_CUT)
        assert ledger.verify().problems == ()


def test_age_and_number_of_finished_lives(path: Path) -> None:
    now = [1_000_000_000_000]
    ledger = open_ledger(path, QUIET, clock=lambda: now[0])
    for life in range(4):
        sources = attach(ledger, f"life-{life}")
        run(ledger, World(), sources, 3)
        attested = StoredAttestation(sources.rank, 0, 1, 3, 9, now[0], b"bytes %d" % life)
        ledger.put_attestation(attested).result(5)
        now[0] += 10_000_000_000
    lives = {each.source.incarnation for each in ledger.export(WORKER)}
    assert lives == {"life-0", "life-1", "life-2", "life-3"}
    ledger.apply_retention(Retention(max_finished_incarnations=2))
    lives = {each.source.incarnation for each in ledger.export(WORKER)}
    assert lives == {"life-1", "life-2", "life-3"}
    report = ledger.apply_retention(Retention(max_age_s=25, max_finished_incarnations=None))
    assert (report.records, report.attestations) == (9, 2)
    lives = {each.source.incarnation for each in ledger.export(WORKER)}
    assert lives == {"life-2", "life-3"}
    # A log that is gone still says where it stood.
    gone = ledger.sources()[0].source_id
    assert ledger.durable_seq(gone, 0) == 6
    assert ledger.attestations(2)[0].payload == b""
    assert ledger.verify().problems == ()
    ledger.close()
    with opened(path) as again:
        assert again.durable_seq(gone, 0) == 6
        with pytest.raises(LedgerError):
            again.newest_state(gone, 0)


def test_large_cuts_are_made_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "ROWS_PER_CUT", 4)
    world = World()
    with opened(path) as ledger:
        old = attach(ledger, "life-0")
        run(ledger, world, old, 5)
        attach(ledger, "life-1")
        ledger.flush(5)
        report = ledger.apply_retention(KEEP_NOTHING)
        assert report.records == 15
        assert ledger.verify().problems == ()


def test_retention_without_limits_removes_nothing(path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources = attach(ledger)
        run(ledger, world, sources, 5)
        snapshot(ledger, sources)
        assert ledger.apply_retention(Retention()).records == 0
        assert ledger.verify().records == 15
