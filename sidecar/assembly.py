"""Which part gets which: the services wired together, without anything that listens."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry
from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.checkpoints.marks import Marks
from sidecar.checkpoints.service import CheckpointService
from sidecar.config import Settings
from sidecar.config_types import HoldFail, HoldMode
from sidecar.core.events import SourceKey
from sidecar.gate import GateBoard, GateState
from sidecar.health import GateHealth
from sidecar.ledger.sqlite import SqliteLedger
from sidecar.metrics import LiveCollector, Metrics
from sidecar.operators.hub import WatchHub
from sidecar.operators.service import VerifierService
from sidecar.ports import RestoreNotice, StatusChanged, VerificationHost, Verifier
from sidecar.recorder.acknowledging import Acknowledger
from sidecar.recorder.attaching import Attaching
from sidecar.recorder.attestations import AttestationDesk
from sidecar.recorder.clocks import Clocks
from sidecar.recorder.host import Host
from sidecar.recorder.ingest import Intake
from sidecar.recorder.link import OutboundLink
from sidecar.recorder.restores import Restores
from sidecar.recorder.service import RecorderService
from sidecar.recorder.stream import StreamServices
from sidecar.registry import Registry, SourceRuntime, WorkerRuntime
from sidecar.rpc import Directory

_log = structlog.get_logger(__name__)

# How often silence and settling are looked at.
SWEEP_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that serves, and what tests and the web page look at."""

    settings: Settings
    registry: Registry
    gates: GateBoard
    hub: WatchHub
    host: VerificationHost
    verifier: Verifier
    recorder: RecorderService
    checkpoints: CheckpointService
    operators: VerifierService
    health: GateHealth
    attaching: Attaching
    acknowledger: Acknowledger

    def stop_streams(self) -> None:
        """Ends adapters' streams and answers NOT_SERVING."""
        self.health.stop()
        self.recorder.stop()
        self.acknowledger.stop()

    def sweep(self) -> None:
        """Looks who fell silent; ends streams and forgets workers that did so very long ago."""
        limit_s = self.settings.silent_close_ms / 1000
        for worker in self.registry.workers():
            self.attaching.refresh(worker)
            if worker.sources and not worker.attached and self.registry.gone_for(worker) > limit_s:
                self.attaching.forget(worker)
            self.verifier.tend(worker)
            for source in worker.sources.values():
                silent_s = self.registry.silence(source)
                if source.link is not None and silent_s > limit_s:
                    source.link.close(f"{source.key} was silent for {silent_s:.0f} s")

    async def sweep_forever(self) -> None:
        """Sweeps until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.sweep()
            except Exception:  # noqa: BLE001 - one bad worker must not end the sweep of all
                _log.exception("sweep_failed")


class _LateListener:
    """The verifier is made last, of the host; what is made before it tells it through this."""

    verifier: Verifier

    def on_sign(
        self, worker: WorkerRuntime, generation: int, source: SourceKey, notice: RestoreNotice
    ) -> None:
        try:
            self.verifier.on_sign(worker, generation, source, notice)
        except Exception:  # noqa: BLE001 - the gate is closed; the stream must go on
            _log.exception("verification_not_started", worker=worker.name, generation=generation)

    def on_restart(self, worker: WorkerRuntime, old: str, new: str) -> None:
        try:
            self.verifier.on_restart(worker, old, new)
        except Exception:  # noqa: BLE001 - the gate is closed; the stream must go on
            _log.exception("verification_not_started", worker=worker.name)


def assemble(
    settings: Settings,
    ledger: SqliteLedger,
    make_verifier: Callable[[VerificationHost, Settings], Verifier],
    *,
    clocks: Clocks,
    metrics: CollectorRegistry,
) -> Services:
    """All services. Called inside the event loop that will serve them."""
    counters = Metrics(metrics)
    registry = Registry(
        clock=clocks.monotonic,
        heartbeat_timeout_s=settings.heartbeat_timeout_ms / 1000,
        max_workers=settings.max_workers,
    )
    hub = WatchHub(
        limit=settings.watchers_limit,
        capacity=settings.watcher_queue,
        on_missed=counters.watch_missed.inc,
    )

    def on_gate(worker: str, state: GateState) -> None:
        _log.warning("gate", worker=worker, open=state.open, reason=state.reason)
        hub.publish(StatusChanged(worker))

    gates = GateBoard(on_gate)
    host = Host(
        registry=registry,
        gates=gates,
        ledger=ledger,
        desk=AttestationDesk(clocks.monotonic),
        metrics=counters,
        clocks=clocks,
        publish=hub.publish,
    )
    listener = _LateListener()
    listener.verifier = verifier = make_verifier(host, settings)
    restores = Restores(
        registry=registry,
        gates=gates,
        ledger=ledger,
        listener=listener,
        metrics=counters,
        unix_ns=clocks.unix_ns,
        join_window_s=settings.join_window_ms / 1000,
    )
    attaching = Attaching(
        registry=registry,
        gates=gates,
        ledger=ledger,
        restores=restores,
        listener=listener,
        metrics=counters,
        publish=hub.publish,
        patience_s=settings.heartbeat_timeout_ms / 1000,
    )

    def intake(worker: WorkerRuntime, source: SourceRuntime, link: OutboundLink) -> Intake:
        return Intake(
            worker, source, link, ledger, counters, max_unacked_bytes=settings.max_unacked_bytes
        )

    streams = StreamServices(
        registry=registry,
        attaching=attaching,
        restores=restores,
        intake=intake,
        clocks=clocks,
        hold=hold_policy(settings),
        max_ranks=settings.max_ranks,
    )
    directory = Directory(attaching.known)
    metrics.register(LiveCollector(registry, gates, ledger))
    return Services(
        settings=settings,
        registry=registry,
        gates=gates,
        hub=hub,
        host=host,
        verifier=verifier,
        recorder=RecorderService(streams, counters),
        checkpoints=CheckpointService(
            settings=settings,
            directory=directory,
            marks=Marks(registry=registry, ledger=ledger, host=host, clocks=clocks),
            ledger=ledger,
            verifier=verifier,
        ),
        operators=VerifierService(
            settings=settings,
            directory=directory,
            registry=registry,
            gates=gates,
            ledger=ledger,
            verifier=verifier,
            hub=hub,
            clocks=clocks,
        ),
        health=GateHealth(gates),
        attaching=attaching,
        acknowledger=Acknowledger(registry, ledger),
    )


def hold_policy(settings: Settings) -> pb.HoldPolicy:
    """What sources do when they notice a restore, as the settings say."""
    return pb.HoldPolicy(
        mode=(
            pb.HOLD_MODE_VERDICT if settings.hold_mode is HoldMode.VERDICT else pb.HOLD_MODE_NONE
        ),
        deadline_ms=settings.hold_deadline_ms,
        fail_closed=settings.hold_fail is HoldFail.CLOSED,
        closed_limit_ms=settings.hold_closed_limit_ms,
        suspect_after_ms=settings.suspect_after_ms,
    )
