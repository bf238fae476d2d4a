"""The sidecar as a whole: everything built, started, and ended in order."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import structlog
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry
from tokenwitness.v1 import (
    checkpoint_pb2,
    checkpoint_pb2_grpc,
    recorder_pb2,
    recorder_pb2_grpc,
    verifier_pb2,
    verifier_pb2_grpc,
)

from sidecar.assembly import Services, assemble
from sidecar.config import Settings
from sidecar.config_types import split_address
from sidecar.http import HttpServer
from sidecar.ledger.errors import LedgerError
from sidecar.ledger.settings import LedgerSettings, Retention
from sidecar.ledger.sqlite import SqliteLedger, open_ledger
from sidecar.logs import configure_logs
from sidecar.ports import VerificationHost, Verifier
from sidecar.recorder.clocks import Clocks

_log = structlog.get_logger(__name__)

VerifierFactory = Callable[[VerificationHost, Settings], Verifier]


@dataclass(frozen=True, slots=True)
class Bound:
    """Where the servers listen; ports are real ones."""

    grpc_address: str
    http_address: str


class Sidecar:
    """One sidecar. `start`, then `stop`; not to be started again."""

    def __init__(
        self,
        settings: Settings,
        make_verifier: VerifierFactory,
        *,
        clocks: Clocks | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._settings = settings
        self._make_verifier = make_verifier
        self._clocks = clocks or Clocks()
        self._metrics = metrics or CollectorRegistry()
        self._ledger: SqliteLedger | None = None
        self._services: Services | None = None
        self._server: grpc.aio.Server | None = None
        self._http: HttpServer | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def services(self) -> Services:
        """The parts, once started; for tests and for what is built on top."""
        if self._services is None:
            raise RuntimeError("the sidecar was not started")
        return self._services

    async def start(self) -> Bound:
        """Opens the ledger and listens.

        Raises:
            LedgerError: the ledger cannot be opened.
            OSError: an address cannot be bound.

        """
        settings = self._settings
        self._ledger = await asyncio.to_thread(
            open_ledger, settings.ledger_path, ledger_settings(settings), clock=self._clocks.unix_ns
        )
        try:
            return await self._start(self._ledger)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, ledger: SqliteLedger) -> Bound:
        settings = self._settings
        services = self._services = assemble(
            settings, ledger, self._make_verifier, clocks=self._clocks, metrics=self._metrics
        )
        self._server = build_server(settings, services)
        grpc_host, grpc_port = split_address(settings.grpc_address)
        grpc_port = _bind(self._server, grpc_host, grpc_port)
        self._http = HttpServer(services.gates, self._metrics)
        http_host, http_port = split_address(settings.http_address)
        http_port = await self._http.start(http_host, http_port)
        await self._server.start()
        self._sweeper = asyncio.create_task(services.sweep_forever())
        bound = Bound(_join(grpc_host, grpc_port), _join(http_host, http_port))
        _log.info(
            "sidecar_listening",
            grpc=bound.grpc_address,
            http=bound.http_address,
            ledger=str(settings.ledger_path),
        )
        return bound

    async def stop(self) -> None:
        """Ends streams, then verifications, then the ledger; bounded by `drain_grace_ms`.

        What was acknowledged is in the ledger; what was not is sent again by the adapters.
        """
        grace_s = self._settings.drain_grace_ms / 1000
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        if self._services is not None:
            self._services.stop_streams()
        if self._server is not None:
            await self._server.stop(grace_s / 2)
        if self._services is not None:
            await self._close_verifier(self._services, grace_s / 4)
        if self._http is not None:
            await self._http.stop()
        if self._ledger is not None:
            await asyncio.to_thread(self._close_ledger, self._ledger, grace_s)
        _log.info("sidecar_stopped")

    async def _close_verifier(self, services: Services, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(services.verifier.close(), timeout_s)
        except TimeoutError:
            _log.warning("verifications_did_not_end", timeout_s=timeout_s)

    def _close_ledger(self, ledger: SqliteLedger, timeout_s: float) -> None:
        try:
            ledger.close(timeout_s)
        except LedgerError as error:
            _log.error("ledger_not_flushed", why=str(error))


def build_server(settings: Settings, services: Services) -> grpc.aio.Server:
    """The gRPC server with all services, not bound to an address yet."""
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", settings.max_message_bytes),
            # Two sidecars on one port would each see half of a worker.
            ("grpc.so_reuseport", 0),
        )
    )
    recorder_pb2_grpc.add_RecorderServiceServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        services.recorder, server
    )
    checkpoint_pb2_grpc.add_CheckpointServiceServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        services.checkpoints, server
    )
    verifier_pb2_grpc.add_VerifierServiceServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        services.operators, server
    )
    health_pb2_grpc.add_HealthServicer_to_server(services.health, server)
    names = (
        recorder_pb2.DESCRIPTOR.services_by_name["RecorderService"].full_name,
        checkpoint_pb2.DESCRIPTOR.services_by_name["CheckpointService"].full_name,
        verifier_pb2.DESCRIPTOR.services_by_name["VerifierService"].full_name,
        health.SERVICE_NAME,
        reflection.SERVICE_NAME,
    )
    reflection.enable_server_reflection(names, server)
    return server


def ledger_settings(settings: Settings) -> LedgerSettings:
    """The ledger's part of the settings."""
    return LedgerSettings(
        retention=Retention(
            max_age_s=settings.retention_hours * 3600,
            max_bytes=settings.retention_bytes,
            open_marks=settings.retention_marks,
        )
    )


def run(settings: Settings, make_verifier: VerifierFactory | None = None) -> None:
    """Runs a sidecar until SIGTERM or SIGINT. `make_verifier` None: the real one.

    Raises:
        LedgerError, OSError: as `Sidecar.start`.

    """
    if make_verifier is None:
        from sidecar.verify.factory import make_verifier as real  # noqa: PLC0415 - outermost

        make_verifier = real
    configure_logs(settings.log_format, settings.log_level)
    asyncio.run(_run(Sidecar(settings, make_verifier)))


async def _run(sidecar: Sidecar) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await sidecar.start()
    try:
        await stop.wait()
    finally:
        await sidecar.stop()


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    try:
        bound = server.add_insecure_port(_join(host, port))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {_join(host, port)}: {error}") from error
    if not bound:
        raise OSError(f"cannot listen on {_join(host, port)}")
    return int(bound)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
