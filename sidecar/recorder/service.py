"""RecorderService: adapters to sidecar."""

from collections.abc import AsyncIterator

import grpc
import structlog
from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import recorder_pb2_grpc

from sidecar.metrics import Metrics
from sidecar.recorder.errors import RefusalCause, StreamRefusedError
from sidecar.recorder.stream import SourceStream, StreamContext, StreamServices

_log = structlog.get_logger(__name__)

# Causes that are ordinary life; the others are for an operator to see.
_QUIET = frozenset({RefusalCause.SUPERSEDED, RefusalCause.STOPPING})


class RecorderService(recorder_pb2_grpc.RecorderServiceServicer):
    """Serves one stream for each source."""

    def __init__(self, services: StreamServices, metrics: Metrics) -> None:
        self._services = services
        self._metrics = metrics
        self._streams: set[SourceStream] = set()
        self._stopping = False
        # Refusals are retried for hours; each text is logged once in a row.
        self._last_logged: dict[RefusalCause, str] = {}

    async def Attach(  # noqa: N802 - named by the contract
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: StreamContext
    ) -> None:
        """One source's stream; see recorder.proto for its errors."""
        del request_iterator  # read through the context, which tells the end from an error
        stream = SourceStream(self._services, context)
        self._streams.add(stream)
        if self._stopping:
            stream.link.end(_stopping())
        try:
            await stream.run()
        except StreamRefusedError as error:
            self._note(error)
            await context.abort(error.status, error.text)
        except Exception:  # noqa: BLE001 - whatever it was, the others must go on
            # Not foreseen: the source is told so, and may attach again.
            _log.exception("stream_failed")
            self._metrics.refused.labels(RefusalCause.INTERNAL.value).inc()
            await context.abort(grpc.StatusCode.INTERNAL, "the sidecar failed; see its log")
        finally:
            self._streams.discard(stream)

    def stop(self) -> None:
        """Ends all streams with UNAVAILABLE and lets no more in."""
        self._stopping = True
        for stream in self._streams:
            stream.link.end(_stopping())

    def _note(self, error: StreamRefusedError) -> None:
        self._metrics.refused.labels(error.cause.value).inc()
        if error.cause in _QUIET or self._last_logged.get(error.cause) == error.text:
            return
        self._last_logged[error.cause] = error.text
        _log.warning(
            "stream_refused", cause=error.cause.value, status=error.status.name, why=error.text
        )


def _stopping() -> StreamRefusedError:
    return StreamRefusedError(
        RefusalCause.STOPPING, "the sidecar is shutting down; attach again in a moment"
    )
