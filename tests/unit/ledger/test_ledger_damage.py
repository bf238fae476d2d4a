"""Every check of `verify` against a file that was really damaged."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ledger_world import (
    INCARNATION,
    WORKER,
    Recorded,
    World,
    attach,
    crash_copy,
    damage_snapshot,
    flip,
    opened,
    record,
)

from sidecar.ledger.errors import LedgerCorruptError
from sidecar.ledger.sqlite import open_ledger
from sidecar.ledger.tip import Tip, pack, tip_path
from sidecar.ledger.values import (
    Fault,
    LostTail,
    Mark,
    Problem,
    StoredAttestation,
    StoredVerdict,
    VerifyReport,
)
from sidecar.ledger.verify import verify_file
from sidecar.wire.payload import decode_payload

SCHEDULER_ID, RANK_ID = 1, 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def steps(path: Path) -> list[Recorded]:
    """A ledger of two sources with 30 steps, snapshots, a mark, a verdict, an attestation."""
    world = World()
    with opened(path) as ledger:
        sources = attach(ledger)
        assert (sources.scheduler, sources.rank) == (SCHEDULER_ID, RANK_ID)
        recorded = [world.run(begin=int(index < 3)) for index in range(30)]
        for index, each in enumerate(recorded):
            record(ledger, sources, each)
            if index in {10, 20}:
                ledger.snapshot(RANK_ID)
                ledger.snapshot(SCHEDULER_ID)
        ledger.put_mark(Mark("before", WORKER, INCARNATION, 0, step=30, sessions=3, made_unix_ns=1))
        ledger.put_attestation(StoredAttestation(RANK_ID, 0, 5, 30, 90, 7, b"attested bytes"))
        ledger.put_verdict(StoredVerdict(WORKER, "v-1", 8, b"verdict bytes")).result(5)
    assert verify(path).sound
    return recorded


def verify(path: Path) -> VerifyReport:
    return verify_file(path, decode_payload)


def edit(path: Path, statement: str) -> None:
    """What somebody with the sqlite3 program could do."""
    with closing(sqlite3.connect(path)) as connection:
        changed = connection.execute(statement).rowcount
        connection.commit()
    assert changed == 1


def problems(report: VerifyReport, fault: Fault) -> list[Problem]:
    return [each for each in report.problems if each.fault is fault]


def places(report: VerifyReport, fault: Fault) -> set[tuple[int | None, int | None]]:
    return {(each.source_id, each.seq) for each in problems(report, fault)}


def test_the_report_says_how_much_was_checked(path: Path, steps: list[Recorded]) -> None:
    report = verify(path)
    assert (report.sources, report.records, report.snapshots, report.bodies) == (2, 90, 4, 2)


def test_a_flipped_payload_is_named(path: Path, steps: list[Recorded]) -> None:
    flip(path, steps[15].rank.payload, at=30)
    report = verify(path)
    assert places(report, Fault.CHAIN) == {(RANK_ID, 16)}
    assert report.records == 90


def test_two_bad_places_are_two_problems(path: Path, steps: list[Recorded]) -> None:
    flip(path, steps[3].rank.payload, at=30)
    flip(path, steps[15].commit.payload, at=4)
    assert places(verify(path), Fault.CHAIN) == {(RANK_ID, 4), (SCHEDULER_ID, 32)}


def test_a_flipped_link_is_one_problem(path: Path, steps: list[Recorded]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT chain FROM records WHERE source = 2 AND seq = 16"
        (link,) = connection.execute(query).fetchone()
    flip(path, link)
    report = verify(path)
    assert places(report, Fault.CHAIN) == {(RANK_ID, 16)}


@pytest.mark.parametrize(
    "column", ["step = step + 1", "kind = 5", "received_unix_ns = received_unix_ns + 1"]
)
def test_an_edited_column_is_named(path: Path, steps: list[Recorded], column: str) -> None:
    edit(path, f"UPDATE records SET {column} WHERE source = 2 AND seq = 16")  # noqa: S608
    assert places(verify(path), Fault.CHAIN) == {(RANK_ID, 16)}


def test_a_deleted_record_is_named(path: Path, steps: list[Recorded]) -> None:
    edit(path, "DELETE FROM records WHERE source = 2 AND seq = 16")
    found = problems(verify(path), Fault.MISSING_SEQ)
    assert (RANK_ID, 17) in {(each.source_id, each.seq) for each in found}
    assert any("seq 16 is missing" in each.what for each in found)


def test_the_deleted_end_of_one_log_is_named(path: Path, steps: list[Recorded]) -> None:
    # The newest record of the scheduler is not the newest of the ledger.
    edit(path, "DELETE FROM records WHERE source = 1 AND seq = 60")
    found = problems(verify(path), Fault.MISSING_SEQ)
    assert [each.what for each in found] == ["events 89 to 89 are missing"]


def test_swapped_payloads_are_named(path: Path, steps: list[Recorded]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        update = "UPDATE records SET payload = ? WHERE source = 2 AND seq = ?"
        connection.execute(update, (steps[11].rank.payload, 11))
        connection.execute(update, (steps[10].rank.payload, 12))
        connection.commit()
    assert places(verify(path), Fault.CHAIN) == {(RANK_ID, 11), (RANK_ID, 12)}


def test_a_flipped_page_header_is_named_and_the_rest_is_read(
    path: Path, steps: list[Recorded]
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    page = path.read_bytes().find(steps[15].rank.payload) // size + 1
    damaged = bytearray(path.read_bytes())
    damaged[(page - 1) * size] = 0x77
    path.write_bytes(damaged)
    report = verify(path)
    assert problems(report, Fault.PAGES)
    assert problems(report, Fault.UNREADABLE)
    assert 0 < report.records < 90


def test_a_truncated_file_is_named(path: Path, steps: list[Recorded]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 // 4096 * 4096])
    assert not verify(path).sound


def test_a_truncated_log_is_a_lost_end(path: Path, tmp_path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources = attach(ledger)
        for _ in range(10):
            record(ledger, sources, world.run(begin=1))
            ledger.flush(5)
        killed = crash_copy(path, tmp_path / "crash")
    wal = killed.with_name(killed.name + "-wal")
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])
    (problem,) = verify(killed).problems
    assert problem.fault is Fault.LOST_TAIL
    with opened(killed) as again:
        lost = again.lost_tail
        assert lost is not None
        assert lost.last_id == 30
        assert again.durable_seq(RANK_ID, 0) < 10
        # Ids of what was lost are not given again.
        assert again.cut(RANK_ID) == 30
    report = verify(killed)
    assert {each.fault for each in report.problems} == {Fault.LOST_TAIL}
    with opened(killed) as again:
        assert again.lost_tail is None


def test_a_flipped_frame_of_the_log_is_a_lost_end(path: Path, tmp_path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources = attach(ledger)
        for _ in range(10):
            record(ledger, sources, world.run(begin=1))
            ledger.flush(5)
        killed = crash_copy(path, tmp_path / "crash")
    wal = killed.with_name(killed.name + "-wal")
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 1
    wal.write_bytes(data)
    assert problems(verify(killed), Fault.LOST_TAIL)


def test_a_lost_end_is_noticed_with_the_tip_alone(path: Path, steps: list[Recorded]) -> None:
    tip_path(path).write_bytes(pack(Tip(95, 9)))
    assert [each.fault for each in verify(path).problems] == [Fault.LOST_TAIL]
    with opened(path) as ledger:
        assert ledger.lost_tail == LostTail(91, 95)


@pytest.mark.parametrize("content", [b"", b"x" * 40, None])
def test_a_missing_or_damaged_tip_is_named(
    path: Path, steps: list[Recorded], content: bytes | None
) -> None:
    if content is None:
        tip_path(path).unlink()
    else:
        tip_path(path).write_bytes(content)
    assert [each.fault for each in verify(path).problems] == [Fault.TIP]
    with opened(path) as ledger:
        assert ledger.durable_seq(RANK_ID, 0) == 30
        assert ledger.lost_tail is None


def test_control_records_are_covered(path: Path, steps: list[Recorded]) -> None:
    flip(path, b'"name":"before"', at=9)
    assert {each.fault for each in verify(path).problems} == {Fault.CHAIN}
    assert problems(verify(path), Fault.CHAIN)[0].source_id == 0


def test_a_deleted_control_record_is_named(path: Path, steps: list[Recorded]) -> None:
    edit(path, "DELETE FROM control WHERE kind = 67")
    assert places(verify(path), Fault.MISSING_SEQ) == {(0, 6)}


@pytest.mark.parametrize("body", [b"verdict bytes", b"attested bytes"])
def test_bodies_are_covered(path: Path, steps: list[Recorded], body: bytes) -> None:
    flip(path, body)
    assert [each.fault for each in verify(path).problems] == [Fault.BODY]


def test_a_missing_verdict_is_named(path: Path, steps: list[Recorded]) -> None:
    edit(path, "DELETE FROM bodies WHERE kind = 68")
    assert [each.fault for each in verify(path).problems] == [Fault.BODY]


def test_a_flipped_snapshot_is_named(path: Path, steps: list[Recorded]) -> None:
    damage_snapshot(path)
    assert {each.fault for each in verify(path).problems} == {Fault.SNAPSHOT}


def test_a_snapshot_that_a_replay_does_not_give_is_named(path: Path, steps: list[Recorded]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE snapshots SET (data, digest) = (SELECT data, digest FROM snapshots"
            " WHERE source = 2 ORDER BY id LIMIT 1) WHERE source = 2"
        )
        connection.commit()
    (problem,) = verify(path).problems
    assert (problem.fault, problem.what) == (Fault.SNAPSHOT, "it differs from a replay")


def test_a_problem_in_one_source_does_not_hide_another(path: Path, steps: list[Recorded]) -> None:
    edit(path, "DELETE FROM records WHERE source = 1 AND seq = 5")
    flip(path, steps[29].rank.payload, at=20)
    report = verify(path)
    assert places(report, Fault.CHAIN) == {(RANK_ID, 30)}
    assert (SCHEDULER_ID, 6) in places(report, Fault.MISSING_SEQ)


def test_a_damaged_control_log_is_a_typed_error(path: Path, steps: list[Recorded]) -> None:
    flip(path, b'"fingerprint":', at=1)
    with pytest.raises(LedgerCorruptError, match="control log"):
        open_ledger(path)


def test_a_running_ledger_verifies_itself(path: Path, tmp_path: Path) -> None:
    world = World()
    with opened(path) as ledger:
        sources = attach(ledger)
        record(ledger, sources, world.run(begin=1))
        assert ledger.verify().records == 3
        assert verify(path).sound
    shutil.copytree(path.parent, tmp_path / "copy", ignore=shutil.ignore_patterns("copy"))
    assert verify(tmp_path / "copy" / path.name).records == 3
