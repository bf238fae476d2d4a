"""What a command's exit status means. docs/cli.md has this table; a test keeps them equal."""

from enum import IntEnum

from sidecar.core.verdicts import Verdict

# Statuses of verdicts begin here: 10 and the verdict's number on the wire.
FIRST_VERDICT = 10


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    TIMEOUT = 5
    PRECONDITION = 6
    ALREADY_EXISTS = 7
    REFUSED = 8
    GATE_CLOSED = 9


_MEANINGS = {
    Exit.OK: "Done. Where a verdict was waited for: it is final and a pass (`RESUMED_EXACT`,"
    " `EQUIVALENT` or `NOTHING_IN_FLIGHT`)",
    Exit.FAILED: "A check failed (`doctor`, `ledger verify`) or the sidecar could not start",
    Exit.USAGE: "The command line or a setting is wrong",
    Exit.UNREACHABLE: "No sidecar answers at the address",
    Exit.NOT_FOUND: "No such worker, mark or verification",
    Exit.TIMEOUT: "The deadline passed first; a verdict was not final by then",
    Exit.PRECONDITION: "The worker is not attached, or not with all its ranks",
    Exit.ALREADY_EXISTS: "A mark of this name exists",
    Exit.REFUSED: "The sidecar refused or failed for another reason; the message says which",
    Exit.GATE_CLOSED: "The worker's gate is closed (`gate`)",
}


def exit_of_verdict(verdict: Verdict) -> int:
    """0 for a pass, else 10 and the verdict's number; UNSPECIFIED never passes."""
    return int(Exit.OK) if verdict.passes else FIRST_VERDICT + verdict


def markdown_table() -> str:
    """All statuses, as docs/cli.md has them."""
    rows = ["| status | meaning |", "| ---: | --- |"]
    rows += [f"| {status.value} | {meaning} |" for status, meaning in _MEANINGS.items()]
    rows += [
        f"| {exit_of_verdict(verdict)} | Verdict `{verdict.name}` |"
        for verdict in Verdict
        if not verdict.passes
    ]
    return "\n".join(rows)
