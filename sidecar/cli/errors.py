"""Errors that end a command. Each knows its exit status."""

# ruff: noqa: N818 - outcomes, named as the table of exit statuses names them

from sidecar.cli.exit_codes import Exit


class CommandError(Exception):
    """`kind` names it in `--json` output."""

    exit = Exit.REFUSED
    kind = "refused"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Failed(CommandError):
    exit = Exit.FAILED
    kind = "failed"


class UsageFault(CommandError):
    exit = Exit.USAGE
    kind = "usage"


class Unreachable(CommandError):
    exit = Exit.UNREACHABLE
    kind = "unreachable"


class NotFound(CommandError):
    exit = Exit.NOT_FOUND
    kind = "not_found"


class TimedOut(CommandError):
    exit = Exit.TIMEOUT
    kind = "timeout"


class PreconditionFailed(CommandError):
    exit = Exit.PRECONDITION
    kind = "precondition"


class AlreadyExists(CommandError):
    exit = Exit.ALREADY_EXISTS
    kind = "already_exists"
