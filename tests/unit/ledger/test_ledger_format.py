"""The format is fixed: golden links, versions, migrations."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from ledger_world import QUIET, World, attach, opened, record

from sidecar.ledger import chain, schema
from sidecar.ledger.errors import LedgerVersionError
from sidecar.ledger.sqlite import open_ledger
from sidecar.ledger.tip import Tip, pack, unpack
from sidecar.ledger.values import Fault
from sidecar.ledger.verify import verify_file
from sidecar.wire.payload import decode_payload


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_golden_links() -> None:
    source = chain.source_digest("worker", "incarnation", 2, 3)
    assert source.hex() == "415332bf60ff6f9383439da98ff5f2e4"
    first = chain.genesis(source)
    assert first.hex() == "9029a5d93469efa9622536f0b927c045"
    link = chain.link(first, source, 7, 1, 4, 1, 9, 4, 1_700_000_000_000_000_000, b"payload")
    assert link.hex() == "d3b856d9bcca6c928e728a2b7e54d7eb"
    control = chain.control_link(chain.genesis(chain.CONTROL_DIGEST), 1, 66, 5, b"{}")
    assert control.hex() == "99a85f9399a2f2d333ca6ed7e09f4d39"


def test_golden_tip() -> None:
    data = pack(Tip(258, 3))
    assert data.hex() == (
        "5457544950000001020100000000000003000000000000004d298838dd4ef9f2faedb9adb9fc70c0"
    )
    assert unpack(data) == Tip(258, 3)


@pytest.mark.parametrize("index", range(8))
def test_every_field_of_a_record_is_in_its_link(index: int) -> None:
    fields = [7, 1, 4, 1, 9, 4, 11, b"payload"]
    source = chain.source_digest("worker", "incarnation", 2, 3)
    before = chain.link(b"p" * 16, source, *fields)
    value = fields[index]
    fields[index] = b"other" if isinstance(value, bytes) else value + 1
    assert chain.link(b"p" * 16, source, *fields) != before
    assert chain.link(b"q" * 16, source, *fields) != before


def set_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def filled(path: Path) -> None:
    with opened(path) as ledger:
        sources = attach(ledger)
        record(ledger, sources, World().run(begin=1))


def test_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    filled(path)
    set_version(path, 2)
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises(LedgerVersionError) as caught:
        open_ledger(path, QUIET)
    assert (caught.value.found, caught.value.supported) == (2, 1)
    assert "version 2" in str(caught.value)
    assert "version 1" in str(caught.value)
    (problem,) = verify_file(path, decode_payload).problems
    assert problem.fault is Fault.VERSION
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before


def with_connection(path: Path, run: Callable[[sqlite3.Connection], object]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        run(connection)


def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE control ADD COLUMN note TEXT NOT NULL DEFAULT ''")


def test_an_older_version_migrates_and_keeps_everything(path: Path) -> None:
    filled(path)
    with_connection(
        path,
        lambda connection: schema.migrate(connection, path, target=2, steps={1: add_column}),
    )
    assert schema.file_version(path) == 2
    with_connection(
        path, lambda connection: connection.execute("SELECT note FROM control").fetchall()
    )
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM records").fetchone() == (3,)


def test_a_migration_that_fails_half_way_changes_nothing(path: Path) -> None:
    filled(path)

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM records")
        connection.execute("SELECT * FROM no_such_table")

    def run(connection: sqlite3.Connection) -> None:
        steps = {1: add_column, 2: fails}
        with pytest.raises(sqlite3.OperationalError):
            schema.migrate(connection, path, target=3, steps=steps)

    with_connection(path, run)
    assert schema.file_version(path) == 1
    with opened(path) as ledger:
        assert ledger.verify().records == 3


def test_a_version_without_a_way_is_refused(path: Path) -> None:
    filled(path)

    def run(connection: sqlite3.Connection) -> None:
        with pytest.raises(LedgerVersionError):
            schema.migrate(connection, path, target=3, steps={1: add_column})

    with_connection(path, run)
    assert schema.file_version(path) == 1
