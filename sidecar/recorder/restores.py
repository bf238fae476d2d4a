"""Opening generations: what happens at the moment in which a restore is noticed.

A worker's sources report one restore separately. The rule that makes one generation of it:

- A source that has already signed for the worker's newest generation, or signs later than
  `join_window_s` after that was opened, opens the next one.
- Any other source joins the newest one.

Too many generations are harmless (each is verified); too few would let one verdict stand for
two restores, so every doubt opens one.

What a generation branches off from is the memory's own word: the image that was restored may be
of any older one. Only a stream that lives on has not gone back, and goes on in the present one
where the named does not reach up to it (what tells the source of a generation is still on its
way then).
"""

from collections.abc import Callable

import structlog

from sidecar.core.events import SourceKind
from sidecar.gate import GateBoard
from sidecar.identity import Greeting, RestoreEvidence, SignKind, SignSeen
from sidecar.ledger.errors import LedgerError
from sidecar.ledger.interface import Ledger
from sidecar.metrics import Metrics
from sidecar.ports import RestoreListener, RestoreNotice
from sidecar.recorder.errors import RefusalCause, StreamRefusedError
from sidecar.recorder.opening import Opening
from sidecar.registry import Registry, SourceRuntime, WorkerRuntime

_log = structlog.get_logger(__name__)


def next_generation(
    worker: WorkerRuntime, source: SourceRuntime, *, now: float, join_window_s: float
) -> int:
    """The generation that a source's restore belongs to. Pure."""
    newest_is_recent = now - worker.generation_opened_at <= join_window_s
    if source.generation < worker.generation and newest_is_recent:
        return worker.generation
    return worker.generation + 1


def is_known_sign(source: SourceRuntime, sign: SignSeen) -> bool:
    """Whether a Sign tells of a restore that has opened its generation already.

    So it is when the Hello that came before it did (the source may have counted the sign only
    after it sent the Hello), or when the same Sign is sent again over a new stream.
    """
    if not source.process.same_process(sign.process):
        return False
    return source.awaits_sign or source.last_sign == sign.signs_seen


class Restores:
    """Turns a noticed restore into a closed gate, cuts, a generation and a verification."""

    def __init__(
        self,
        *,
        registry: Registry,
        gates: GateBoard,
        ledger: Ledger,
        listener: RestoreListener,
        metrics: Metrics,
        unix_ns: Callable[[], int],
        join_window_s: float,
    ) -> None:
        self._registry = registry
        self._gates = gates
        self._ledger = ledger
        self._listener = listener
        self._metrics = metrics
        self._unix_ns = unix_ns
        self._join_window_s = join_window_s

    def signed(self, worker: WorkerRuntime, source: SourceRuntime, sign: SignSeen) -> None:
        """A source sent a Sign.

        Raises:
            StreamRefusedError: the ledger could not open the generation.

        """
        evidence = (
            RestoreEvidence.PROCESS_RECREATED
            if sign.kind is SignKind.PROCESS_RECREATED
            else RestoreEvidence.STOOD_STILL
        )
        known = is_known_sign(source, sign)
        source.held_attest_id = sign.held_attest_id
        source.expects_push = True
        source.hold_seen = False
        why = f"{source.key}: {evidence.replace('_', ' ')}"
        if sign.gap_ns:
            why += f" for {sign.gap_ns / 1e9:.3f} s"
        self._metrics.signs.labels(worker.name, evidence.value).inc()
        if not known:
            opening = Opening(why, sign.process, sign.signs_seen)
            parent = self._named(source, sign.generation)
            if sign.next_seq > self._accepted(source, parent) + 1:
                parent = source.generation
            self._open(worker, source, parent, next_seq=sign.next_seq, opening=opening)
        # After the generation was opened: what was recorded until then is kept beside it. A new
        # sign without a fingerprint leaves none, so that it cannot be taken for an equal one.
        if sign.fingerprint or not known:
            source.fingerprint = sign.fingerprint
        source.signs_seen = sign.signs_seen
        source.awaits_sign = False
        source.last_sign = sign.signs_seen
        self._notify(worker, source, evidence, why, sign)

    def reattached(
        self, worker: WorkerRuntime, source: SourceRuntime, greeting: Greeting, why: str
    ) -> None:
        """A source's Hello showed a restore.

        Raises:
            StreamRefusedError: the ledger could not open the generation.

        """
        self._metrics.signs.labels(worker.name, RestoreEvidence.REATTACH.value).inc()
        opening = Opening(why, greeting.process, greeting.signs_seen)
        parent = self._named(source, greeting.generation)
        self._open(worker, source, parent, next_seq=greeting.next_seq, opening=opening)
        source.awaits_sign = True
        source.last_sign = None
        source.fingerprint = greeting.fingerprint
        self._notify(worker, source, RestoreEvidence.REATTACH, why, None)

    def resume(self, worker: WorkerRuntime, source: SourceRuntime) -> None:
        """A restore was noticed by a sidecar before this one and never judged."""
        self._notify(worker, source, RestoreEvidence.REATTACH, worker.unjudged, None)

    def restarted(self, worker: WorkerRuntime, source: SourceRuntime, why: str) -> None:
        """A source came back with other memory.

        Raises:
            StreamRefusedError: the ledger could not open the generation.

        """
        opening = Opening(why, source.process, source.signs_seen)
        self._open(worker, source, source.generation, next_seq=1, opening=opening)

    def _named(self, source: SourceRuntime, generation: int) -> int:
        """The generation that a memory names, where the ledger has it; else the newest."""
        known = self._ledger.generations(source.source_id)
        return generation if any(e.generation == generation for e in known) else source.generation

    def _accepted(self, source: SourceRuntime, generation: int) -> int:
        return self._ledger.accepted_seq(source.source_id, generation)

    def _open(
        self,
        worker: WorkerRuntime,
        source: SourceRuntime,
        parent: int,
        *,
        next_seq: int,
        opening: Opening,
    ) -> None:
        """Opens, or joins, the generation for one source. It happens at once: nobody sees a
        worker that is restored and whose gate is open. When the ledger does not take it the
        gate stays closed and nothing else has changed: the source will say it again.
        """
        generation = next_generation(
            worker, source, now=self._registry.now(), join_window_s=self._join_window_s
        )
        if generation > worker.generation:
            reason = f"restore {generation} is not judged: {opening.why}"
            self._gates.suspect(worker.name, generation, reason)
        first_seq = min(next_seq, self._accepted(source, parent) + 1)
        cuts = {key: self._ledger.cut(each.source_id) for key, each in worker.sources.items()}
        self.write_generations(source.source_id, generation, first_seq, opening, parent=parent)
        durable_seq = durable_before(self._ledger, source.source_id, generation)
        if generation > worker.generation:
            worker.generation = generation
            worker.generation_opened_at = self._registry.now()
            worker.noticed_unix_ns = self._unix_ns()
            for key, each in worker.sources.items():
                each.cut = cuts[key]
                each.recorded_fingerprint = each.fingerprint
        source.process, source.signs_seen = opening.process, opening.signs_seen
        rolled_back = max(self._accepted(source, parent) - (first_seq - 1), 0)
        _branch(worker, source, parent, generation, first_seq)
        source.durable_seq = durable_seq
        worker.changes.notify()
        _log.warning(
            "restore_noticed",
            worker=worker.name,
            source=str(source.key),
            generation=generation,
            parent=parent,
            first_seq=first_seq,
            rolled_back_records=rolled_back,
            why=opening.why,
        )

    def write_generations(
        self,
        source_id: int,
        generation: int,
        first_seq: int,
        opening: Opening,
        *,
        parent: int | None = None,
    ) -> None:
        """Brings the ledger's count of a source to `generation`, which other sources may have
        raised by several. All of them branch off from `parent`, None: the newest that there is.

        Raises:
            StreamRefusedError: the ledger did not take it.

        """
        text = opening.encode()
        try:
            newest = max(each.generation for each in self._ledger.generations(source_id))
            parent = newest if parent is None else parent
            for number in range(newest + 1, generation + 1):
                self._ledger.open_generation(source_id, number, first_seq, text, parent=parent)
        except LedgerError as error:
            raise StreamRefusedError(RefusalCause.LEDGER, str(error)) from error

    def _notify(
        self,
        worker: WorkerRuntime,
        source: SourceRuntime,
        evidence: RestoreEvidence,
        why: str,
        sign: SignSeen | None,
    ) -> None:
        notice = RestoreNotice(evidence=evidence, why=why, unix_ns=self._unix_ns(), sign=sign)
        self._listener.on_sign(worker, source.generation, source.key, notice)


def durable_before(ledger: Ledger, source_id: int, generation: int) -> int:
    """Up to where the history that a new generation branched off from is durable."""
    known = {each.generation: each for each in ledger.generations(source_id)}
    opened = known[generation]
    durable = end = opened.first_seq - 1
    at = opened.parent
    while at is not None:
        own = ledger.durable_seq(source_id, at)
        if own < end:
            # A hole in what is durable counts from its oldest end.
            durable = own
        end = min(end, known[at].first_seq - 1)
        at = known[at].parent
    return durable


def _branch(
    worker: WorkerRuntime, source: SourceRuntime, parent: int, generation: int, first_seq: int
) -> None:
    """Has the source go on in `generation`, off `parent`, from `first_seq`."""
    went_on = parent == source.generation and first_seq == source.received_seq + 1
    source.generation, source.parent = generation, parent
    source.first_seq = first_seq
    source.received_seq = first_seq - 1
    if went_on:
        return
    # Seqs start again below what waits; the old generation's acknowledge nothing now.
    source.unacked.clear()
    source.unacked_bytes = 0
    source.recorded_step = 0
    if source.key.kind is SourceKind.SCHEDULER:
        worker.live.stale = f"went back to seq {first_seq - 1} of generation {parent}"
