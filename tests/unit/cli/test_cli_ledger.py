import sqlite3

import pytest
from tokenwitness.v1 import recorder_pb2

from sidecar.core.events import SourceKey, SourceKind
from sidecar.ledger.sqlite import open_ledger
from sidecar.ledger.values import RecordKind, SourceDescription, StoredRecord

STEPS = 20


def record(seq, body):
    return recorder_pb2.Record(seq=seq, **body).SerializeToString()


@pytest.fixture
def path(tmp_path):
    """A ledger as a sidecar leaves it: launches and commits of a scheduler."""
    made = tmp_path / "tokenwitness.ledger"
    ledger = open_ledger(made)
    source = ledger.source(
        "w0", "life-1", SourceKey(SourceKind.SCHEDULER, 0), SourceDescription(nonce=7, ranks=1)
    )
    start = recorder_pb2.SessionStart(row=0, session_id="cmpl-1", prompt_tokens=[1, 2, 3])
    records = []
    for step in range(1, STEPS + 1):
        launch = recorder_pb2.Launch(step=step, rows=[0], starts=[step + 1 if step > 1 else 0])
        if step == 1:
            launch.started.append(start)
            launch.counts.append(3)
        commit = recorder_pb2.Commit(step=step, tokens=[100 + step])
        for kind, body in (
            (RecordKind.LAUNCH, {"launch": launch}),
            (RecordKind.COMMIT, {"commit": commit}),
        ):
            seq = len(records) + 1
            records.append(StoredRecord(seq, step, kind, record(seq, body)))
    ledger.append(source.source_id, source.generation, records)
    ledger.flush(10)
    ledger.close(10)
    return made


def test_sound_ledger_is_said_to_be_sound_with_its_numbers(run, path):
    result = run("ledger", "verify", path, "--json")
    assert result.exit_code == 0, result.stdout
    assert result.json["sound"] is True
    assert (result.json["sources"], result.json["records"]) == (1, 2 * STEPS)
    assert "sound" in run("ledger", "verify", path).stdout


def test_edited_record_is_found_where_it_is(run, path):
    with sqlite3.connect(path) as connection:
        (payload,) = connection.execute("SELECT payload FROM records WHERE seq = 8").fetchone()
        edited = bytearray(payload)
        edited[-1] ^= 1
        connection.execute("UPDATE records SET payload = ? WHERE seq = 8", (bytes(edited),))
    connection.close()
    result = run("ledger", "verify", path, "--json")
    assert result.exit_code == 1
    assert result.json["sound"] is False
    assert {"fault": "chain", "seq": 8}.items() <= result.json["problems"][0].items()
    shown = run("ledger", "verify", path)
    assert shown.exit_code == 1
    assert "seq=8" in shown.stdout
    assert "NOT SOUND" in shown.stdout


def test_removed_record_is_found(run, path):
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM records WHERE seq = 8")
    connection.close()
    result = run("ledger", "verify", path, "--json")
    assert result.exit_code == 1
    assert "missing_seq" in {problem["fault"] for problem in result.json["problems"]}


def test_file_that_is_no_ledger_is_not_sound(run, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("not a ledger" * 100)
    assert run("ledger", "verify", other).exit_code == 1
    assert run("ledger", "stat", other).exit_code == 1


@pytest.mark.parametrize("command", ["verify", "stat"])
def test_missing_ledger_is_not_found_and_not_made(run, tmp_path, command):
    missing = tmp_path / "none.ledger"
    result = run("ledger", command, missing)
    assert result.exit_code == 4
    assert "none.ledger" in result.stderr
    assert not missing.exists()


def test_path_may_come_from_the_environment(run, path):
    result = run("ledger", "stat", "--json", env={"TOKENWITNESS_LEDGER_PATH": str(path)})
    assert result.json["path"] == str(path)


def test_stat_counts_by_source(run, path):
    document = run("ledger", "stat", path, "--json").json
    assert document["format_version"] == 1
    (source,) = document["sources"]
    assert source["worker"] == "w0"
    assert source["source"] == "scheduler"
    assert source["records"] == 2 * STEPS
    assert (source["first_step"], source["last_step"]) == (1, STEPS)
    assert source["payload_bytes"] > 0
    assert source["holes"] == 0
    assert "w0" in run("ledger", "stat", path).stdout
