import threading
from pathlib import Path

import pytest
from ledger_world import (
    DESCRIPTION,
    INCARNATION,
    QUIET,
    RANK,
    SCHEDULER,
    WORKER,
    World,
    attach,
    crash_copy,
    opened,
    record,
)

from sidecar.ledger.errors import (
    GenerationConflictError,
    LedgerClosedError,
    QueueFullError,
    RecordOutOfRangeError,
    SequenceGapError,
    UnknownGenerationError,
    UnknownSourceError,
)
from sidecar.ledger.settings import LedgerSettings
from sidecar.ledger.sqlite import open_ledger
from sidecar.ledger.values import (
    Appended,
    RecordKind,
    RegistrationOutcome,
    SourceDescription,
    StoredRecord,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "ledger.db"


def plain(seq: int, count: int = 1, payload: bytes = b"payload") -> StoredRecord:
    kind = RecordKind.HOLE if count > 1 else RecordKind.LAUNCH
    return StoredRecord(seq, seq, kind, payload, count)


def test_acknowledged_records_are_there_after_a_crash(path: Path, tmp_path: Path) -> None:
    with opened(path) as ledger:
        sources = attach(ledger)
        world = World()
        for _ in range(20):
            record(ledger, sources, world.run(begin=1))
        ledger.flush(5)
        durable = ledger.durable_seq(sources.scheduler, 0)
        killed = crash_copy(path, tmp_path / "crash")
    assert durable == 40
    with opened(killed) as again:
        assert again.lost_tail is None
        assert again.durable_seq(sources.scheduler, 0) == 40
        assert again.durable_seq(sources.rank, 0) == 20
        assert [each.record.seq for each in again.export(WORKER)][-3:] == [39, 40, 20]
        assert again.verify().sound


def test_duplicates_are_dropped_and_counted(path: Path) -> None:
    with opened(path) as ledger:
        sources = attach(ledger)
        assert ledger.append(sources.rank, 0, [plain(1), plain(2)]) == Appended(2, 0)
        assert ledger.append(sources.rank, 0, [plain(1), plain(2), plain(3)]) == Appended(1, 2)
        assert ledger.append(sources.rank, 0, [plain(2)]) == Appended(0, 1)
        assert ledger.duplicates(sources.rank) == 3
        ledger.flush(5)
        assert [each.record.seq for each in ledger.export(WORKER)] == [1, 2, 3]


def test_a_gap_is_refused_whole(path: Path) -> None:
    with opened(path) as ledger:
        sources = attach(ledger)
        with pytest.raises(SequenceGapError) as caught:
            ledger.append(sources.rank, 0, [plain(1), plain(3)])
        assert (caught.value.expected, caught.value.found) == (2, 3)
        assert ledger.accepted_seq(sources.rank, 0) == 0
        ledger.append(sources.rank, 0, [plain(1), plain(2, count=3), plain(5)])
        assert ledger.accepted_seq(sources.rank, 0) == 5


def test_a_hole_over_records_that_are_there_keeps_only_what_it_adds(path: Path) -> None:
    with opened(path) as ledger:
        sources = attach(ledger)
        ledger.append(sources.rank, 0, [plain(1), plain(2)])
        ledger.append(sources.rank, 0, [plain(2, count=3)])
        ledger.flush(5)
        last = list(ledger.export(WORKER))[-1].record
        assert (last.seq, last.count, last.kind) == (3, 2, RecordKind.HOLE)
        assert ledger.durable_seq(sources.rank, 0) == 4


@pytest.mark.parametrize(
    "bad", [plain(0), plain(-1), plain(1, count=0), plain(1 << 63), plain(1, count=1 << 63)]
)
def test_numbers_beyond_the_table_are_refused(path: Path, bad: StoredRecord) -> None:
    with opened(path) as ledger:
        sources = attach(ledger)
        with pytest.raises(RecordOutOfRangeError):
            ledger.append(sources.rank, 0, [bad])
        ledger.append(sources.rank, 0, [plain(1)])
        ledger.flush(5)


def test_a_full_queue_says_so_and_calls_when_there_is_room(path: Path) -> None:
    settings = LedgerSettings(
        queue_bytes=4000, batch_interval_s=30.0, batch_bytes=1 << 30, retention_interval_s=None
    )
    room = threading.Event()
    with opened(path, settings) as ledger:
        sources = attach(ledger)
        ledger.flush(5)
        ledger.append(sources.rank, 0, [plain(1, payload=b"x" * 3000)])
        with pytest.raises(QueueFullError) as caught:
            ledger.append(sources.rank, 0, [plain(2, payload=b"x" * 3000)])
        assert caught.value.limit_bytes == 4000
        assert ledger.accepted_seq(sources.rank, 0) == 1
        ledger.when_room(room.set)
        assert not room.wait(0.05)
        ledger.flush(5)
        assert room.wait(5)
        ledger.append(sources.rank, 0, [plain(2, payload=b"x" * 3000)])


def test_subscribers_hear_the_newest_durable_seq(path: Path) -> None:
    heard: list[tuple[int, int, int]] = []
    with opened(path) as ledger:
        sources = attach(ledger)
        ledger.subscribe(lambda *what: heard.append(what))
        ledger.append(sources.rank, 0, [plain(1), plain(2)])
        ledger.flush(5)
        assert heard[-1] == (sources.rank, 0, 2)


def test_a_failing_subscriber_harms_nobody(path: Path) -> None:
    def fail(*_what: int) -> None:
        raise RuntimeError

    with opened(path) as ledger:
        sources = attach(ledger)
        ledger.subscribe(fail)
        ledger.append(sources.rank, 0, [plain(1)])
        ledger.flush(5)
        ledger.append(sources.rank, 0, [plain(2)])
        ledger.flush(5)
        assert ledger.durable_seq(sources.rank, 0) == 2


def test_a_source_is_known_again_and_its_nonce_is_compared(path: Path) -> None:
    with opened(path) as ledger:
        new = ledger.source(WORKER, INCARNATION, RANK, DESCRIPTION)
        assert new.outcome is RegistrationOutcome.NEW
        ledger.append(new.source_id, 0, [plain(1)])
    with opened(path) as ledger:
        known = ledger.source(WORKER, INCARNATION, RANK, DESCRIPTION)
        assert (known.outcome, known.durable_seq) == (RegistrationOutcome.KNOWN, 1)
        assert known.recorded == DESCRIPTION
        other = ledger.source(WORKER, INCARNATION, RANK, SourceDescription(8, 1))
        assert other.outcome is RegistrationOutcome.NONCE_CHANGED
        assert other.recorded.nonce == 7
        assert ledger.source(WORKER, INCARNATION, SCHEDULER, DESCRIPTION).source_id == 2


def test_generations_are_counted_and_the_older_takes_no_more(path: Path) -> None:
    with opened(path) as ledger:
        rank = attach(ledger).rank
        ledger.append(rank, 0, [plain(1), plain(2), plain(3)])
        with pytest.raises(GenerationConflictError):
            ledger.open_generation(rank, 2, 2, "restored")
        with pytest.raises(SequenceGapError):
            ledger.open_generation(rank, 1, 5, "restored")
        first = ledger.open_generation(rank, 1, 2, "restored")
        assert ledger.open_generation(rank, 1, 2, "again") == first
        with pytest.raises(GenerationConflictError):
            ledger.open_generation(rank, 1, 3, "restored")
        with pytest.raises(GenerationConflictError):
            ledger.append(rank, 0, [plain(4)])
        assert ledger.append(rank, 1, [plain(1), plain(2)]) == Appended(1, 1)
        assert first.cut == ledger.cut(rank) - 1
    with opened(path) as ledger:
        assert [each.first_seq for each in ledger.generations(rank)] == [1, 2]
        assert ledger.durable_seq(rank, 1) == 2


def test_unknown_names_are_typed_errors(path: Path) -> None:
    with opened(path) as ledger:
        with pytest.raises(UnknownSourceError):
            ledger.append(9, 0, [plain(1)])
        with pytest.raises(UnknownGenerationError):
            ledger.append(attach(ledger).rank, 1, [plain(1)])


def test_a_closed_ledger_takes_nothing(path: Path) -> None:
    ledger = open_ledger(path, QUIET)
    rank = attach(ledger).rank
    ledger.append(rank, 0, [plain(1)])
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerClosedError):
        ledger.append(rank, 0, [plain(2)])
    with opened(path) as again:
        assert again.durable_seq(rank, 0) == 1
