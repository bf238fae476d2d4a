"""CheckpointService: orchestrators to sidecar, around a checkpoint and a restore."""

import asyncio

import grpc
from tokenwitness.v1 import checkpoint_pb2 as pb
from tokenwitness.v1 import checkpoint_pb2_grpc, types_pb2

from sidecar.checkpoints.marks import Marks
from sidecar.config import Settings
from sidecar.identity import RestoreEvidence
from sidecar.ledger.errors import UnknownMarkError
from sidecar.ledger.interface import Ledger
from sidecar.ledger.values import MarkOutcome
from sidecar.ports import Continuation, UnknownVerificationError, Verifier, WaitFor
from sidecar.rpc import AnswerError, Directory, answering, check_name, milliseconds
from sidecar.wire import codec

MAX_IMAGE_TEXT = 4096


class CheckpointService(checkpoint_pb2_grpc.CheckpointServiceServicer):
    """See checkpoint.proto for the errors of each call."""

    def __init__(
        self,
        *,
        settings: Settings,
        directory: Directory,
        marks: Marks,
        ledger: Ledger,
        verifier: Verifier,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._marks = marks
        self._ledger = ledger
        self._verifier = verifier

    @answering
    async def PrepareMark(  # noqa: N802 - named by the contract
        self, request: pb.PrepareMarkRequest, context: object
    ) -> pb.PrepareMarkResponse:
        """Attests everything at one boundary and makes it durable."""
        del context
        if request.name:
            check_name("name", request.name)
        worker = await self._directory.find("worker", request.worker)
        if request.name and self._exists(worker.name, request.name):
            raise AnswerError(
                grpc.StatusCode.ALREADY_EXISTS,
                f"name {request.name!r}: worker {worker.name!r} has a mark of this name",
            )
        deadline_s = milliseconds(request.deadline_ms, self._settings.attestation_deadline_ms)
        mark = await self._marks.prepare(worker, request.name, deadline_s)
        return pb.PrepareMarkResponse(mark=codec.encode_mark(mark))

    @answering
    async def CompleteMark(  # noqa: N802 - named by the contract
        self, request: pb.CompleteMarkRequest, context: object
    ) -> pb.CompleteMarkResponse:
        """Says how the checkpoint went."""
        del context
        check_name("worker", request.worker)
        check_name("name", request.name)
        if request.outcome not in (pb.MARK_OUTCOME_TAKEN, pb.MARK_OUTCOME_FAILED):
            raise AnswerError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"outcome is {request.outcome}, expected TAKEN (2) or FAILED (3)",
            )
        if len(request.image) > MAX_IMAGE_TEXT:
            raise AnswerError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"image has {len(request.image)} characters, expected at most {MAX_IMAGE_TEXT}",
            )
        mark = await self._marks.complete(
            request.worker, request.name, MarkOutcome(request.outcome), request.image
        )
        return pb.CompleteMarkResponse(mark=codec.encode_mark(mark))

    @answering
    async def Restored(  # noqa: N802 - named by the contract
        self, request: pb.RestoredRequest, context: object
    ) -> pb.RestoredResponse:
        """Starts a verification."""
        del context
        worker = await self._directory.find("worker", request.worker)
        mark = None
        if request.mark:
            mark = self._ledger.get_mark(worker.name, check_name("mark", request.mark))
        verification_id = self._verifier.start(
            worker,
            RestoreEvidence.HOOK,
            mark=mark,
            deadline_s=milliseconds(request.deadline_ms, self._settings.verification_deadline_ms),
            continuation=Continuation.REPLAY,
        )
        return pb.RestoredResponse(verification_id=verification_id)

    @answering
    async def WaitVerdict(  # noqa: N802 - named by the contract
        self, request: pb.WaitVerdictRequest, context: object
    ) -> pb.WaitVerdictResponse:
        """Waits for a verification; `final` is false when the time ended first."""
        del context
        worker = check_name("worker", request.worker)
        await self._directory.find("worker", worker)
        try:
            verdict = await self._verifier.wait(
                worker,
                request.verification_id or None,
                timeout_s=milliseconds(request.timeout_ms, self._settings.verification_deadline_ms),
                wait_for=WaitFor.STATE if request.state_only else WaitFor.FINAL,
            )
        except UnknownVerificationError:
            return pb.WaitVerdictResponse(
                verdict=await asyncio.to_thread(self._stored, worker, request.verification_id)
            )
        if verdict is None:
            pending = types_pb2.WorkerVerdict(
                verification_id=request.verification_id, worker=worker
            )
            return pb.WaitVerdictResponse(verdict=pending)
        return pb.WaitVerdictResponse(verdict=codec.encode_verdict(verdict))

    def _exists(self, worker: str, name: str) -> bool:
        try:
            self._ledger.get_mark(worker, name)
        except UnknownMarkError:
            return False
        return True

    def _stored(self, worker: str, verification_id: str) -> types_pb2.WorkerVerdict:
        """A verdict from before the sidecar was restarted."""
        if verification_id:
            stored = self._ledger.get_verdict(worker, verification_id)
        else:
            stored = next(iter(self._ledger.list_verdicts(worker, 1)), None)
        if stored is None:
            raise UnknownVerificationError(worker, verification_id or None)
        return types_pb2.WorkerVerdict.FromString(stored.payload)
