"""What a verification may ask of the services: see `sidecar.ports.VerificationHost`."""

from collections.abc import Callable, Iterable, Sequence

from sidecar.core.events import SourceKey
from sidecar.core.verdicts import Verdict, WorkerVerdict
from sidecar.gate import GateBoard, GatePosition
from sidecar.ledger.interface import Ledger
from sidecar.metrics import Metrics
from sidecar.ports import AttestationOrigin, WatchEvent
from sidecar.recorder.attestations import AttestationDesk
from sidecar.recorder.clocks import Clocks
from sidecar.registry import Attested, Registry, SourceAttestation, WorkerRuntime


class Host:
    """The services, as a verification sees them."""

    def __init__(
        self,
        *,
        registry: Registry,
        gates: GateBoard,
        ledger: Ledger,
        desk: AttestationDesk,
        metrics: Metrics,
        clocks: Clocks,
        publish: Callable[[WatchEvent], None],
    ) -> None:
        self._registry = registry
        self._gates = gates
        self._ledger = ledger
        self._desk = desk
        self._metrics = metrics
        self._clocks = clocks
        self._publish = publish

    @property
    def ledger(self) -> Ledger:
        """The record."""
        return self._ledger

    def worker(self, name: str) -> WorkerRuntime | None:
        """The worker as it is now."""
        return self._registry.get(name)

    async def request_attestation(
        self,
        worker: WorkerRuntime,
        sources: Sequence[SourceKey],
        *,
        weights: bool,
        deadline_s: float,
        origin: AttestationOrigin = AttestationOrigin.AFTER_SIGN,
    ) -> dict[SourceKey, Attested]:
        """Asks `sources` what their memory holds; has an entry for each."""
        began = self._clocks.monotonic()
        answers = await self._desk.request(
            worker, sources, weights=weights, deadline_s=deadline_s, origin=origin
        )
        if answers and all(isinstance(each, SourceAttestation) for each in answers.values()):
            took = self._clocks.monotonic() - began
            self._metrics.attestation_seconds.labels(worker.name).observe(took)
        return answers

    def release(
        self,
        worker: WorkerRuntime,
        source: SourceKey,
        attest_id: int,
        verdict: Verdict,
        *,
        go: bool,
    ) -> bool:
        """Answers a held source; False: it has no stream now."""
        runtime = worker.sources.get(source)
        if runtime is None or runtime.link is None:
            return False
        runtime.link.release(attest_id, verdict, go=go)
        if go and runtime.held_attest_id == attest_id:
            runtime.held_attest_id = 0
            runtime.hold_seen = False
            if worker.noticed_unix_ns:
                held_s = (self._clocks.unix_ns() - worker.noticed_unix_ns) / 1e9
                self._metrics.hold_seconds.labels(worker.name).observe(max(held_s, 0.0))
        return True

    async def wait_progress(
        self,
        worker: WorkerRuntime,
        predicate: Callable[[WorkerRuntime], bool],
        timeout_s: float,
    ) -> bool:
        """Whether `predicate` became true in time."""
        return await worker.changes.wait(lambda: predicate(worker), timeout_s)

    def set_gate(
        self, worker: WorkerRuntime, generation: int, position: GatePosition, reason: str
    ) -> bool:
        """Decides a worker's gate; False when it was restored or restarted again since."""
        if self._registry.get(worker.name) is not worker:
            return False
        worker.unjudged = ""
        return self._gates.decide(worker.name, generation, position, reason)

    def publish(self, event: WatchEvent) -> None:
        """Tells watchers; a WorkerVerdict also becomes the worker's last one."""
        if isinstance(event, WorkerVerdict):
            worker = self._registry.get(event.worker)
            if worker is not None and worker.incarnation == event.incarnation:
                worker.last_verdict = event.verdict
            if event.final:
                self._metrics.count_verdict(event)
        self._publish(event)

    def register_shadow_ids(self, worker: WorkerRuntime, session_ids: Iterable[str]) -> None:
        """Marks sessions as the sidecar's own replays."""
        self._registry.register_shadow_ids(worker, session_ids)
