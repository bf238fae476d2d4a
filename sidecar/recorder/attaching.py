"""Letting sources in and out: from a greeting to a source of a worker, and back."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from sidecar.core.events import SourceKind
from sidecar.core.scheduler_state import SchedulerState
from sidecar.gate import GateBoard
from sidecar.identity import Greeting
from sidecar.ledger.errors import LedgerError, StateNotRecordedError
from sidecar.ledger.interface import Ledger
from sidecar.metrics import Metrics
from sidecar.ports import RestoreListener, StatusChanged, WatchEvent
from sidecar.recorder.admission import Admission, Entry, Refusal, RefusalKind, admit
from sidecar.recorder.errors import RefusalCause, StreamRefusedError
from sidecar.recorder.opening import Opening
from sidecar.recorder.recall import recall_worker
from sidecar.recorder.registration import register
from sidecar.recorder.restores import Restores
from sidecar.registry import (
    Registry,
    SourceLink,
    SourceRuntime,
    TooManyWorkersError,
    WorkerRuntime,
)

_log = structlog.get_logger(__name__)

_CAUSES = {
    RefusalKind.NAME_TAKEN: RefusalCause.NAME_TAKEN,
    RefusalKind.CLONE: RefusalCause.CLONE,
    RefusalKind.RANKS_DIFFER: RefusalCause.MALFORMED,
}


class Attaching:
    """Who is attached. One greeting is settled at a time; it takes a few transactions."""

    def __init__(
        self,
        *,
        registry: Registry,
        gates: GateBoard,
        ledger: Ledger,
        restores: Restores,
        listener: RestoreListener,
        metrics: Metrics,
        publish: Callable[[WatchEvent], None],
        patience_s: float,
    ) -> None:
        self._registry = registry
        self._gates = gates
        self._ledger = ledger
        self._restores = restores
        self._listener = listener
        self._metrics = metrics
        self._publish = publish
        self._patience_s = patience_s
        self._one_at_a_time = asyncio.Lock()

    async def attach(
        self, greeting: Greeting, link: SourceLink
    ) -> tuple[WorkerRuntime, SourceRuntime]:
        """Lets a source in and makes `link` its way back.

        A newcomer that looks like a second live one is kept waiting until the first was heard
        again (refused) or was silent for the heartbeat timeout (let in): a process that was
        killed for a restore often leaves a stream that looks open.

        Raises:
            StreamRefusedError: refused, or the ledger cannot be written.

        """
        since = self._registry.now()
        while True:
            async with self._one_at_a_time:
                worker = await self.known(greeting.worker)
                decision = admit(self._registry, worker, greeting)
                if isinstance(decision, Admission):
                    return self._let_in(worker, decision, greeting, link)
            if worker is None or decision.kind is RefusalKind.RANKS_DIFFER:
                raise self._refused(decision)
            rivals = self._rivals(worker, decision, greeting)
            if await self._heard_again(worker, rivals, since):
                raise self._refused(decision)

    def detach(self, worker: WorkerRuntime, source: SourceRuntime, link: SourceLink) -> None:
        """The stream of `link` ended; another may have taken its place already."""
        if source.link is link:
            source.link = None
            source.expects_push = False
            self.refresh(worker)
            self._publish(StatusChanged(worker.name))

    def refresh(self, worker: WorkerRuntime) -> None:
        """Brings the gate and those who wait up to date with who is attached."""
        if self._registry.get(worker.name) is not worker:
            return
        self._gates.note_missing(worker.name, self._registry.missing_words(worker))
        worker.changes.notify()

    def forget(self, worker: WorkerRuntime) -> None:
        """Drops a worker that is gone; the ledger remembers it if it comes back."""
        self._registry.remove(worker)
        self._gates.forget(worker.name)
        self._metrics.forget(worker.name)

    async def refresh_live(self, worker: WorkerRuntime, source: SourceRuntime) -> None:
        """Replaces a stale live state from the ledger, or by one that knows no session.

        For the scheduler's own stream, and between its records: whoever else did it would set
        the state back behind what is folded meanwhile.

        Raises:
            StreamRefusedError: the ledger cannot be read.

        """
        if source.key.kind is not SourceKind.SCHEDULER or not worker.live.stale:
            return
        try:
            state = await asyncio.to_thread(
                self._ledger.newest_state, source.source_id, source.generation
            )
        except StateNotRecordedError as error:
            worker.live.lose(str(error))
        except LedgerError as error:
            raise StreamRefusedError(RefusalCause.LEDGER, str(error)) from error
        else:
            if isinstance(state, SchedulerState):
                worker.live.replace(state)

    async def known(self, name: str) -> WorkerRuntime | None:
        """The worker of this name, from the registry or as the ledger remembers it.

        Raises:
            StreamRefusedError: the ledger cannot be read, or there are too many workers.

        """
        worker = self._registry.get(name)
        if worker is not None:
            return worker
        try:
            recalled = await asyncio.to_thread(recall_worker, self._ledger, name)
        except LedgerError as error:
            raise StreamRefusedError(RefusalCause.LEDGER, str(error)) from error
        # Somebody else may have been quicker while the ledger was read.
        worker = self._registry.get(name)
        if recalled is None or worker is not None:
            return worker
        self._put(recalled.worker)
        if recalled.distrust:
            self._gates.suspect(name, recalled.worker.generation, recalled.distrust)
        return recalled.worker

    def _let_in(
        self,
        worker: WorkerRuntime | None,
        admission: Admission,
        greeting: Greeting,
        link: SourceLink,
    ) -> tuple[WorkerRuntime, SourceRuntime]:
        entry = admission.entry
        if worker is None or entry is Entry.RESTARTED_WORKER:
            worker = self._new_life(worker, greeting, admission)
        source = worker.sources.get(greeting.key)
        if source is None:
            source = worker.sources[greeting.key] = self._new_source(worker, greeting)
        elif entry is Entry.RESTARTED_SOURCE:
            source = self._restarted_source(worker, source, greeting, admission.why)
        elif source.link is not None:
            source.link.close(f"{source.key} attached again over another stream")
        # At once, so that a verification sees the source as it is now or not at all.
        if entry is Entry.RESTORED:
            self._restores.reattached(worker, source, greeting, admission.why)
        elif entry is Entry.RECONNECTED and worker.unjudged:
            self._restores.resume(worker, source)
        source.process, source.signs_seen = greeting.process, greeting.signs_seen
        source.told_generation = greeting.generation
        source.place = greeting.place
        source.fingerprint = greeting.fingerprint
        source.link = link
        source.expects_push = False
        source.last_heard = self._registry.now()
        source.step = greeting.step
        worker.engine_url = greeting.engine_url or worker.engine_url
        worker.drill = worker.drill or greeting.drill
        self._metrics.attaches.labels(worker.name, entry.value).inc()
        _log.info(
            "source_attached",
            worker=worker.name,
            incarnation=worker.incarnation,
            source=str(source.key),
            entry=entry.value,
            generation=source.generation,
            received_seq=source.received_seq,
            adapter=greeting.adapter_version,
        )
        self.refresh(worker)
        self._publish(StatusChanged(worker.name))
        return worker, source

    def _new_life(
        self, old: WorkerRuntime | None, greeting: Greeting, admission: Admission
    ) -> WorkerRuntime:
        worker = WorkerRuntime(
            name=greeting.worker, incarnation=greeting.incarnation, ranks=greeting.ranks
        )
        self._put(worker)
        if old is None:
            self._gates.note_missing(worker.name, self._registry.missing_words(worker))
            return worker
        for source in old.sources.values():
            if source.link is not None:
                source.link.close(f"worker {old.name!r} was restarted")
        old.changes.notify()
        # The old life's generations count no more: a late decision about them must not hit.
        self._gates.forget(worker.name)
        self._gates.suspect(worker.name, 0, f"restarted: {admission.why}")
        self._listener.on_restart(worker, old.incarnation, worker.incarnation)
        return worker

    def _put(self, worker: WorkerRuntime) -> None:
        try:
            evicted = self._registry.put(worker)
        except TooManyWorkersError as error:
            raise StreamRefusedError(RefusalCause.TOO_MANY, str(error)) from error
        if evicted is not None:
            self.forget(evicted)

    def _restarted_source(
        self, worker: WorkerRuntime, old: SourceRuntime, greeting: Greeting, why: str
    ) -> SourceRuntime:
        """Puts other memory in the place of a source. All of it or nothing: where the ledger
        refuses, the source is known by its old nonce still and comes again as what it is.
        """
        source = worker.sources[greeting.key] = self._new_source(worker, greeting)
        source.recorded_fingerprint = old.fingerprint
        try:
            self._restores.restarted(worker, source, why)
        except BaseException:
            worker.sources[greeting.key] = old
            raise
        if source.key.kind is SourceKind.SCHEDULER:
            worker.live = type(worker.live)()
        if old.link is not None:
            old.link.close(f"{source.key} was started anew")
        self._listener.on_restart(worker, worker.incarnation, worker.incarnation)
        return source

    def _new_source(self, worker: WorkerRuntime, greeting: Greeting) -> SourceRuntime:
        try:
            registration = register(self._ledger, greeting)
        except LedgerError as error:
            raise StreamRefusedError(RefusalCause.LEDGER, str(error)) from error
        source = SourceRuntime(
            place=greeting.place,
            source_id=registration.source_id,
            nonce=greeting.nonce,
            process=greeting.process,
            fingerprint=greeting.fingerprint,
            kv_groups=greeting.kv_groups,
            signs_seen=greeting.signs_seen,
            generation=worker.generation,
        )
        opening = Opening("attached", greeting.process, greeting.signs_seen)
        source.received_seq = source.durable_seq = registration.durable_seq
        first = source.first_seq = registration.durable_seq + 1
        self._restores.write_generations(source.source_id, source.generation, first, opening)
        return source

    async def _heard_again(
        self, worker: WorkerRuntime, rivals: Sequence[SourceRuntime], since: float
    ) -> bool:
        """Whether a rival speaks before all of them have been silent for too long."""
        await worker.changes.wait(
            lambda: _heard_since(rivals, since) or not any(map(self._registry.alive, rivals)),
            self._patience_s,
        )
        return _heard_since(rivals, since)

    @staticmethod
    def _rivals(
        worker: WorkerRuntime, refusal: Refusal, greeting: Greeting
    ) -> tuple[SourceRuntime, ...]:
        """The sources whose being alive is the reason to refuse."""
        if refusal.kind is RefusalKind.CLONE:
            return (worker.sources[greeting.key],)
        return tuple(worker.sources.values())

    @staticmethod
    def _refused(refusal: Refusal) -> StreamRefusedError:
        return StreamRefusedError(_CAUSES[refusal.kind], refusal.text)


def _heard_since(sources: Iterable[SourceRuntime], since: float) -> bool:
    return any(source.last_heard > since for source in sources)
