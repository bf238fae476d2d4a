"""A rank's side: digests of the rows that each step wrote, and of everything when asked."""

import logging
import threading
from collections.abc import Sequence

import numpy as np

from engine_adapters.report.attestations import DueAttestation, Origin, RankBody
from engine_adapters.report.log import log_once, note_error
from engine_adapters.report.records import KvRows, RankStepRecord
from engine_adapters.report.reporter import SourceReporter
from engine_adapters.vllm.drill import KvMapWriter
from engine_adapters.vllm.errors import OutOfStepError
from engine_adapters.vllm.kv_groups import ObservedGroup
from engine_adapters.vllm.metadata import AttestNote, StepMetadata
from engine_adapters.vllm.model_access import ModelAccess
from engine_adapters.vllm.rank_attestation import read_live
from engine_adapters.vllm.rank_tables import RankTables, Slots, written_positions
from engine_adapters.vllm.sampler_watch import Columns, SamplerWatch

# How long a request waits for the scheduler to name the boundary.
_PATIENCE_S = 1.0
# Requests answered because the scheduler's note came first; the sidecar's own may follow.
_MOST_ANSWERED = 64
# After that a request that waits for the step's end is given up.
_LONGEST_STEP_S = 60.0
# A step that finds memory being read waits for that, as it would for its own attestation.
_LONGEST_READ_S = 120.0
# How long the reporter's thread waits for a step to end before it says "later".
_IDLE_LOCK_S = 0.05


class RankRole:
    """Hooks of one rank on the engine's thread. The step lock is held from before the forward
    until its rows are digested, so that nothing else reads while the engine writes.
    """

    def __init__(
        self, groups: Sequence[ObservedGroup], model: ModelAccess, *, record_sampler: bool
    ) -> None:
        self.reporter: SourceReporter | None = None
        # Set in drill mode only.
        self.kv_map: KvMapWriter | None = None
        self._groups = groups
        self._model = model
        self._record_sampler = record_sampler
        self._tables = RankTables({group.spec.group: group.spec.block_size for group in groups})
        self._sampler = SamplerWatch(model.find_generator)
        self._sampler_before: Columns = (np.zeros(0, np.uint32), np.zeros(0, np.uint64))
        self._lock = threading.Lock()
        self._current: StepMetadata | None = None
        self._finished = 0
        self._waiting: DueAttestation | None = None
        self._answered: list[int] = []

    def start(self) -> None:
        """The record of the weights, as they are before the first step."""
        assert self.reporter is not None  # noqa: S101 - given before
        if self._model.reason:
            log_once("weights", f"weights and sampler are not attested: {self._model.reason}")
        weights = self._model.weights()
        if weights is not None:
            self.reporter.put(weights)

    def before_step(self, step: StepMetadata) -> None:
        """Called by whichever hook comes first; attests and holds here, before the forward."""
        if self._current is step:
            return
        if self._current is None:
            self._take_lock()
        # else: a forward failed and its step never ended; the lock is still ours.
        self._current = step
        due = self._next_due(step.attest)
        if due is not None and step.attest is not None and step.attest.launched < step.step:
            # The scheduler stood before this launch: so do the tables that are read.
            self._attest(due, idle=False)
            self._apply(step)
        else:
            self._apply(step)
            if due is not None:
                self._attest(due, idle=False)
        self._hold_while_due(due)

    def after_step(self, step: StepMetadata) -> None:
        """The step's rows are written (on a device: submitted)."""
        if self._current is not step:
            return
        try:
            self._record(step)
        finally:
            self._tables.finished(step)
            self._finished = step.step
            self._current = None
            self._lock.release()

    def give_up(self) -> None:
        """The role failed and is not called again: let go of what others may wait for."""
        if self._current is not None:
            self._current = None
            self._lock.release()

    def idle_attestation(self, due: DueAttestation) -> RankBody | None:
        """From another thread, where no step runs; None if one does."""
        if not self._lock.acquire(timeout=_IDLE_LOCK_S):
            return None
        try:
            return self._read(due)
        finally:
            self._lock.release()

    def _apply(self, step: StepMetadata) -> None:
        # Who ends is forgotten before states are read, who starts has none yet.
        self._sampler.forget(step.ended)
        if self._record_sampler:
            self._sampler_before = self._sampler.next_few()
        self._tables.apply(step)
        self._sampler.expect(step.started)

    def _record(self, step: StepMetadata) -> None:
        assert self.reporter is not None  # noqa: S101 - given before
        rows, positions = written_positions(step)
        kv = [self._rows_of(group, rows, positions) for group in self._groups]
        sampler_rows, sampler_digests = self._sampler_before
        self.reporter.put(
            RankStepRecord(
                step=step.step,
                kv=[rows for rows in kv if rows is not None],
                sampler_rows=sampler_rows,
                sampler_digests=sampler_digests,
            )
        )
        self.reporter.note_step(step.step)

    def _rows_of(self, observed: ObservedGroup, rows: Slots, positions: Slots) -> KvRows | None:
        table = self._tables.groups[observed.spec.group]
        slots = table.slots(rows, positions)
        if len(slots) and int(slots.min()) < table.block_size:
            # The null block: positions that fell out of a sliding window while prefilling.
            slots = slots[slots >= table.block_size]
        if not len(slots):
            return None
        return KvRows(
            kv_group=observed.spec.group,
            slots=slots,
            digests=observed.digester.after_step(slots),
        )

    def _next_due(self, note: AttestNote | None) -> DueAttestation | None:
        """What is to be done at this boundary: a sign at once; a request where the scheduler
        says, so that all sources stand at one boundary.
        """
        assert self.reporter is not None  # noqa: S101 - given before
        due = self.reporter.due()
        while due is not None and due.origin is Origin.REQUEST and not due.attested:
            if due.attest_id not in self._answered:
                self._wait_for_note(due)
            due = self.reporter.due()
        if due is not None or note is None or not note.attest_id:
            return due
        self._waiting = None
        self._answered = [*self._answered[-_MOST_ANSWERED:], note.attest_id]
        return DueAttestation(
            note.attest_id, weights=note.weights, hold=False, origin=Origin.REQUEST
        )

    def _wait_for_note(self, due: DueAttestation) -> None:
        self._waiting = due
        timer = threading.Timer(_PATIENCE_S, self._answer_alone, args=(due,))
        timer.daemon = True
        timer.name = "tokenwitness-patience"
        timer.start()

    def _answer_alone(self, due: DueAttestation) -> None:
        """The scheduler named no boundary in time: the engine is idle, or its side is gone."""
        if not self._lock.acquire(timeout=_LONGEST_STEP_S):
            return
        try:
            if self._waiting is due:
                self._waiting = None
                self._attest(due, idle=True)
        finally:
            self._lock.release()

    def _hold_while_due(self, due: DueAttestation | None) -> None:
        assert self.reporter is not None  # noqa: S101 - given before
        while due is not None:
            self._hold(due)
            # Another restore during the hold, or a sign that came with a request.
            due = self.reporter.due()
            if due is not None and not due.attested:
                self._attest(due, idle=False)

    def _hold(self, due: DueAttestation) -> None:
        """Held, the step writes nothing, so others may read meanwhile."""
        assert self.reporter is not None  # noqa: S101 - given before
        self._lock.release()
        try:
            self.reporter.hold(due)
        finally:
            self._take_lock()

    def _take_lock(self) -> None:
        if not self._lock.acquire(timeout=_LONGEST_READ_S):
            self._current = None
            raise OutOfStepError("reading idle memory", f"more than {_LONGEST_READ_S} s", "less")

    def _attest(self, due: DueAttestation, *, idle: bool) -> None:
        assert self.reporter is not None  # noqa: S101 - given before
        if due.attested:
            return
        try:
            body = self._read(due)
        except Exception as error:  # noqa: BLE001 - the sidecar is told, the engine goes on
            note_error("attestation of a rank", error)
            self.reporter.attest_failed(due, f"{type(error).__name__}: {error}")
        else:
            self.reporter.attest(due, body, step=self._finished, idle=idle)
            log_once("attested", "memory attested", level=logging.INFO)

    def _read(self, due: DueAttestation) -> RankBody:
        if self.kv_map is not None:
            self.kv_map.write(self._finished, self._tables)
        sampler_rows, sampler_digests = self._sampler.all()
        return RankBody(
            kv=read_live(self._groups, self._tables),
            weights=self._model.weights() if due.weights else None,
            sampler_rows=sampler_rows,
            sampler_digests=sampler_digests,
        )
