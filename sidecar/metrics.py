"""What the sidecar counts and measures.

Every label's number of values is bounded and written beside it; session ids are never labels:

- ``worker``: workers that attached since the start; at most ``max_workers`` at once.
- ``source``: ``scheduler`` or the number of a rank; at most ``max_ranks`` + 1 a worker.
- ``verdict``, ``cause``, ``evidence``, ``kind``: closed sets of this program, below 20 each.
"""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from sidecar.core.verdicts import WorkerVerdict
from sidecar.gate import GateBoard
from sidecar.registry import Registry, WorkerRuntime

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class LedgerGauges(Protocol):
    """The ledger's own figures, read when metrics are scraped."""

    @property
    def size_bytes(self) -> int:
        """Size of the file."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be written."""


class Metrics:
    """All counters; made once for each registry of metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        worker_source = ("worker", "source")
        self.records = Counter(
            "tokenwitness_records",
            "Records taken in, holes included.",
            worker_source,
            registry=registry,
        )
        self.record_bytes = Counter(
            "tokenwitness_record_bytes",
            "Bytes of records taken in.",
            worker_source,
            registry=registry,
        )
        self.duplicates = Counter(
            "tokenwitness_duplicate_records",
            "Records that were sent again and dropped by seq.",
            worker_source,
            registry=registry,
        )
        self.hole_records = Counter(
            "tokenwitness_hole_records",
            "Records that are missing.",
            worker_source,
            registry=registry,
        )
        self.steps = Counter(
            "tokenwitness_steps", "Steps recorded.", worker_source, registry=registry
        )
        self.tokens = Counter(
            "tokenwitness_tokens", "Tokens committed.", ("worker",), registry=registry
        )
        self.attaches = Counter(
            "tokenwitness_attaches",
            "Streams let in, by how (new, reconnected, restored, restarted).",
            ("worker", "kind"),
            registry=registry,
        )
        # No worker label: whoever is refused chooses the name.
        self.refused = Counter(
            "tokenwitness_refused_streams",
            "Streams refused or ended by the sidecar, by cause.",
            ("cause",),
            registry=registry,
        )
        self.signs = Counter(
            "tokenwitness_restore_signs",
            "Restores noticed, once for each source that noticed one.",
            ("worker", "evidence"),
            registry=registry,
        )
        self.verdicts = Counter(
            "tokenwitness_verdicts",
            "Final verdicts of workers.",
            ("worker", "verdict"),
            registry=registry,
        )
        self.attestation_seconds = Histogram(
            "tokenwitness_attestation_seconds",
            "From the request (or the sign) until all sources had attested.",
            ("worker",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.state_verdict_seconds = Histogram(
            "tokenwitness_restore_to_state_verdict_seconds",
            "From noticing a restore to the verdict on memory.",
            ("worker",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.verdict_seconds = Histogram(
            "tokenwitness_restore_to_verdict_seconds",
            "From noticing a restore to the final verdict.",
            ("worker",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.hold_seconds = Histogram(
            "tokenwitness_hold_seconds",
            "From a held source's sign to its release.",
            ("worker",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.shadow_tokens = Counter(
            "tokenwitness_shadow_tokens",
            "Continuation tokens compared with a shadow decode.",
            ("worker",),
            registry=registry,
        )
        self.watch_missed = Counter(
            "tokenwitness_watch_missed_events",
            "Events that watchers missed because they did not keep up.",
            registry=registry,
        )

    def forget(self, worker: str) -> None:
        """Drops the series of a worker that is gone for good."""
        for metric in vars(self).values():
            if isinstance(metric, MetricWrapperBase) and "worker" in metric._labelnames:  # noqa: SLF001 - no public name
                metric.remove_by_labels({"worker": worker})

    def count_verdict(self, verdict: WorkerVerdict) -> None:
        """Counts a final verdict and how long it took."""
        self.verdicts.labels(verdict.worker, verdict.verdict.name).inc()
        self.shadow_tokens.labels(verdict.worker).inc(verdict.compared.shadow_tokens)
        noticed = verdict.noticed_unix_ns
        if not noticed:
            return
        # The real clock can be stepped back; a negative time would be refused by the histogram.
        for until, histogram in (
            (verdict.state_judged_unix_ns, self.state_verdict_seconds),
            (verdict.finished_unix_ns, self.verdict_seconds),
        ):
            if until >= noticed:
                histogram.labels(verdict.worker).observe((until - noticed) / 1e9)


class LiveCollector(Collector):
    """Gauges of what is the case now, read from the registry when they are scraped."""

    def __init__(self, workers: Registry, gates: GateBoard, ledger: LedgerGauges) -> None:
        self._workers = workers
        self._gates = gates
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        """One family for each gauge."""
        sessions = _gauge("sessions", "Sessions in flight, shadow replays excluded.")
        missing = _gauge("missing_sources", "Scheduler and ranks that are not attached.")
        opened = _gauge("gate_open", "1: the worker may be given traffic; 0: it may not.")
        held = _gauge("held_sources", "Sources that wait for a release.")
        generation = _gauge("generation", "Restores noticed of the worker's present life.")
        dropped = _gauge("adapter_dropped_records", "Records that the adapters dropped.")
        errors = _gauge("adapter_errors", "Errors inside the adapters.")
        queued = _gauge("adapter_queued_bytes", "Bytes that wait in the adapters.")
        for worker in self._workers.workers():
            name = [worker.name]
            sources = worker.sources.values()
            state = self._gates.state(worker.name)
            sessions.add_metric(name, _user_sessions(worker))
            missing.add_metric(name, len(self._workers.missing(worker)))
            opened.add_metric(name, float(state is not None and state.open))
            held.add_metric(name, len(worker.held))
            generation.add_metric(name, worker.generation)
            dropped.add_metric(name, sum(source.dropped_records for source in sources))
            errors.add_metric(name, sum(source.errors for source in sources))
            queued.add_metric(name, sum(source.queued_bytes for source in sources))
        yield from (sessions, missing, opened, held, generation, dropped, errors, queued)
        yield GaugeMetricFamily(
            "tokenwitness_ledger_bytes", "Size of the ledger.", value=self._ledger.size_bytes
        )
        yield GaugeMetricFamily(
            "tokenwitness_ledger_waiting_bytes",
            "Bytes that wait to become durable.",
            value=self._ledger.waiting_bytes,
        )


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tokenwitness_{name}", text, labels=["worker"])


def _user_sessions(worker: WorkerRuntime) -> int:
    return sum(session.session_id not in worker.shadow_ids for session in worker.live.sessions)


def source_label(source: object) -> str:
    """The ``source`` label of a key: "scheduler" or the rank's number."""
    return str(source).removeprefix("rank ")
