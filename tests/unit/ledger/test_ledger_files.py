import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from ledger_world import (
    QUIET,
    attach,
    opened,
)

from sidecar.ledger.errors import (
    LedgerCorruptError,
    LedgerLockedError,
    LedgerNotWritableError,
)
from sidecar.ledger.schema import APPLICATION_ID
from sidecar.ledger.sqlite import open_ledger
from sidecar.ledger.values import Fault
from sidecar.ledger.verify import verify_file
from sidecar.wire.payload import decode_payload


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "ledger.db"


_KILLED = """
import sys
import time
from pathlib import Path
from sidecar.core.events import SourceKey, SourceKind
from sidecar.ledger.sqlite import open_ledger
from sidecar.ledger.values import RecordKind, SourceDescription, StoredRecord
ledger = open_ledger(Path(sys.argv[1]))
source = ledger.source("w", "i", SourceKey(SourceKind.RANK), SourceDescription(1, 1)).source_id
ledger.subscribe(lambda source, generation, seq: print(seq, flush=True))
seq = 0
while True:
    time.sleep(0.0005)
    seq += 1
    ledger.append(source, 0, [StoredRecord(seq, seq, RecordKind.RANK_STEP, b"x" * 1000)])
"""


def test_a_killed_process_loses_nothing_that_it_acknowledged(path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    heard = [child.stdout.readline() for _ in range(5)]
    child.kill()
    rest, _ = child.communicate(timeout=10)
    acknowledged = max(int(line) for line in [*heard, *rest.split()])
    with opened(path) as ledger:
        (entry,) = ledger.sources("w")
        assert ledger.lost_tail is None
        assert ledger.durable_seq(entry.source_id, 0) >= acknowledged > 0


def test_one_process_at_a_time(path: Path) -> None:
    with opened(path), pytest.raises(LedgerLockedError) as caught:
        open_ledger(path, QUIET)
    assert caught.value.holder == str(os.getpid())
    with opened(path):
        pass


def test_files_are_the_owners_alone(path: Path) -> None:
    with opened(path) as ledger:
        attach(ledger)
        ledger.flush(5)
        modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
        assert set(modes.values()) == {0o600}
        assert {"ledger.db", "ledger.db-wal", "ledger.db.tip", "ledger.db.lock"} <= set(modes)
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerNotWritableError):
        open_ledger(tmp_path / "file" / "ledger.db", QUIET)


_READ_ONLY = """
import os, sys
from pathlib import Path
from sidecar.ledger.errors import LedgerNotWritableError
from sidecar.ledger.sqlite import open_ledger
import sidecar.wire.payload
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
try:
    open_ledger(Path(sys.argv[1]))
except LedgerNotWritableError as error:
    print(error)
"""


def test_a_read_only_folder_is_a_typed_error(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    # The test's own folder is closed to others; the child must be able to come here.
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", _READ_ONLY, str(folder / "ledger.db")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "cannot be written" in done.stdout, done.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize("content", [b"", b"not a database at all", b"SQLite format 3\0"])
def test_what_is_no_ledger_is_named_and_not_touched(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    (problem,) = verify_file(path, decode_payload).problems
    assert problem.fault is Fault.NOT_A_LEDGER
    if content:
        with pytest.raises(LedgerCorruptError):
            open_ledger(path)
        assert path.read_bytes() == content


def test_another_programs_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(LedgerCorruptError, match="application id 0x00000000"):
        open_ledger(path)
    assert path.read_bytes() == before
    assert int.from_bytes(b"TKWT", "big") == APPLICATION_ID
