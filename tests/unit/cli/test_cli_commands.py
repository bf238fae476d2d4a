import json

import pytest
from tokenwitness.v1 import checkpoint_pb2, recorder_pb2, types_pb2, verifier_pb2

BIG = 2**63 + 5


def at(sidecar):
    return ("--sidecar", sidecar.address)


def worker_status(name="w0", ranks=2, **more):
    sources = [types_pb2.Source(kind=types_pb2.SOURCE_KIND_SCHEDULER)]
    sources += [
        types_pb2.Source(kind=types_pb2.SOURCE_KIND_RANK, rank=rank) for rank in range(ranks)
    ]
    return verifier_pb2.WorkerStatus(
        worker=name,
        ranks_expected=2,
        attached=sources,
        launched_step=BIG,
        last_verdict=types_pb2.VERDICT_RESUMED_EXACT,
        gate_open=True,
        **more,
    )


def test_workers_as_a_table_and_as_json(sidecar, run):
    sidecar.replies["ListWorkers"] = verifier_pb2.ListWorkersResponse(workers=[worker_status()])
    shown = run("workers", *at(sidecar)).stdout
    assert "w0" in shown
    assert "2 of 2" in shown
    (worker,) = run("workers", "--json", *at(sidecar)).json["workers"]
    # 64-bit numbers stay numbers and enums are the documented words.
    assert worker["launched_step"] == BIG
    assert worker["last_verdict"] == "RESUMED_EXACT"
    assert worker["attached"][1]["kind"] == "RANK"
    assert worker["fingerprint"] is None


def test_sidecar_may_be_named_by_the_environment_and_the_flag_ranks_over_it(sidecar, run):
    assert run("workers", env={"TOKENWITNESS_SIDECAR": sidecar.address}).exit_code == 0
    wrong = {"TOKENWITNESS_SIDECAR": "127.0.0.1:1"}
    assert run("workers", env=wrong).exit_code == 3
    assert run("workers", *at(sidecar), env=wrong).exit_code == 0


def test_worker_may_be_named_by_the_environment(sidecar, run):
    env = {"TOKENWITNESS_WORKER": "from-env"}
    assert run("sessions", *at(sidecar), env=env).exit_code == 0
    assert sidecar.last("ListSessions").worker == "from-env"


def test_sessions_say_how_they_are_sampled_and_what_was_left_off(sidecar, run):
    sidecar.replies["ListSessions"] = verifier_pb2.ListSessionsResponse(
        sessions=[
            verifier_pb2.SessionStatus(
                session_id="cmpl-1", emitted=9, sampling=types_pb2.Sampling(temperature=0)
            ),
            verifier_pb2.SessionStatus(
                session_id="cmpl-2", sampling=types_pb2.Sampling(temperature=0.5, seed=-7)
            ),
            verifier_pb2.SessionStatus(
                session_id="cmpl-3", sampling=types_pb2.Sampling(temperature=0.5)
            ),
            verifier_pb2.SessionStatus(session_id="cmpl-4", shadow=True),
        ],
        left_off=3,
    )
    shown = run("sessions", "-w", "w", "--limit", "4", *at(sidecar)).stdout
    for words in ("greedy", "seed -7", "unseeded", "shadow", "and 3 more"):
        assert words in shown
    assert sidecar.last("ListSessions").limit == 4
    listed = run("sessions", "-w", "w", "--json", *at(sidecar)).json["sessions"]
    assert [s["sampling"]["seed"] for s in listed[:3]] == [None, -7, None]
    assert listed[3]["sampling"] is None


@pytest.mark.parametrize(
    ("arguments", "method", "fields"),
    [
        (("--name", "m1"), "PrepareMark", {"worker": "w", "name": "m1", "deadline_ms": 30_000}),
        (("--timeout", "1.5"), "PrepareMark", {"worker": "w", "name": "", "deadline_ms": 1500}),
        (
            ("--name", "m1", "--complete", "--image", "/img"),
            "CompleteMark",
            {"name": "m1", "outcome": checkpoint_pb2.MARK_OUTCOME_TAKEN, "image": "/img"},
        ),
        (
            ("--name", "m1", "--failed"),
            "CompleteMark",
            {"name": "m1", "outcome": checkpoint_pb2.MARK_OUTCOME_FAILED, "image": ""},
        ),
    ],
)
def test_mark_asks_for_what_was_said(sidecar, run, arguments, method, fields):
    mark = checkpoint_pb2.Mark(
        name="m1", worker="w", step=41, outcome=checkpoint_pb2.MARK_OUTCOME_PREPARED
    )
    sidecar.replies["PrepareMark"] = checkpoint_pb2.PrepareMarkResponse(mark=mark)
    sidecar.replies["CompleteMark"] = checkpoint_pb2.CompleteMarkResponse(mark=mark)
    result = run("mark", "-w", "w", *arguments, *at(sidecar))
    assert result.exit_code == 0
    assert "m1" in result.stdout
    assert "step 41" in result.stdout
    assert list(sidecar.asked) == [method]
    asked = sidecar.last(method)
    assert {name: getattr(asked, name) for name in fields} == fields
    as_json = run("mark", "-w", "w", *arguments, "--json", *at(sidecar)).json
    assert as_json["mark"]["outcome"] == "PREPARED"


def bad_verdict():
    finding = types_pb2.Finding(
        verdict=types_pb2.VERDICT_KV_MISMATCH,
        session_id="cmpl-1",
        rank=1,
        layers=[4, 5, 6, 9],
        position_starts=[96],
        position_ends=[97],
        reason="row differs",
        mismatches=1,
    )
    return types_pb2.WorkerVerdict(
        verification_id="v9",
        worker="w",
        verdict=types_pb2.VERDICT_KV_MISMATCH,
        state_verdict=types_pb2.VERDICT_KV_MISMATCH,
        final=True,
        sessions=[
            types_pb2.SessionVerdict(
                session_id="cmpl-1", verdict=types_pb2.VERDICT_KV_MISMATCH, findings=[finding]
            ),
            types_pb2.SessionVerdict(
                session_id="[bold]odd", verdict=types_pb2.VERDICT_RESUMED_EXACT
            ),
        ],
        compared=types_pb2.Compared(kv_rows=640),
    )


def test_restored_and_waited_for_shows_the_evidence(sidecar, run):
    sidecar.replies["Restored"] = checkpoint_pb2.RestoredResponse(verification_id="v9")
    sidecar.replies["WaitVerdict"] = checkpoint_pb2.WaitVerdictResponse(verdict=bad_verdict())
    arguments = ("restored", "-w", "w", "--mark", "m1", "--wait", "--timeout", "7", *at(sidecar))
    result = run(*arguments)
    assert result.exit_code == 21
    assert "rank=1 layers=4-6,9 positions=96..97" in " ".join(result.stdout.split())
    assert "kv_rows 640" in result.stdout
    # Names are data: nothing in them is markup.
    assert "[bold]odd" in result.stdout
    assert sidecar.last("Restored").mark == "m1"
    assert sidecar.last("Restored").deadline_ms == 7000
    assert sidecar.last("WaitVerdict").verification_id == "v9"
    document = run(*arguments, "--json").json
    assert document["exit_status"] == 21
    assert document["verdict"]["sessions"][0]["findings"][0]["rank"] == 1


def test_restored_without_wait_only_starts(sidecar, run):
    sidecar.replies["Restored"] = checkpoint_pb2.RestoredResponse(verification_id="v9")
    result = run("restored", "-w", "w", "--json", *at(sidecar))
    assert (result.exit_code, result.json) == (0, {"verification_id": "v9"})
    assert "WaitVerdict" not in sidecar.asked


@pytest.mark.parametrize("flags", [(), ("--continuation",)])
def test_verify_replays_only_when_told(sidecar, run, flags):
    sidecar.replies["VerifyNow"] = verifier_pb2.VerifyNowResponse(verification_id="v1")
    assert run("verify", "-w", "w", *flags, *at(sidecar)).exit_code == 0
    assert sidecar.last("VerifyNow").continuation is bool(flags)


def test_verdicts_are_listed_and_bad_ones_are_no_error(sidecar, run):
    sidecar.replies["ListVerdicts"] = verifier_pb2.ListVerdictsResponse(verdicts=[bad_verdict()])
    result = run("verdicts", *at(sidecar))
    assert result.exit_code == 0
    assert "KV_MISMATCH" in result.stdout
    assert sidecar.last("ListVerdicts").worker == ""
    assert len(run("verdicts", "--json", *at(sidecar)).json["verdicts"]) == 1


def events(*, stays_open=False):
    made = [
        verifier_pb2.WatchResponse(status=worker_status(), unix_ns=10**18),
        verifier_pb2.WatchResponse(verdict=bad_verdict(), unix_ns=10**18),
        verifier_pb2.WatchResponse(mark=checkpoint_pb2.Mark(name="m1"), unix_ns=10**18),
        verifier_pb2.WatchResponse(missed=4, unix_ns=10**18),
    ]
    return [*made, None] if stays_open else made


def test_watch_prints_one_line_of_json_per_event(sidecar, run):
    sidecar.replies["Watch"] = events()
    lines = [json.loads(line) for line in run("watch", "--json", *at(sidecar)).stdout.splitlines()]
    assert [min(line) for line in lines] == ["status", "unix_ns", "mark", "missed"]
    assert lines[1]["verdict"]["verdict"] == "KV_MISMATCH"
    assert lines[3]["missed"] == 4


def test_watch_ends_after_its_count(sidecar, run):
    sidecar.replies["Watch"] = events(stays_open=True)
    result = run("watch", "--json", "--count", "2", *at(sidecar))
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2


def test_watch_ends_after_its_time(sidecar, run):
    sidecar.replies["Watch"] = events(stays_open=True)
    result = run("watch", "--for", "0.5", *at(sidecar))
    assert result.exit_code == 0
    for words in ("w0", "KV_MISMATCH", "mark m1", "4 events missed"):
        assert words in result.stdout


def test_watch_of_a_sidecar_that_goes_away_is_an_error(run):
    assert run("watch", "--json", "--sidecar", "127.0.0.1:1").exit_code == 3


def test_export_streams_records_as_lines(sidecar, run):
    record = recorder_pb2.Record(
        seq=3, commit=recorder_pb2.Commit(step=2, tokens=[5, 6], token_counts=[2])
    )
    sidecar.replies["Export"] = [
        verifier_pb2.ExportResponse(record=record, chain=b"\x01\xff", generation=1)
    ]
    result = run("ledger", "export", "-w", "w", "--from-step", "2", *at(sidecar))
    line = json.loads(result.stdout)
    assert line["chain"] == "01ff"
    assert line["record"]["commit"]["tokens"] == [5, 6]
    assert "launch" not in line["record"]
    assert (sidecar.last("Export").from_step, sidecar.last("Export").to_step) == (2, 0)


def test_gate_is_open_closed_or_unknown(sidecar, run):
    closed = worker_status("closed")
    closed.gate_open = False
    closed.gate_reason = "KV_MISMATCH after restore"
    sidecar.replies["ListWorkers"] = verifier_pb2.ListWorkersResponse(
        workers=[worker_status("open"), closed]
    )
    assert run("gate", "-w", "open", *at(sidecar)).exit_code == 0
    result = run("gate", "-w", "closed", *at(sidecar))
    assert result.exit_code == 9
    assert "KV_MISMATCH after restore" in result.stdout
    assert run("gate", "-w", "clos", *at(sidecar)).exit_code == 4
    assert run("gate", "-w", "closed", "--json", *at(sidecar)).json["gate_open"] is False
