"""State as of a boundary: the nearest snapshot and a bounded replay from there."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sidecar.core.events import Witness
from sidecar.core.scheduler_state import SchedulerState

from . import rows, snapshots
from .errors import BoundaryNeverStoodError, StateNotRecordedError
from .fold import REPLAY_ERRORS, Fold, State, boundary
from .lineage import lineage, snapshot_index
from .registry import SourceLog
from .rows import Read
from .snapshots import SnapshotInfo
from .values import FutureTokens, RecordKind

# Whether a replay ends before this record, in this state.
Stop = Callable[[Read, State], bool]
_NO_LIMIT = (1 << 63) - 1


@dataclass(slots=True)
class Point:
    """Where a replay stands: `seq` of `generation` is the last seq that is in the state,
    `last_id` the newest event. `launched` and `committed` are the newest steps of its records,
    which after a Hole are not the state's own.
    """

    state: State
    generation: int
    seq: int
    last_id: int
    launched: int
    committed: int
    # There is a record beyond the point where the replay was to stop.
    went_on: bool = False


class History:
    """One generation of one source, read through one connection."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        log: SourceLog,
        fold: Fold,
        generation: int,
    ) -> None:
        self._connection = connection
        self._path = path
        self._log = log
        self._fold = fold
        self._generation = generation
        self._segments = lineage(log.generations, generation)

    def newest(self) -> Point:
        """The state after everything that is committed."""
        return self._replay(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT, _never, "the newest record")

    def scheduler(self, launched: int, committed: int, cut: int) -> Point:
        """Raises BoundaryNeverStoodError, and StateNotRecordedError when the record does not
        reach so far or has a hole there.
        """
        asked = f"boundary launched {launched}, committed {committed}"

        def beyond(read: Read, state: State) -> bool:
            kind, step = read.row.kind, read.row.step
            if kind == RecordKind.HOLE and boundary(state) == (launched, committed):
                # What is missing came after this boundary, whatever step it was of.
                return True
            return step > (committed if kind == RecordKind.COMMIT else launched)

        point = self._replay(launched, committed, cut, beyond, asked)
        found = boundary(point.state)
        if found == (launched, committed):
            return point
        stood = f"launched {found[0]}, committed {found[1]}"
        broken = getattr(point.state, "broken", None)
        if broken is not None:
            raise self._refusal(asked, f"the record has a hole before it: {broken}")
        if not point.went_on:
            raise self._refusal(asked, f"the record ends at {stood}")
        why = f"the record went on from {stood} and never stood at this boundary"
        raise BoundaryNeverStoodError(self._log.entry.source_id, self._generation, asked, why)

    def rank(self, step: int, cut: int) -> Point:
        """After all records up to `step`. Its own step is smaller when the rank recorded none."""

        def beyond(read: Read, _state: State) -> bool:
            return read.row.kind != RecordKind.WEIGHTS and read.row.step > step

        return self._replay(step, step, cut, beyond, f"step {step}")

    def until(self, base: SnapshotInfo | None, last_id: int) -> Point:
        """The state after the event `last_id`, from a given snapshot or (None) from nothing."""
        asked = f"event {last_id}"
        start = self._start([base] if base is not None else [], asked)
        return self._advance(start, _NO_LIMIT, lambda read, _: read.row.id > last_id, asked)

    def future_tokens(self, branch_seq: int, session_ids: frozenset[str]) -> list[FutureTokens]:
        """What sessions that lived before `branch_seq` emitted from there on."""

        def at_branch(read: Read, _state: State) -> bool:
            return read.row.seq >= branch_seq

        asked = f"seq {branch_seq}"
        point = self._replay_before(branch_seq, at_branch, asked)
        state = point.state
        if not isinstance(state, SchedulerState):
            raise self._refusal(asked, "only the scheduler records tokens")
        tracked = {
            each.session_id: (each, len(each.tokens))
            for each in state.sessions.values()
            if not session_ids or each.session_id in session_ids
        }
        for read in self._reads(point):
            self._apply(state, read, Witness.WITNESSED, asked)
            if state.broken is not None:
                break
        return [
            FutureTokens(
                generation=self._generation,
                session_id=name,
                first_position=before,
                tokens=tuple(session.tokens[before:]),
                ended=state.broken is None and state.sessions.get(session.row) is not session,
            )
            for name, (session, before) in tracked.items()
            if len(session.tokens) > before
        ]

    def _replay_before(self, branch_seq: int, stop: Stop, asked: str) -> Point:
        found = snapshots.infos(self._connection, self._log.entry.source_id)
        fitting = [
            info
            for info in found
            if info.seq < branch_seq
            and snapshot_index(self._segments, info.generation, info.seq) is not None
        ]
        return self._advance(self._start(fitting, asked), _NO_LIMIT, stop, asked)

    def _replay(self, launched: int, committed: int, cut: int, stop: Stop, asked: str) -> Point:
        found = snapshots.infos(self._connection, self._log.entry.source_id)
        fitting = snapshots.usable(
            found, self._segments, launched=launched, committed=committed, cut=cut
        )
        return self._advance(self._start(fitting, asked), cut, stop, asked)

    def _start(self, fitting: list[SnapshotInfo], asked: str) -> Point:
        for info in fitting:
            data = snapshots.read(self._connection, info)
            if data is not None:
                try:
                    state = self._fold.load(data)
                except REPLAY_ERRORS as error:
                    raise self._refusal(asked, f"snapshot {info.snapshot_id}: {error}") from error
                return Point(
                    state,
                    info.generation,
                    info.seq,
                    info.last_id,
                    info.launched,
                    info.committed,
                )
        if self._log.cut is not None:
            why = "what it needs was removed by retention and no snapshot before it is left"
            raise self._refusal(asked, why)
        first = self._segments[0]
        return Point(self._fold.empty(), first.generation, first.first - 1, 0, 0, 0)

    def _advance(self, point: Point, cut: int, stop: Stop, asked: str) -> Point:
        for read in self._reads(point):
            if stop(read, point.state):
                point.went_on = read.row.kind != RecordKind.HOLE
                break
            row = read.row
            self._apply(
                point.state, read, Witness.LATE if row.id > cut else Witness.WITNESSED, asked
            )
            point.generation, point.last_id = row.generation, row.id
            point.seq = row.seq + row.span - 1
            if row.kind != RecordKind.COMMIT:
                point.launched = max(point.launched, row.step)
            if row.kind not in (RecordKind.LAUNCH, RecordKind.HOLE):
                point.committed = max(point.committed, row.step)
        return point

    def _apply(self, state: State, read: Read, witness: Witness, asked: str) -> None:
        row = read.row
        try:
            self._fold.apply(state, row.payload, witness)
        except REPLAY_ERRORS as error:
            why = f"record {row.seq} of generation {row.generation}: {error}"
            raise self._refusal(asked, why) from error

    def _reads(self, point: Point) -> Iterator[Read]:
        """Records beyond a point, through all younger segments of this history."""
        index = snapshot_index(self._segments, point.generation, point.seq)
        for segment in self._segments[index or 0 :]:
            after = point.seq if segment.generation == point.generation else segment.first - 1
            yield from rows.checked(self._connection, self._path, self._log, segment, after)

    def _refusal(self, asked: str, why: str) -> StateNotRecordedError:
        return StateNotRecordedError(self._log.entry.source_id, self._generation, asked, why)


def _never(_read: Read, _state: State) -> bool:
    return False
