"""What the unary services share: errors as values with a gRPC status, and fields checked."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import grpc

from sidecar.identity import NAME_PATTERN, is_name
from sidecar.ledger.errors import LedgerError, MarkExistsError, UnknownMarkError
from sidecar.ports import UnknownVerificationError
from sidecar.recorder.errors import StreamRefusedError
from sidecar.registry import WorkerRuntime

Service = TypeVar("Service")
Request = TypeVar("Request")
Response = TypeVar("Response")

MAX_LIMIT = 100_000


class AnswerError(Exception):
    """A call ends with this status; the text says what was wrong with what value."""

    def __init__(self, status: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def answering(
    method: Callable[[Service, Request, Any], Awaitable[Response]],
) -> Callable[[Service, Request, Any], Coroutine[Any, Any, Response]]:
    """Turns the typed errors of a unary method into statuses."""

    @functools.wraps(method)
    async def answer(service: Service, request: Request, context: Any) -> Response:
        try:
            return await method(service, request, context)
        except Exception as error:
            status, text = _status_of(error)
            await context.abort(status, text)
            raise

    return answer


def _status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    match error:
        case AnswerError() | StreamRefusedError():
            return error.status, error.text
        case UnknownMarkError() | UnknownVerificationError():
            return grpc.StatusCode.NOT_FOUND, str(error)
        case MarkExistsError():
            return grpc.StatusCode.ALREADY_EXISTS, str(error)
        case LedgerError():
            return grpc.StatusCode.UNAVAILABLE, str(error)
        case _:
            raise error


def check_name(field: str, value: str) -> str:
    """A worker's or a mark's name.

    Raises:
        AnswerError: INVALID_ARGUMENT.

    """
    if not is_name(value):
        raise AnswerError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{field} is {value[:80]!r}, expected a name like {NAME_PATTERN.pattern}",
        )
    return value


def check_limit(value: int, default: int) -> int:
    """How many entries to list; 0 is the default.

    Raises:
        AnswerError: INVALID_ARGUMENT.

    """
    if value > MAX_LIMIT:
        raise AnswerError(
            grpc.StatusCode.INVALID_ARGUMENT, f"limit is {value}, expected at most {MAX_LIMIT}"
        )
    return value or default


def milliseconds(value: int, default_ms: int) -> float:
    """Seconds of a duration on the wire; 0 is the default."""
    return (value or default_ms) / 1000


class Directory:
    """Workers by name, for callers that get NOT_FOUND where there is none."""

    def __init__(self, known: Callable[[str], Awaitable[WorkerRuntime | None]]) -> None:
        self._known = known

    async def find(self, field: str, name: str) -> WorkerRuntime:
        """The worker, attached now or known from the ledger.

        Raises:
            AnswerError: INVALID_ARGUMENT or NOT_FOUND.

        """
        worker = await self._known(check_name(field, name))
        if worker is None:
            raise AnswerError(
                grpc.StatusCode.NOT_FOUND, f"{field} {name!r}: no worker of this name is known"
            )
        return worker
