"""The way back to a source: messages queued without waiting, sent by the stream's own task."""

import asyncio
from collections import deque

from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import types_pb2

from sidecar.core.verdicts import Verdict
from sidecar.recorder.errors import RefusalCause, StreamRefusedError

# Requests and releases that wait for a source which does not read. More means that it is gone.
MAX_WAITING = 64


class OutboundLink:
    """One stream's outbound side. Acknowledgements coalesce; everything else is bounded."""

    def __init__(self) -> None:
        self._messages: deque[pb.AttachResponse] = deque(maxlen=MAX_WAITING)
        self._ack: pb.Ack | None = None
        self._wake = asyncio.Event()
        self.ended: asyncio.Future[StreamRefusedError] = asyncio.get_running_loop().create_future()

    def acknowledge(self, seq: int, generation: int) -> None:
        """Everything up to `seq` is durable, and the source is in `generation`."""
        self._ack = pb.Ack(seq=seq, generation=generation)
        self._wake.set()

    def request_attestation(self, attest_id: int, deadline_ms: int, *, weights: bool) -> None:
        """Asks for an attestation."""
        request = pb.AttestRequest(attest_id=attest_id, weights=weights, deadline_ms=deadline_ms)
        self._put(pb.AttachResponse(attest=request))

    def release(self, attest_id: int, verdict: Verdict, *, go: bool) -> None:
        """Answers a held step."""
        answer = pb.Release(attest_id=attest_id, verdict=types_pb2.Verdict.Name(verdict), go=go)
        self._put(pb.AttachResponse(release=answer))

    def close(self, reason: str) -> None:
        """Ends the stream because another has taken its place."""
        self.end(StreamRefusedError(RefusalCause.SUPERSEDED, reason))

    def end(self, error: StreamRefusedError) -> None:
        """Ends the stream with `error`; the first call counts."""
        if not self.ended.done():
            self.ended.set_result(error)

    async def next_message(self) -> pb.AttachResponse:
        """The next message to send: releases and requests before acknowledgements."""
        while True:
            if self._messages:
                return self._messages.popleft()
            if self._ack is not None:
                ack, self._ack = self._ack, None
                return pb.AttachResponse(ack=ack)
            self._wake.clear()
            await self._wake.wait()

    def _put(self, message: pb.AttachResponse) -> None:
        self._messages.append(message)
        self._wake.set()
