"""The sidecar's services as a client sees them. No grpc exception leaves this module."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import grpc
from tokenwitness.v1 import checkpoint_pb2, checkpoint_pb2_grpc, verifier_pb2, verifier_pb2_grpc

from sidecar.cli.documents import Document, to_document
from sidecar.cli.errors import (
    AlreadyExists,
    CommandError,
    NotFound,
    PreconditionFailed,
    TimedOut,
    Unreachable,
    UsageFault,
)

_ERRORS: dict[grpc.StatusCode, type[CommandError]] = {
    grpc.StatusCode.UNAVAILABLE: Unreachable,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
    grpc.StatusCode.FAILED_PRECONDITION: PreconditionFailed,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.INVALID_ARGUMENT: UsageFault,
}
# A reply may hold the evidence of thousands of sessions.
_MAX_REPLY_BYTES = 64 * 1024 * 1024
# The sidecar ends a wait itself; the client's own limit only catches a sidecar that does not.
_GRACE_S = 5.0


class SidecarClient:
    """One connection. Every call ends within its time limit, in seconds, or raises.

    Calls raise `CommandError`s: Unreachable, NotFound, TimedOut, PreconditionFailed,
    AlreadyExists, UsageFault (the sidecar found an argument malformed), else CommandError.
    """

    def __init__(self, address: str, *, call_timeout_s: float = 10.0) -> None:
        self._address = address
        self._timeout_s = call_timeout_s
        options = [
            ("grpc.max_receive_message_length", _MAX_REPLY_BYTES),
            # The sidecar is near; a proxy of the environment is not on the way.
            ("grpc.enable_http_proxy", 0),
        ]
        self._channel = grpc.insecure_channel(address, options=options)
        # The generated stubs have no types.
        self._checkpoints: Any = checkpoint_pb2_grpc.CheckpointServiceStub(  # type: ignore[no-untyped-call]
            self._channel
        )
        self._verifier: Any = verifier_pb2_grpc.VerifierServiceStub(  # type: ignore[no-untyped-call]
            self._channel
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()

    def list_workers(self) -> Document:
        return self._call(self._verifier.ListWorkers, verifier_pb2.ListWorkersRequest())

    def list_sessions(self, worker: str, *, limit: int) -> Document:
        request = verifier_pb2.ListSessionsRequest(worker=worker, limit=limit)
        return self._call(self._verifier.ListSessions, request)

    def list_verdicts(self, worker: str, *, limit: int) -> Document:
        request = verifier_pb2.ListVerdictsRequest(worker=worker, limit=limit)
        return self._call(self._verifier.ListVerdicts, request)

    def list_marks(self, worker: str, *, limit: int) -> Document:
        request = verifier_pb2.ListMarksRequest(worker=worker, limit=limit)
        return self._call(self._verifier.ListMarks, request)

    def prepare_mark(self, worker: str, name: str, *, deadline_s: float) -> Document:
        """Returns once the mark is durable. `name` empty: the sidecar chooses."""
        request = checkpoint_pb2.PrepareMarkRequest(
            worker=worker, name=name, deadline_ms=_milliseconds(deadline_s)
        )
        return self._call(self._checkpoints.PrepareMark, request, deadline_s + _GRACE_S)

    def complete_mark(self, worker: str, name: str, *, image: str) -> Document:
        return self._complete(worker, name, checkpoint_pb2.MARK_OUTCOME_TAKEN, image)

    def fail_mark(self, worker: str, name: str) -> Document:
        return self._complete(worker, name, checkpoint_pb2.MARK_OUTCOME_FAILED, "")

    def _complete(
        self, worker: str, name: str, outcome: "checkpoint_pb2.MarkOutcome", image: str
    ) -> Document:
        request = checkpoint_pb2.CompleteMarkRequest(
            worker=worker, name=name, outcome=outcome, image=image
        )
        return self._call(self._checkpoints.CompleteMark, request)

    def restored(self, worker: str, mark: str, *, deadline_s: float) -> Document:
        """Starts a verification; `deadline_s` bounds it, not this call. 0: the default."""
        request = checkpoint_pb2.RestoredRequest(
            worker=worker, mark=mark, deadline_ms=_milliseconds(deadline_s)
        )
        return self._call(self._checkpoints.Restored, request)

    def verify_memory(self, worker: str, *, deadline_s: float) -> Document:
        return self._verify(worker, deadline_s, continuation=False)

    def verify_with_continuation(self, worker: str, *, deadline_s: float) -> Document:
        return self._verify(worker, deadline_s, continuation=True)

    def _verify(self, worker: str, deadline_s: float, *, continuation: bool) -> Document:
        request = verifier_pb2.VerifyNowRequest(
            worker=worker, deadline_ms=_milliseconds(deadline_s), continuation=continuation
        )
        return self._call(self._verifier.VerifyNow, request)

    def wait_final_verdict(
        self, worker: str, verification_id: str, *, timeout_s: float
    ) -> Document:
        return self._wait(worker, verification_id, timeout_s, state_only=False)

    def wait_state_verdict(
        self, worker: str, verification_id: str, *, timeout_s: float
    ) -> Document:
        """The verdict on memory, before the continuation has run."""
        return self._wait(worker, verification_id, timeout_s, state_only=True)

    def _wait(
        self, worker: str, verification_id: str, timeout_s: float, *, state_only: bool
    ) -> Document:
        request = checkpoint_pb2.WaitVerdictRequest(
            worker=worker,
            verification_id=verification_id,
            timeout_ms=_milliseconds(timeout_s),
            state_only=state_only,
        )
        return self._call(self._checkpoints.WaitVerdict, request, timeout_s + _GRACE_S)

    def watch(self, worker: str, *, for_s: float | None) -> Iterator[Document]:
        """Events as they come, until `for_s` is over. The end of time is no error here."""
        stream = self._verifier.Watch(verifier_pb2.WatchRequest(worker=worker), timeout=for_s)
        try:
            with self._translated():
                for message in stream:
                    yield to_document(message)
        except TimedOut:
            return
        finally:
            stream.cancel()

    def export(self, worker: str, *, from_step: int, to_step: int) -> Iterator[Document]:
        """The record of a worker in the order in which it was written. Not bounded in time."""
        request = verifier_pb2.ExportRequest(worker=worker, from_step=from_step, to_step=to_step)
        stream = self._verifier.Export(request)
        try:
            with self._translated():
                for message in stream:
                    yield to_document(message)
        finally:
            stream.cancel()

    def _call(
        self, method: Callable[..., Any], request: object, timeout_s: float | None = None
    ) -> Document:
        with self._translated():
            return to_document(method(request, timeout=timeout_s or self._timeout_s))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            code = error.code()
            detail = error.details() or code.name
            kind = _ERRORS.get(code, CommandError)
            if kind is Unreachable:
                detail = (
                    f"no sidecar answers at {self._address} ({detail}); start one with"
                    " `tokenwitness serve` or name its address with --sidecar"
                )
            raise kind(detail) from error


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
