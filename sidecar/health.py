"""The gate as gRPC health (grpc.health.v1).

Services: ``worker/NAME`` for each worker, ``workers`` for all of them together, and the empty
name for the sidecar itself, so that a liveness probe does not kill it because a gate is closed.
The answer is read from the gate at the moment of the question: there is no copy that lags.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sidecar.gate import GateBoard

ALL_WORKERS = "workers"
WORKER_PREFIX = "worker/"
# A watcher is told again at least so often, which also notices that it is gone.
WATCH_TICK_S = 30.0
MAX_WATCHERS = 256

_Status = health_pb2.HealthCheckResponse


class GateHealth(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # untyped package
    """Health read from the gates."""

    def __init__(self, gates: GateBoard) -> None:
        self._gates = gates
        self._stopping = False
        self._watchers = 0

    def stop(self) -> None:
        """Answers NOT_SERVING from now on."""
        self._stopping = True
        self._gates.changes.notify()

    async def Check(  # noqa: N802 - named by the contract
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        """The status now; NOT_FOUND for a worker that was never seen."""
        status = self._status(request.service)
        if status is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"service {request.service!r} is not known"
            )
        return _Status(status=status)

    async def Watch(  # noqa: N802 - named by the contract
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """The status now and whenever it changes."""
        if self._watchers >= MAX_WATCHERS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHERS} watchers are open"
            )
        self._watchers += 1
        try:
            last = None
            while True:
                status = self._watched(request.service)
                if status != last:
                    last = status
                    yield _Status(status=status)
                    continue
                await self._gates.changes.wait(
                    lambda: self._watched(request.service) != last,  # noqa: B023 - awaited here
                    WATCH_TICK_S,
                )
        finally:
            self._watchers -= 1

    def _watched(self, service: str) -> int:
        status = self._status(service)
        return int(_Status.SERVICE_UNKNOWN) if status is None else status

    def _status(self, service: str) -> int | None:
        if not service:
            return self._of(serving=True)
        if service == ALL_WORKERS:
            return self._of(serving=self._gates.overall().open)
        if service.startswith(WORKER_PREFIX):
            state = self._gates.state(service.removeprefix(WORKER_PREFIX))
            return None if state is None else self._of(serving=state.open)
        return None

    def _of(self, *, serving: bool) -> int:
        ready = serving and not self._stopping
        return int(_Status.SERVING if ready else _Status.NOT_SERVING)
