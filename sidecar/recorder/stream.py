"""One source's stream, from its Hello to its end."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import grpc
import structlog
from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.core.events import SchedulerAttestation
from sidecar.identity import PROTOCOL
from sidecar.recorder.attaching import Attaching
from sidecar.recorder.attestations import PartIntake, keep_answer
from sidecar.recorder.clocks import Clocks
from sidecar.recorder.errors import RefusalCause, StreamRefusedError
from sidecar.recorder.hello import read_hello, read_sign
from sidecar.recorder.ingest import Intake
from sidecar.recorder.link import OutboundLink
from sidecar.recorder.restores import Restores
from sidecar.registry import (
    Attested,
    Registry,
    SourceAttestation,
    SourceRuntime,
    WorkerRuntime,
)
from sidecar.wire.errors import MalformedMessage

_log = structlog.get_logger(__name__)

# How long a new stream may take to say who it is.
HELLO_TIMEOUT_S = 10.0


class IntakeFactory(Protocol):
    """Makes the intake of a stream's records."""

    def __call__(self, worker: WorkerRuntime, source: SourceRuntime, link: OutboundLink) -> Intake:
        """An intake for one stream."""


StreamContext = grpc.aio.ServicerContext[pb.AttachRequest, pb.AttachResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamServices:
    """What every stream works with."""

    registry: Registry
    attaching: Attaching
    restores: Restores
    intake: IntakeFactory
    clocks: Clocks
    hold: pb.HoldPolicy
    max_ranks: int


class SourceStream:
    """Reads one stream and writes back to it until either side ends it."""

    def __init__(self, services: StreamServices, context: StreamContext) -> None:
        self._services = services
        self._context = context
        self.link = OutboundLink()

    async def run(self) -> None:
        """Serves the stream; returns when the source closed it.

        Raises:
            StreamRefusedError: the sidecar ends it, with the status that says why.

        """
        if self.link.ended.done():
            raise self.link.ended.result()
        try:
            first = await asyncio.wait_for(self._next(), HELLO_TIMEOUT_S)
        except TimeoutError:
            raise StreamRefusedError(
                RefusalCause.FIRST_MESSAGE, f"no hello came within {HELLO_TIMEOUT_S:.0f} s"
            ) from None
        if first is None:
            raise StreamRefusedError(RefusalCause.FIRST_MESSAGE, "the stream ended without a hello")
        try:
            greeting = read_hello(first, max_ranks=self._services.max_ranks)
        except MalformedMessage as error:
            raise StreamRefusedError(RefusalCause.MALFORMED, f"hello: {error}") from error
        worker, source = await self._services.attaching.attach(greeting, self.link)
        try:
            intake = self._services.intake(worker, source, self.link)
            told = await self._welcome(source)
            await self._services.attaching.refresh_live(worker, source)
            await intake.fill_gap(greeting.oldest_seq, greeting.step)
            await self._converse(worker, source, intake, told)
        finally:
            self._services.attaching.detach(worker, source, self.link)

    async def _welcome(self, source: SourceRuntime) -> int:
        """The generation that the source is told. Whatever it says next, it has read this."""
        welcome = pb.Welcome(
            protocol=PROTOCOL,
            durable_seq=source.durable_seq,
            generation=source.generation,
            hold=self._services.hold,
        )
        await self._context.write(pb.AttachResponse(welcome=welcome))
        return welcome.generation

    async def _converse(
        self, worker: WorkerRuntime, source: SourceRuntime, intake: Intake, told: int
    ) -> None:
        tasks = [
            asyncio.create_task(self._read(worker, source, intake, told)),
            asyncio.create_task(self._write()),
            asyncio.create_task(self._until_ended()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            # Nothing of this stream may touch the source once another has taken its place.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_ended(self) -> None:
        # Shielded: the future is the link's, and outlives this task.
        raise await asyncio.shield(self.link.ended)

    async def _next(self) -> pb.AttachRequest | None:
        """The next message; None: the source closed the stream."""
        message: object = await self._context.read()
        return message if isinstance(message, pb.AttachRequest) else None

    async def _write(self) -> None:
        while True:
            await self._context.write(await self.link.next_message())

    async def _read(
        self, worker: WorkerRuntime, source: SourceRuntime, intake: Intake, told: int
    ) -> None:
        parts = PartIntake(source.key)
        while True:
            message = await self._next()
            if message is None:
                return
            self._heard(worker, source)
            source.told_generation = max(source.told_generation, told)
            try:
                await self._handle(message, worker, source, intake, parts)
            except MalformedMessage as error:
                raise StreamRefusedError(RefusalCause.MALFORMED, str(error)) from error

    def _heard(self, worker: WorkerRuntime, source: SourceRuntime) -> None:
        registry = self._services.registry
        if not registry.alive(source):
            source.returned_at = registry.now()
        source.last_heard = registry.now()
        worker.changes.notify()

    async def _handle(
        self,
        message: pb.AttachRequest,
        worker: WorkerRuntime,
        source: SourceRuntime,
        intake: Intake,
        parts: PartIntake,
    ) -> None:
        match message.WhichOneof("message"):
            case "records":
                await intake.take(message.records)
            case "heartbeat":
                note_heartbeat(source, message.heartbeat)
            case "sign":
                self._services.restores.signed(worker, source, read_sign(message.sign))
                # Until it knows the generation, an image of it would name the one before.
                self.link.acknowledge(source.durable_seq, source.generation)
                await self._services.attaching.refresh_live(worker, source)
            case "attestation":
                attested = parts.add(
                    message.attestation,
                    generation=source.generation,
                    received_unix_ns=self._services.clocks.unix_ns(),
                    after_seq=source.received_seq,
                )
                if attested is not None:
                    heal_live(worker, attested)
                    keep_answer(worker, source, attested)
            case other:
                raise StreamRefusedError(
                    RefusalCause.MALFORMED,
                    f"message is {other or 'empty'!r}, expected records, sign, heartbeat or "
                    "attestation",
                )


def heal_live(worker: WorkerRuntime, attested: Attested) -> None:
    """An attestation of the scheduler comes right after its newest record, so the live state can
    go on from it where a hole had broken it.
    """
    if isinstance(attested, SourceAttestation) and isinstance(attested.body, SchedulerAttestation):
        worker.live.heal(attested.body)


def note_heartbeat(source: SourceRuntime, heartbeat: pb.Heartbeat) -> None:
    """Takes over what a source says of itself every second."""
    source.step = heartbeat.step
    source.dropped_records = heartbeat.dropped_records
    source.errors = heartbeat.errors
    source.queued_bytes = heartbeat.queued_bytes
    if heartbeat.held:
        source.hold_seen = True
    elif source.hold_seen:
        # It stood in the hold and no longer does: released, or its own deadline was over.
        source.hold_seen = False
        source.held_attest_id = 0
