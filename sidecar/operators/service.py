"""VerifierService: operators to sidecar, what is seen and what was judged."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from tokenwitness.v1 import recorder_pb2, types_pb2, verifier_pb2_grpc
from tokenwitness.v1 import verifier_pb2 as pb

from sidecar.config import Settings
from sidecar.core.events import Fingerprint
from sidecar.core.sessions import Session
from sidecar.core.status import SessionOrigin, session_status
from sidecar.core.verdicts import WorkerVerdict
from sidecar.gate import GateBoard
from sidecar.identity import RestoreEvidence
from sidecar.ledger.errors import LedgerError
from sidecar.ledger.interface import Ledger
from sidecar.ledger.values import ExportedRecord, Mark
from sidecar.operators.hub import Missed, TooManyWatchersError, WatchHub
from sidecar.ports import Continuation, Verifier, WatchEvent
from sidecar.recorder.clocks import Clocks
from sidecar.recorder.errors import StreamRefusedError
from sidecar.registry import Registry, SourceRuntime, WorkerRuntime
from sidecar.rpc import AnswerError, Directory, answering, check_limit, check_name, milliseconds
from sidecar.wire import codec

DEFAULT_SESSIONS = 1000
DEFAULT_VERDICTS = 50
DEFAULT_MARKS = 50
# Records that are read from the ledger in one go for an export.
EXPORT_CHUNK = 256


class VerifierService(verifier_pb2_grpc.VerifierServiceServicer):
    """See verifier.proto for the errors of each call."""

    def __init__(
        self,
        *,
        settings: Settings,
        directory: Directory,
        registry: Registry,
        gates: GateBoard,
        ledger: Ledger,
        verifier: Verifier,
        hub: WatchHub,
        clocks: Clocks,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._registry = registry
        self._gates = gates
        self._ledger = ledger
        self._verifier = verifier
        self._hub = hub
        self._clocks = clocks

    @answering
    async def ListWorkers(  # noqa: N802 - named by the contract
        self, request: pb.ListWorkersRequest, context: object
    ) -> pb.ListWorkersResponse:
        """All workers that this process has seen."""
        del request, context
        return pb.ListWorkersResponse(
            workers=[self._status(worker) for worker in self._registry.workers()]
        )

    @answering
    async def ListSessions(  # noqa: N802 - named by the contract
        self, request: pb.ListSessionsRequest, context: object
    ) -> pb.ListSessionsResponse:
        """Sessions in flight, as recorded."""
        del context
        limit = check_limit(request.limit, DEFAULT_SESSIONS)
        worker = await self._directory.find("worker", request.worker)
        if why := worker.live.unknown:
            raise AnswerError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the sessions of {worker.name!r} are not known: {why}",
            )
        sessions = worker.live.sessions
        return pb.ListSessionsResponse(
            sessions=[self._session(worker, session) for session in sessions[:limit]],
            left_off=max(len(sessions) - limit, 0),
        )

    @answering
    async def ListVerdicts(  # noqa: N802 - named by the contract
        self, request: pb.ListVerdictsRequest, context: object
    ) -> pb.ListVerdictsResponse:
        """Newest first."""
        del context
        limit = check_limit(request.limit, DEFAULT_VERDICTS)
        worker = await self._worker_or_all(request.worker)
        stored = await asyncio.to_thread(self._ledger.list_verdicts, worker, limit)
        # A verdict whose body retention dropped is empty.
        return pb.ListVerdictsResponse(
            verdicts=[
                types_pb2.WorkerVerdict.FromString(each.payload) for each in stored if each.payload
            ]
        )

    @answering
    async def ListMarks(  # noqa: N802 - named by the contract
        self, request: pb.ListMarksRequest, context: object
    ) -> pb.ListMarksResponse:
        """Newest first."""
        del context
        limit = check_limit(request.limit, DEFAULT_MARKS)
        worker = await self._worker_or_all(request.worker)
        marks = self._ledger.list_marks(worker, limit)
        return pb.ListMarksResponse(marks=[codec.encode_mark(mark) for mark in marks])

    @answering
    async def VerifyNow(  # noqa: N802 - named by the contract
        self, request: pb.VerifyNowRequest, context: object
    ) -> pb.VerifyNowResponse:
        """Memory against record, now."""
        del context
        worker = await self._directory.find("worker", request.worker)
        if not self._registry.any_alive(worker):
            raise AnswerError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"worker {worker.name!r} is not attached: {self._registry.missing_words(worker)}",
            )
        verification_id = self._verifier.start(
            worker,
            RestoreEvidence.OPERATOR,
            mark=None,
            deadline_s=milliseconds(request.deadline_ms, self._settings.verification_deadline_ms),
            continuation=Continuation.REPLAY if request.continuation else Continuation.SKIP,
        )
        return pb.VerifyNowResponse(verification_id=verification_id)

    async def Watch(  # noqa: N802 - named by the contract
        self, request: pb.WatchRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.WatchResponse]:
        """What happens from now on."""
        if request.worker:
            await _checked(context, request.worker)
        try:
            watcher = self._hub.open(request.worker)
        except TooManyWatchersError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        try:
            # The headers tell the client that nothing from now on is lost.
            await context.send_initial_metadata(())
            while True:
                response = self._watched(await watcher.next())
                if response is not None:
                    yield response
        finally:
            self._hub.close(watcher)

    async def Export(  # noqa: N802 - named by the contract
        self, request: pb.ExportRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.ExportResponse]:
        """The record of one worker, in the order in which it was written."""
        try:
            worker = await self._directory.find("worker", request.worker)
            _check_steps(request)
            records = self._ledger.export(worker.name, request.from_step, request.to_step)
            while chunk := await asyncio.to_thread(_next_chunk, records):
                for exported in chunk:
                    yield _exported(exported)
        except (AnswerError, StreamRefusedError) as error:
            await context.abort(error.status, error.text)
        except LedgerError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def _worker_or_all(self, name: str) -> str | None:
        if not name:
            return None
        return (await self._directory.find("worker", name)).name

    def _watched(self, event: WatchEvent | Missed) -> pb.WatchResponse | None:
        now = self._clocks.unix_ns()
        match event:
            case Missed():
                return pb.WatchResponse(missed=event.count, unix_ns=now)
            case WorkerVerdict():
                return pb.WatchResponse(verdict=codec.encode_verdict(event), unix_ns=now)
            case Mark():
                return pb.WatchResponse(mark=codec.encode_mark(event), unix_ns=now)
        worker = self._registry.get(event.worker)
        if worker is None:
            return None
        return pb.WatchResponse(status=self._status(worker), unix_ns=now)

    def _status(self, worker: WorkerRuntime) -> pb.WorkerStatus:
        gate = self._gates.state(worker.name)
        state = worker.live.state
        attached = [each for each in worker.sources.values() if self._registry.alive(each)]
        return pb.WorkerStatus(
            worker=worker.name,
            incarnation=worker.incarnation,
            generation=worker.generation,
            ranks_expected=worker.ranks,
            attached=[_source(each) for each in attached],
            launched_step=state.launched,
            committed_step=state.committed,
            sessions=len(worker.live.sessions),
            last_verdict=types_pb2.Verdict.Name(worker.last_verdict),
            gate_open=gate is not None and gate.open,
            gate_reason=gate.reason if gate is not None else "",
            hole_records=worker.hole_records,
            held=bool(worker.held),
            fingerprint=codec.encode_fingerprint(_fingerprint(worker)),
            engine_url=worker.engine_url,
            drill=worker.drill,
        )

    @staticmethod
    def _session(worker: WorkerRuntime, session: Session) -> pb.SessionStatus:
        shadow = session.session_id in worker.shadow_ids
        origin = SessionOrigin.SHADOW if shadow else SessionOrigin.USER
        return codec.encode_session_status(session_status(session, origin))


def _check_steps(request: pb.ExportRequest) -> None:
    if request.to_step and request.to_step < request.from_step:
        raise AnswerError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"to_step is {request.to_step}, below from_step {request.from_step}",
        )


async def _checked(context: grpc.aio.ServicerContext[Any, Any], worker: str) -> None:
    try:
        check_name("worker", worker)
    except AnswerError as error:
        await context.abort(error.status, error.text)


def _source(source: SourceRuntime) -> types_pb2.Source:
    place = source.place
    message = codec.encode_source(place.key)
    message.tensor_rank = place.tensor_rank
    message.pipeline_rank = place.pipeline_rank
    message.data_rank = place.data_rank
    return message


def _fingerprint(worker: WorkerRuntime) -> Fingerprint:
    """The scheduler's, or that of whichever source there is."""
    source = worker.scheduler or next(iter(worker.sources.values()), None)
    return Fingerprint(dict(source.fingerprint) if source is not None else {})


def _next_chunk(records: Iterator[ExportedRecord]) -> list[ExportedRecord]:
    return [record for _, record in zip(range(EXPORT_CHUNK), records, strict=False)]


def _exported(exported: ExportedRecord) -> pb.ExportResponse:
    return pb.ExportResponse(
        source=codec.encode_source(exported.source.key),
        generation=exported.generation,
        record=recorder_pb2.Record.FromString(exported.record.payload),
        received_unix_ns=exported.received_unix_ns,
        chain=exported.chain,
    )
