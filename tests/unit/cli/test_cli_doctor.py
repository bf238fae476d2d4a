import sys
from pathlib import Path

import pytest
from cli_machine import FakeMachine
from tokenwitness.v1 import types_pb2, verifier_pb2

from sidecar.cli.check import State
from sidecar.cli.checks_engine import adapter, engine_checks, engine_version
from sidecar.cli.checks_machine import (
    criu_version,
    criu_works,
    io_uring,
    machine_checks,
    nftables,
    privileges,
)
from sidecar.cli.checks_sidecar import attached
from sidecar.cli.doctor import Checkpointer, examine
from sidecar.cli.probe import Machine, Ran


def says(check, state, *words):
    assert check.state is state, check
    for word in words:
        assert word in f"{check.seen} {check.remedy}"
    assert (check.remedy == "") is (state is State.OK)


def test_good_machine_is_good():
    checks = list(machine_checks(FakeMachine(), "criu"))
    assert [check.name for check in checks] == [
        "privileges",
        "kernel",
        "criu",
        "criu check",
        "io_uring",
        "nftables",
    ]
    assert {check.state for check in checks} == {State.OK}


@pytest.mark.parametrize(
    ("kernel", "criu", "state"),
    [
        ("6.18.1", "4.2.1", State.OK),
        ("6.16.0-rc1", "4.2", State.OK),
        ("6.16.0", "4.1.1", State.FAIL),
        ("6.18.1", "4.1", State.FAIL),
        ("7.0.3", "4.1", State.FAIL),
        ("6.1.0-13-amd64", "3.17.1", State.FAIL),
        ("6.1.0-13-amd64", "4.1", State.WARN),
        ("6.1.0-13-amd64", "4.2", State.OK),
        ("6.1.0-13-amd64", "10.0", State.OK),
    ],
)
def test_known_bad_pairs_of_kernel_and_criu_fail(kernel, criu, state):
    machine = FakeMachine(release=kernel)
    machine.runs["criu --version"] = Ran(0, f"Version: {criu}\nGitID: v{criu}\n")
    checks = {check.name: check for check in machine_checks(machine, "criu")}
    assert checks["criu"].state is state
    assert criu in checks["criu"].seen


def test_criu_that_is_not_there_is_not_asked():
    machine = FakeMachine(programs={"nft": "/usr/sbin/nft"})
    checks = {check.name: check for check in machine_checks(machine, "/opt/criu")}
    says(checks["criu"], State.FAIL, "/opt/criu", "--criu")
    assert "criu check" not in checks


@pytest.mark.parametrize("ran", [None, Ran(1, "segmentation fault"), Ran(0, "")])
def test_criu_without_a_version_fails(ran):
    machine = FakeMachine()
    machine.runs["criu --version"] = ran
    assert criu_version(machine, "/usr/sbin/criu", (6, 18)).state is State.FAIL


def test_failed_criu_check_tells_the_first_error():
    machine = FakeMachine()
    output = "Warn  (x): y\nError (criu/cr-check.c:1): no VDSO\nError: Does not look good.\n"
    machine.runs["criu check"] = Ran(1, output)
    says(criu_works(machine, "/usr/sbin/criu"), State.FAIL, "no VDSO", "-v4")


@pytest.mark.parametrize(
    ("value", "state"),
    [("2\n", State.OK), ("0\n", State.FAIL), ("1\n", State.FAIL), (None, State.OK)],
)
def test_io_uring_has_to_be_off(value, state):
    machine = FakeMachine(files={"/proc/sys/kernel/io_uring_disabled": value})
    assert io_uring(machine).state is state


def test_nftables_missing_or_forbidden():
    says(nftables(FakeMachine(programs={})), State.FAIL, "install")
    machine = FakeMachine()
    machine.runs["nft list"] = Ran(1, "Operation not permitted (you must be root)")
    says(nftables(machine), State.WARN, "not permitted")


def test_privileges():
    says(privileges(FakeMachine(user=1000)), State.FAIL, "user 1000")
    bare = {"/proc/self/status": "CapEff:\t00000000a80425fb\n"}
    says(privileges(FakeMachine(files=bare)), State.FAIL, "CAP_SYS_ADMIN", "CAP_SYS_PTRACE")


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("0.26.0", State.OK),
        ("0.32.0+cpu", State.OK),
        ("0.33.1rc1", State.OK),
        ("0.25.9", State.FAIL),
        ("0.34.0", State.FAIL),
        ("1.0.0", State.FAIL),
        ("dev", State.FAIL),
        (None, State.FAIL),
    ],
)
def test_engine_version_range(version, state):
    assert engine_version(version).state is state


def test_adapter_has_to_be_importable_and_registered():
    says(adapter({}, found=True), State.OK)
    says(adapter({"xxhash": "ModuleNotFoundError: x"}, found=True), State.FAIL, "xxhash", "pip")
    says(adapter({}, found=False), State.FAIL, "plugin")


def test_engine_python_is_really_asked():
    checks = list(engine_checks(Machine(), sys.executable))
    # This environment has the adapter and no vLLM.
    assert [(check.name, check.state) for check in checks] == [
        ("engine version", State.FAIL),
        ("adapter", State.OK),
    ]


def test_engine_python_that_does_not_work():
    (missing,) = engine_checks(Machine(), "/nonexistent/python")
    says(missing, State.FAIL, "/nonexistent/python")
    (broken,) = engine_checks(Machine(), "/bin/false")
    says(broken, State.FAIL, "status 1")
    (skipped,) = engine_checks(Machine(), None)
    says(skipped, State.WARN, "--engine-python")


def status(name, *, scheduler=True, ranks=2, holes=0):
    attached_sources = [{"kind": "SCHEDULER"}] * scheduler + [{"kind": "RANK"}] * ranks
    return {
        "worker": name,
        "ranks_expected": 2,
        "attached": attached_sources,
        "hole_records": holes,
    }


@pytest.mark.parametrize(
    ("workers", "wanted", "states"),
    [
        ([status("a")], "", [State.OK]),
        ([status("a"), status("b", ranks=1)], "", [State.OK, State.FAIL]),
        ([status("a"), status("b", ranks=1)], "a", [State.OK]),
        ([status("a", scheduler=False)], "", [State.FAIL]),
        ([status("a", holes=3)], "", [State.WARN]),
        ([], "", [State.FAIL]),
        ([status("a")], "c", [State.FAIL]),
    ],
)
def test_every_rank_has_to_be_attached(workers, wanted, states):
    assert [check.state for check in attached(workers, wanted)] == states


def examined(machine, address, **change):
    given = {
        "checkpointer": Checkpointer.CRIU,
        "criu": "criu",
        "engine_python": None,
        "address": address,
        "http_address": "127.0.0.1:9748",
        "ledger": Path("x.ledger"),
        "worker": "",
    }
    return {check.name: check for check in examine(machine, **(given | change))}


def test_sidecar_that_answers_is_asked_for_ranks(sidecar):
    sources = [
        types_pb2.Source(kind=types_pb2.SOURCE_KIND_SCHEDULER),
        types_pb2.Source(kind=types_pb2.SOURCE_KIND_RANK),
    ]
    sidecar.replies["ListWorkers"] = verifier_pb2.ListWorkersResponse(
        workers=[verifier_pb2.WorkerStatus(worker="w", ranks_expected=2, attached=sources)]
    )
    checks = examined(FakeMachine(listening=False), sidecar.address)
    says(checks["sidecar"], State.OK, "1 workers")
    says(checks["adapter attached: w"], State.FAIL, "1 of 2 ranks")
    says(checks["port 127.0.0.1:9748"], State.WARN, "--http-address")
    assert checks["clock"].state is State.OK


def test_sidecar_that_does_not_answer_needs_free_ports():
    checks = examined(FakeMachine(busy="Address already in use"), "127.0.0.1:1")
    says(checks["sidecar"], State.FAIL, "tokenwitness serve")
    says(checks["port 127.0.0.1:1"], State.FAIL, "already in use")
    checks = examined(FakeMachine(), "127.0.0.1:1")
    assert checks["port 127.0.0.1:1"].state is State.OK


def test_ledger_that_cannot_be_written_fails():
    machine = FakeMachine(unwritable="folder /x is read-only")
    says(examined(machine, "127.0.0.1:1")["ledger"], State.FAIL, "/x is read-only")


def test_machine_looks_before_it_writes(tmp_path):
    machine = Machine()
    assert machine.may_write(tmp_path / "new" / "x.ledger") is None
    assert list(tmp_path.iterdir()) == []
    assert "is a folder" in machine.may_write(tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert machine.may_write(blocked) is None
    assert machine.may_write(blocked / "below") is not None


def test_machine_runs_bounded():
    machine = Machine()
    assert machine.run(["sleep", "5"], timeout_s=0.05).status == 124
    assert machine.run(["/nonexistent"]) is None
    assert machine.run(["cat"]).status == 0


def test_command_prints_every_check_and_fails_if_one_failed(run, tmp_path):
    arguments = ("doctor", "--criu", tmp_path / "none", "--sidecar", "127.0.0.1:1")
    result = run(*arguments, "--json")
    assert result.exit_code == 1
    assert result.json["ok"] is False
    assert {"name", "state", "seen", "remedy"} == set(result.json["checks"][0])
    states = {check["name"]: check["state"] for check in result.json["checks"]}
    assert states["criu"] == "fail"
    shown = run(*arguments)
    assert shown.exit_code == 1
    assert "fail criu:" in shown.stdout
    assert "-> install CRIU" in " ".join(shown.stdout.split())


def test_other_checkpointers_need_no_criu():
    machine = FakeMachine(programs={}, user=1000)
    names = examined(machine, "127.0.0.1:1", checkpointer=Checkpointer.OTHER)
    assert not {"criu", "criu check", "privileges", "io_uring", "nftables"} & set(names)
