"""Evidence for a judgement of memory: attestations joined with the record at their boundary.

Blocking: ledger reads replay records. Call from a worker thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sidecar.core.events import (
    Fingerprint,
    RankAttestation,
    SchedulerAttestation,
    SourceKey,
    SourceKind,
)
from sidecar.core.evidence import (
    Lack,
    Missing,
    RankEvidence,
    SourceEvidence,
    StateEvidence,
    StepWindow,
)
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState
from sidecar.ledger.errors import BoundaryNeverStoodError, LedgerError
from sidecar.ledger.interface import Ledger
from sidecar.ledger.values import Mark, SourceDescription
from sidecar.registry import Attested, SourceAttestation, SourceRuntime, WorkerRuntime

# Newer than every event: nothing counts as late.
NO_CUT = (1 << 63) - 1
SCHEDULER = SourceKey(SourceKind.SCHEDULER)


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a source's history lies in the ledger, and what of it was witnessed.

    `generation` is the history to read. `before` is the one that a restore branched off from;
    without a restore the same. `cut`: newer events are late.
    """

    source_id: int
    generation: int
    before: int
    cut: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the registry knows of a worker at the moment of judging, copied so that it can be
    read from another thread.
    """

    incarnation: str
    ranks: int
    coordinates: Mapping[SourceKey, Coordinates]
    fingerprints: Mapping[SourceKey, Mapping[str, str]]
    nonces: Mapping[SourceKey, int]


def snapshot(worker: WorkerRuntime, *, restored: bool) -> Snapshot:
    """Copies coordinates of all sources. `restored`: judge as after the worker's newest sign."""
    return Snapshot(
        incarnation=worker.incarnation,
        ranks=worker.ranks,
        coordinates={
            key: _coordinates(source, worker.generation, restored=restored)
            for key, source in worker.sources.items()
        },
        fingerprints={key: dict(source.fingerprint) for key, source in worker.sources.items()},
        nonces={key: source.nonce for key, source in worker.sources.items()},
    )


def _coordinates(source: SourceRuntime, newest: int, *, restored: bool) -> Coordinates:
    """A source that has not signed for the newest restore goes on in its old history; what it
    sent after the others' sign is late all the same.
    """
    at = source.generation
    if not restored or source.cut is None:
        return Coordinates(source.source_id, at, at, NO_CUT)
    before = source.parent if at == newest else at
    return Coordinates(source.source_id, at, before, source.cut)


class EvidenceReader:
    """Reads evidence of one worker from the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        worker: str,
        *,
        late_steps_allowed: int,
        is_shadow: Callable[[str], bool],
    ) -> None:
        self._ledger = ledger
        self._worker = worker
        self._late_steps_allowed = late_steps_allowed
        self._is_shadow = is_shadow

    def read(
        self, seen: Snapshot, attested: Mapping[SourceKey, Attested], mark: Mark | None
    ) -> StateEvidence:
        """Joins attestations and record. What is missing is in the evidence, never raised."""
        scheduler = _attestation(attested.get(SCHEDULER))
        if isinstance(scheduler, RankAttestation):
            scheduler = Missing(Lack.NOT_ATTESTED, "it attested as a rank")
        newest = self._newest_step(seen)
        expected = self._scheduler(seen, scheduler, newest)
        ranks = tuple(
            self._rank(seen, key, attested.get(key))
            for key in sorted(attested)
            if key.kind is SourceKind.RANK
        )
        live: frozenset[str] = frozenset()
        if isinstance(scheduler, SchedulerAttestation):
            live = frozenset(each.session_id for each in scheduler.sessions)
        recorded: frozenset[str] = frozenset()
        if isinstance(expected, SchedulerState):
            recorded = frozenset(each.session_id for each in expected.sessions.values())
        ignored = frozenset(filter(self._is_shadow, live | recorded))
        return StateEvidence(
            incarnation_recorded=mark.incarnation if mark else seen.incarnation,
            incarnation_found=seen.incarnation,
            sources=self._sources(seen),
            expected=expected,
            attested=scheduler,
            ranks=ranks,
            ranks_expected=seen.ranks,
            newest_step=newest,
            late_steps_allowed=self._late_steps_allowed,
            window=step_window(mark, newest),
            ignored_sessions=ignored,
        )

    def ended_since(self, seen: Snapshot, sessions: frozenset[str]) -> frozenset[str]:
        """Which of these sessions the record has as ended by now."""
        at = seen.coordinates.get(SCHEDULER)
        if at is None:
            return frozenset()
        try:
            state = self._ledger.newest_state(at.source_id, at.generation)
        except LedgerError:
            return frozenset()
        if not isinstance(state, SchedulerState) or state.broken is not None:
            return frozenset()
        return sessions - {each.session_id for each in state.sessions.values()}

    def restarted(self, incarnation: str, found: str, ranks: int) -> StateEvidence:
        """Evidence that `found` took the place of `incarnation`, whose newest record says what
        was in flight.
        """
        expected: SchedulerState | Missing = Missing(Lack.NOT_RECORDED, "no record of it")
        newest = 0
        for entry in self._ledger.sources(self._worker):
            if entry.incarnation == incarnation and entry.key == SCHEDULER:
                generation = max(g.generation for g in self._ledger.generations(entry.source_id))
                try:
                    state = self._ledger.newest_state(entry.source_id, generation)
                except LedgerError as error:
                    expected = Missing(Lack.NOT_RECORDED, str(error))
                else:
                    if isinstance(state, SchedulerState):
                        expected, newest = state, state.launched
        sessions: frozenset[str] = frozenset()
        if isinstance(expected, SchedulerState):
            sessions = frozenset(each.session_id for each in expected.sessions.values())
        return StateEvidence(
            incarnation_recorded=incarnation,
            incarnation_found=found,
            sources=(),
            expected=expected,
            attested=Missing(Lack.NOT_ATTESTED, "the old life cannot be asked any more"),
            ranks=(),
            ranks_expected=ranks,
            newest_step=newest,
            late_steps_allowed=self._late_steps_allowed,
            ignored_sessions=frozenset(filter(self._is_shadow, sessions)),
        )

    def _newest_step(self, seen: Snapshot) -> int:
        at = seen.coordinates.get(SCHEDULER)
        if at is None:
            return 0
        try:
            if at.before == at.generation:
                return self._ledger.newest_step(at.source_id, at.generation)
            return self._ledger.newest_step_of_branch(at.source_id, at.generation)
        except LedgerError:
            return 0

    def _scheduler(
        self, seen: Snapshot, found: SchedulerAttestation | Missing, newest: int
    ) -> SchedulerState | Missing:
        at = seen.coordinates.get(SCHEDULER)
        if at is None:
            return Missing(Lack.NOT_RECORDED, "the scheduler never attached")
        if isinstance(found, Missing):
            return Missing(Lack.NOT_RECORDED, "no boundary was attested to compare with")
        try:
            return self._ledger.scheduler_state(
                at.source_id, at.generation, found.launched, found.committed, at.cut
            )
        except BoundaryNeverStoodError as error:
            return Missing(Lack.NEVER_PASSED, error.why)
        except LedgerError as error:
            return Missing(Lack.NOT_RECORDED, f"{error} (newest recorded step {newest})")

    def _rank(self, seen: Snapshot, key: SourceKey, answer: Attested | None) -> RankEvidence:
        found = _attestation(answer)
        if isinstance(found, SchedulerAttestation):
            found = Missing(Lack.NOT_ATTESTED, "it attested as a scheduler")
        return RankEvidence(key.rank, self._rank_expected(seen, key, found), found)

    def _rank_expected(
        self, seen: Snapshot, key: SourceKey, found: RankAttestation | Missing
    ) -> RankState | Missing:
        at = seen.coordinates.get(key)
        if at is None:
            return Missing(Lack.NOT_RECORDED, f"{key} never attached")
        if isinstance(found, Missing):
            return Missing(Lack.NOT_RECORDED, "no boundary was attested to compare with")
        try:
            return self._ledger.rank_state(at.source_id, at.generation, found.step, at.cut)
        except LedgerError as error:
            return Missing(Lack.NOT_RECORDED, str(error))

    def _sources(self, seen: Snapshot) -> tuple[SourceEvidence, ...]:
        """What each source first said, when its process started, and what it says now. The first
        word counts: a process cannot change its engine or model while it lives.
        """
        first: dict[SourceKey, SourceDescription] = {
            entry.key: entry.description
            for entry in self._ledger.sources(self._worker)
            if entry.incarnation == seen.incarnation
        }
        evidence = []
        for key in sorted({*first, *seen.fingerprints}):
            description = first.get(key)
            found = seen.fingerprints.get(key)
            evidence.append(
                SourceEvidence(
                    key=key,
                    recorded_fingerprint=(
                        Fingerprint(dict(description.fingerprint)) if description else None
                    ),
                    found_fingerprint=None if found is None else Fingerprint(found),
                    recorded_nonce=description.nonce if description else None,
                    found_nonce=seen.nonces.get(key),
                )
            )
        return tuple(evidence)


def step_window(mark: Mark | None, newest_step: int) -> StepWindow | None:
    """Steps that the mark's image can hold. A mark that was never completed may have been
    dumped at any step since.
    """
    if mark is None:
        return None
    return StepWindow(mark.step, mark.last_step or max(newest_step, mark.step))


def _attestation(answer: Attested | None) -> SchedulerAttestation | RankAttestation | Missing:
    if isinstance(answer, SourceAttestation):
        return answer.body
    reason = "it was not asked" if answer is None else answer.reason
    return Missing(Lack.NOT_ATTESTED, reason)
