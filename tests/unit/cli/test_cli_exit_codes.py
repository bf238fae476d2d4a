import re
from pathlib import Path

import grpc
import pytest
from tokenwitness.v1 import checkpoint_pb2, types_pb2

from sidecar.cli.exit_codes import Exit, exit_of_verdict, markdown_table
from sidecar.core.verdicts import PASSES, Verdict

DOCS = Path(__file__).parents[3] / "docs" / "cli.md"
WAIT = ("restored", "--wait", "--worker", "w", "--timeout", "2")


def verdict(name, *, final=True, state=None):
    number = types_pb2.Verdict.Value(f"VERDICT_{name}")
    return checkpoint_pb2.WaitVerdictResponse(
        verdict=types_pb2.WorkerVerdict(
            worker="w",
            verdict=number,
            state_verdict=types_pb2.Verdict.Value(f"VERDICT_{state or name}"),
            final=final,
        )
    )


@pytest.mark.parametrize("given", list(Verdict))
def test_every_verdict_has_its_status_and_only_passes_are_zero(sidecar, run, given):
    sidecar.replies["WaitVerdict"] = verdict(given.name)
    result = run(*WAIT, "--sidecar", sidecar.address)
    assert result.exit_code == (0 if given in PASSES else 10 + given)


def test_statuses_do_not_collide():
    verdicts = [exit_of_verdict(verdict) for verdict in Verdict if not verdict.passes]
    assert len({*verdicts, *Exit}) == len(verdicts) + len(Exit)
    assert max(verdicts) < 126


def test_the_table_in_the_documentation_is_this_one():
    found = re.search(r"<!-- exit statuses -->\n(.*?)\n<!-- end -->", DOCS.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == markdown_table()


@pytest.mark.parametrize("name", ["RESUMED_EXACT", "UNSPECIFIED"])
def test_pass_that_is_not_final_is_a_timeout(sidecar, run, name):
    sidecar.replies["WaitVerdict"] = verdict(name, final=False)
    assert run(*WAIT, "--sidecar", sidecar.address).exit_code == Exit.TIMEOUT


def test_bad_memory_is_told_before_the_verdict_is_final(sidecar, run):
    sidecar.replies["WaitVerdict"] = verdict("UNSPECIFIED", final=False, state="KV_MISMATCH")
    assert run(*WAIT, "--sidecar", sidecar.address).exit_code == 21


def test_state_only_exits_by_the_verdict_on_memory(sidecar, run):
    sidecar.replies["WaitVerdict"] = verdict("UNSPECIFIED", final=False, state="RESUMED_EXACT")
    assert run(*WAIT, "--state-only", "--sidecar", sidecar.address).exit_code == 0
    assert sidecar.last("WaitVerdict").state_only
    sidecar.replies["WaitVerdict"] = verdict("UNSPECIFIED", final=False)
    result = run(*WAIT, "--state-only", "--sidecar", sidecar.address)
    assert result.exit_code == Exit.TIMEOUT


def test_reply_without_a_verdict_is_no_pass(sidecar, run):
    result = run(*WAIT, "--sidecar", sidecar.address)
    assert result.exit_code == Exit.TIMEOUT


def test_verdict_of_a_newer_sidecar_is_no_pass(sidecar, run):
    reply = verdict("RESUMED_EXACT")
    reply.verdict.verdict = 77
    sidecar.replies["WaitVerdict"] = reply
    assert run(*WAIT, "--sidecar", sidecar.address).exit_code == 10 + Verdict.INCOMPARABLE


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (grpc.StatusCode.NOT_FOUND, Exit.NOT_FOUND),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Exit.TIMEOUT),
        (grpc.StatusCode.FAILED_PRECONDITION, Exit.PRECONDITION),
        (grpc.StatusCode.ALREADY_EXISTS, Exit.ALREADY_EXISTS),
        (grpc.StatusCode.INVALID_ARGUMENT, Exit.USAGE),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Exit.REFUSED),
        (grpc.StatusCode.UNAVAILABLE, Exit.UNREACHABLE),
        (grpc.StatusCode.INTERNAL, Exit.REFUSED),
    ],
)
def test_error_of_the_sidecar_has_its_status_and_words(sidecar, run, code, status):
    sidecar.replies["PrepareMark"] = (code, "rank 1 is missing")
    result = run("mark", "-w", "w", "--sidecar", sidecar.address)
    assert result.exit_code == status
    assert "rank 1 is missing" in result.stderr
    assert not result.stdout


def test_error_as_json_takes_the_answer_s_place(sidecar, run):
    sidecar.replies["PrepareMark"] = (grpc.StatusCode.NOT_FOUND, "no worker w")
    result = run("mark", "-w", "w", "--json", "--sidecar", sidecar.address)
    assert result.json == {"error": {"kind": "not_found", "message": "no worker w"}}


def test_closed_port_is_unreachable_and_says_what_to_do(run):
    result = run("workers", "--sidecar", "127.0.0.1:1")
    assert result.exit_code == Exit.UNREACHABLE
    assert "tokenwitness serve" in result.stderr
    assert "--sidecar" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("workers", "--sidecar", "nowhere"),
        ("sessions",),
        ("mark", "-w", "w", "--complete"),
        ("mark", "-w", "w", "--name", "m", "--complete", "--failed"),
        ("mark", "-w", "w", "--image", "x"),
        ("restored", "-w", "w", "--state-only"),
        ("verify", "-w", "w", "--state-only"),
        ("serve", "--check", "--shadow-k", "0"),
        ("engine-args", "vllm", "--worker", "a b"),
        ("engine-args", "vllm", "--beside", "{"),
        ("no-such-command",),
    ],
)
def test_wrong_command_line_is_a_usage_error(run, arguments):
    assert run(*arguments).exit_code == Exit.USAGE
