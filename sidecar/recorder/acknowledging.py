"""From the ledger's commits to acknowledgements, over from its thread into the loop."""

import asyncio

from sidecar.ledger.interface import Ledger
from sidecar.registry import Registry, SourceRuntime, WorkerRuntime


class Acknowledger:
    """Subscribed to the ledger from its making until `stop`."""

    def __init__(self, registry: Registry, ledger: Ledger) -> None:
        self._registry = registry
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        ledger.subscribe(self._on_commit)

    def stop(self) -> None:
        """Acknowledges nothing more."""
        if not self._stopped:
            self._stopped = True
            self._ledger.unsubscribe(self._on_commit)

    def _on_commit(self, source_id: int, generation: int, seq: int) -> None:
        """On the ledger's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._durable, source_id, generation, seq)

    def _durable(self, source_id: int, generation: int, seq: int) -> None:
        for worker in self._registry.workers():
            for source in worker.sources.values():
                if source.source_id == source_id:
                    self._acknowledge(worker, source, generation, seq)
                    return

    def _acknowledge(
        self, worker: WorkerRuntime, source: SourceRuntime, generation: int, seq: int
    ) -> None:
        if generation != source.generation:
            # What an older generation recorded beyond the branch is not this memory's.
            seq = min(seq, source.first_seq - 1)
        if seq > source.durable_seq:
            source.durable_seq = seq
            if source.link is not None:
                source.link.acknowledge(seq, source.generation)
        source.settle()
        worker.changes.notify()
