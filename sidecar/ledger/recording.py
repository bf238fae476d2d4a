"""Taking records in: sources, generations, appends, acknowledgements."""

from collections.abc import Callable, Sequence

from sidecar.core.events import SourceKey

from . import control
from .base import DurableCallback, LedgerBase
from .errors import GenerationConflictError
from .transaction import Row
from .values import (
    Appended,
    Generation,
    Registration,
    RegistrationOutcome,
    SourceDescription,
    SourceEntry,
    StoredRecord,
)
from .writer import Batch

_ROW_OVERHEAD = 128


class Recording(LedgerBase):
    """Thread-safe; nothing here waits for the disk."""

    def source(
        self,
        worker: str,
        incarnation: str,
        key: SourceKey,
        description: SourceDescription,
        *,
        reason: str = "attached",
    ) -> Registration:
        """Registers a source with generation 0 (opened for `reason`), or says what is known of it.

        A known source keeps the description that it first gave: compare with `recorded`.
        Raises LedgerFullError, QueueFullError.
        """
        with self._lock:
            known = self._registry.find(worker, incarnation, int(key.kind), key.rank)
            if known is not None:
                recorded = known.entry.description
                same = recorded.nonce == description.nonce
                outcome = RegistrationOutcome.KNOWN if same else RegistrationOutcome.NONCE_CHANGED
                newest = known.newest
                return Registration(
                    known.entry.source_id, outcome, recorded, newest, known.durable[newest]
                )
            source_id = max(self._registry.sources, default=0) + 1
            entry = SourceEntry(source_id, worker, incarnation, key, description, self._clock())
            first = Generation(0, None, 1, reason, entry.registered_unix_ns, self._last_id)
            self._put_control(control.source_record(entry), control.generation_record(entry, first))
            log = self._registry.add(entry)
            self._store.chains.digests[source_id] = log.digest
            log.add(first)
            return Registration(source_id, RegistrationOutcome.NEW, description, 0, 0)

    def sources(self, worker: str | None = None) -> tuple[SourceEntry, ...]:
        """Registered sources in order of registration; None: of all workers."""
        with self._lock:
            entries = [log.entry for log in self._registry.sources.values()]
        return tuple(each for each in entries if worker is None or each.worker == worker)

    def open_generation(
        self,
        source_id: int,
        generation: int,
        first_seq: int,
        reason: str,
        *,
        parent: int | None = None,
    ) -> Generation:
        """Opens the next generation of a source: its history is the parent's up to `first_seq`.

        `parent` None: the generation before. Opening one that is there with the same first seq
        gives it again. Its `cut` is the newest event before it. Raises UnknownSourceError,
        UnknownGenerationError, GenerationConflictError, SequenceGapError (the parent does not
        reach up to `first_seq`), LedgerFullError, QueueFullError.
        """
        with self._lock:
            log = self._registry.log(source_id)
            found = log.generations.get(generation)
            if found is not None:
                if found.first_seq != first_seq or parent not in (None, found.parent):
                    why = f"it is open already with first seq {found.first_seq}"
                    raise GenerationConflictError(source_id, generation, why)
                return found
            parent = generation - 1 if parent is None else parent
            log.check_new(generation, parent, first_seq)
            opened = Generation(generation, parent, first_seq, reason, self._clock(), self._last_id)
            self._put_control(control.generation_record(log.entry, opened))
            log.add(opened)
            return opened

    def generations(self, source_id: int) -> tuple[Generation, ...]:
        with self._lock:
            return tuple(self._registry.log(source_id).generations.values())

    def append(self, source_id: int, generation: int, records: Sequence[StoredRecord]) -> Appended:
        """Takes records of the newest generation, in order of seq; all of them or none.

        Those that are there already are dropped and counted. They are durable when `durable_seq`
        (or a subscriber) says so. Never blocks. Raises QueueFullError (see `when_room`),
        LedgerFullError, SequenceGapError, RecordOutOfRangeError, GenerationConflictError,
        UnknownSourceError, UnknownGenerationError, LedgerClosedError.
        """
        with self._lock:
            log = self._registry.log(source_id)
            fresh = log.fresh(generation, records)
            duplicates = len(records) - len(fresh)
            log.duplicates += duplicates
            if not fresh:
                return Appended(0, duplicates)
            now, last_id = self._clock(), self._last_id
            rows = [
                Row(
                    last_id + index,
                    source_id,
                    generation,
                    record.seq,
                    record.count,
                    record.step,
                    int(record.kind),
                    now,
                    record.payload,
                )
                for index, record in enumerate(fresh, 1)
            ]
            weight = sum(len(record.payload) for record in fresh) + _ROW_OVERHEAD * len(fresh)
            self._writer.put(Batch(rows, weight))
            self._last_id = last_id + len(rows)
            log.accepted[generation] = fresh[-1].seq + fresh[-1].count - 1
            return Appended(len(rows), duplicates)

    def accepted_seq(self, source_id: int, generation: int) -> int:
        """Newest seq that was taken, durable or not."""
        with self._lock:
            log = self._registry.log(source_id)
            log.generation(generation)
            return log.accepted[generation]

    def durable_seq(self, source_id: int, generation: int) -> int:
        """Newest seq that is committed; the generation's first seq less 1: none of its own."""
        with self._lock:
            log = self._registry.log(source_id)
            log.generation(generation)
            return log.durable[generation]

    def duplicates(self, source_id: int) -> int:
        """How many records were dropped because they were there already, since opening."""
        with self._lock:
            return self._registry.log(source_id).duplicates

    def subscribe(self, callback: DurableCallback) -> None:
        """Calls back after every commit, from the writer's thread: be quick, hand over."""
        with self._lock:
            self._callbacks.append(callback)

    def unsubscribe(self, callback: DurableCallback) -> None:
        """Raises ValueError when it is not subscribed."""
        with self._lock:
            self._callbacks.remove(callback)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Calls back once, from the writer's thread, when at most half the queue is in use."""
        self._writer.when_room(callback)

    def cut(self, source_id: int) -> int:
        """The newest event of the whole ledger at this moment: what comes later is late.

        One number for all sources, so that cuts taken at one moment agree.
        """
        with self._lock:
            self._registry.log(source_id)
            return self._last_id
