"""The scheduler's record folded into the state at one boundary (launched, committed)."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from sidecar.core.baseline import launch_in_doubt, start_from_attestation
from sidecar.core.errors import BlockGap, OutOfOrderStep, RowInUse, UnknownRow
from sidecar.core.events import (
    BlockUpdate,
    Commit,
    Hole,
    Launch,
    SchedulerAttestation,
    SessionEnd,
    SessionStart,
    Witness,
)
from sidecar.core.positions import (
    PendingStep,
    PositionColumns,
    check_rows,
    column,
    commit_positions,
    still_theirs,
)
from sidecar.core.scheduler_snapshot import pack_scheduler, unpack_scheduler
from sidecar.core.sessions import Session, append_tokens, token_buffer


class SchedulerState:
    """What is in flight at the boundary (launched, committed).

    Records are applied in the order in which the scheduler made them. The first record of an
    empty state may be of any step. After a Hole the state is `broken`: sessions are unknown and
    dropped, only steps are followed, until `rebased` gives a new start.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}
        self.launched = 0
        self.committed = 0
        # Newest steps that were not recorded late.
        self.witnessed_launched = 0
        self.witnessed_committed = 0
        self.broken: str | None = None
        # How the state's start came to be known: WITNESSED, or BASELINE from an attestation.
        self.origin = Witness.WITNESSED
        # The folding's own; snapshots and baselines of this package fill them.
        self.columns = PositionColumns()
        self.pending: deque[PendingStep] = deque()
        self.lives = 0

    @classmethod
    def from_attestation(
        cls, attestation: SchedulerAttestation, pending: tuple[Launch, ...] = ()
    ) -> "SchedulerState":
        """A state that starts at an attested boundary instead of the beginning.

        `pending` are the launches of the steps after `committed` up to `launched`, in order; they
        are needed where tokens are in flight. Raises BaselineIncomplete where they do not explain
        the attested positions.
        """
        state = cls()
        start_from_attestation(state, attestation, [launch_in_doubt(each) for each in pending])
        return state

    def rebased(self, attestation: SchedulerAttestation) -> "SchedulerState":
        """A new state that starts at an attestation taken at this state's own boundary: the way
        out of a hole. Raises BaselineIncomplete, or OutOfOrderStep at another boundary.
        """
        if attestation.launched != self.launched:
            raise OutOfOrderStep("attestation", attestation.launched, self.launched)
        state = SchedulerState()
        start_from_attestation(state, attestation, list(self.pending))
        return state

    def to_bytes(self) -> bytes:
        """A snapshot from which `from_bytes` makes an equal state."""
        return pack_scheduler(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "SchedulerState":
        """Raises SnapshotCorrupt."""
        state = cls()
        unpack_scheduler(state, data)
        return state

    @property
    def boundary(self) -> tuple[int, int]:
        return self.launched, self.committed

    @property
    def late_steps(self) -> int:
        """Steps of this boundary that are known only from late records."""
        return max(
            self.launched - self.witnessed_launched, self.committed - self.witnessed_committed
        )

    def session(self, session_id: str) -> Session | None:
        for session in self.sessions.values():
            if session.session_id == session_id:
                return session
        return None

    def tables(self) -> dict[str, dict[int, list[int]]]:
        """Block tables by session id and KV group."""
        return {each.session_id: each.tables for each in self.sessions.values()}

    def apply(self, event: Launch | Commit | Hole, witness: Witness = Witness.WITNESSED) -> None:
        """Advances by one record.

        Raises OutOfOrderStep (nothing changed) and the other RecordErrors, after which the state
        is not to be used.
        """
        if isinstance(event, Launch):
            self._apply_launch(event, witness)
        elif isinstance(event, Commit):
            self._apply_commit(event, witness)
        else:
            self._apply_hole(event)

    def written(self, rank_step: int) -> dict[int, int]:
        """By row: tokens whose KV a rank that finished `rank_step` has written.

        Committed tokens and those of steps in flight up to `rank_step`. After a step that carries
        drafts the positions of later steps depend on its outcome, so they are not counted.
        """
        columns = self.columns
        written = {row: int(columns.computed[row]) for row in self.sessions}
        open_ended: set[int] = set()
        for pending in self.pending:
            if pending.step > rank_step:
                break
            kept = columns.kv_life[pending.rows] == pending.kv_life
            for i in np.flatnonzero(kept).tolist():
                row = int(pending.rows[i])
                if row in open_ended:
                    continue
                written[row] += int(pending.counts[i])
                if pending.drafts is not None and pending.drafts[i]:
                    open_ended.add(row)
        return written

    def _apply_launch(self, launch: Launch, witness: Witness) -> None:
        step = launch.step
        if self.broken is not None:
            if step <= self.launched:
                raise OutOfOrderStep("launch", step, self.launched + 1)
            self.pending.append(launch_in_doubt(launch))
        else:
            if not self.launched:
                self.launched = self.committed = step - 1
                self.witnessed_launched = self.witnessed_committed = step - 1
            if step != self.launched + 1:
                raise OutOfOrderStep("launch", step, self.launched + 1)
            self._end(launch.ended, step)
            for start in launch.started:
                self._start(start, step)
            for row in launch.preempted_rows:
                self._preempt(row, step)
            for update in launch.blocks:
                self._update_blocks(update, step)
            self.pending.append(self._launch_rows(launch))
        self.launched = step
        if witness is not Witness.LATE:
            self.witnessed_launched = step

    def _launch_rows(self, launch: Launch) -> PendingStep:
        columns = self.columns
        rows = launch.rows.astype(np.int64)
        counts = column(launch.counts, rows, 1, launch.step, "number of counts")
        starts = column(launch.starts, rows, 0, launch.step, "number of starts")
        drafts = None
        if launch.drafts is not None:
            drafts = column(launch.drafts, rows, 0, launch.step, "number of drafts")
        if len(rows):
            check_rows(columns, rows, launch.step)
        in_flight = columns.in_flight[rows]
        jumped = starts != columns.computed[rows] + in_flight
        if jumped.any():
            self._follow_jumps(rows[jumped], starts[jumped], launch.step)
        columns.in_flight[rows] = in_flight + counts
        columns.last_step[rows] = launch.step
        return PendingStep(
            launch.step, rows, counts, drafts, columns.life[rows], columns.kv_life[rows]
        )

    def _follow_jumps(self, rows: NDArray[np.int64], starts: NDArray[np.int64], step: int) -> None:
        """A start that is not where the record stands. With nothing computed it is a hit in the
        prefix cache. Otherwise the record contradicts itself: it is followed, and the session is
        in doubt until it loses its KV or ends.
        """
        columns = self.columns
        for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
            computed, in_flight = int(columns.computed[row]), int(columns.in_flight[row])
            if computed + in_flight:
                self.sessions[row].doubt = (
                    f"step {step} was launched at position {start}, the record stood at "
                    f"{computed} computed and {in_flight} in flight"
                )
            columns.computed[row] = max(start - in_flight, 0)

    def _apply_commit(self, commit: Commit, witness: Witness) -> None:
        step = commit.step
        if self.broken is not None:
            if step <= self.committed:
                raise OutOfOrderStep("commit", step, self.committed + 1)
            while self.pending and self.pending[0].step <= step:
                self.pending.popleft()
        else:
            if not self.pending or step != self.committed + 1:
                raise OutOfOrderStep("commit", step, self.committed + 1)
            pending = self.pending.popleft()
            commit_positions(self.columns, commit, pending)
            live = self.columns.life[pending.rows] == pending.life
            append_tokens(self.sessions, commit, pending, live)
            self._end(still_theirs(commit.ended, pending, self.columns), step)
        self.committed = step
        if witness is not Witness.LATE:
            self.witnessed_committed = step

    def _apply_hole(self, hole: Hole) -> None:
        self.broken = (
            f"{hole.count} records of steps {hole.first_step} to {hole.last_step} are missing: "
            f"{hole.reason}"
        )
        self.sessions.clear()
        self.columns = PositionColumns()
        self.pending.clear()

    def _start(self, start: SessionStart, step: int) -> None:
        holder = self.sessions.get(start.row)
        if holder is not None:
            raise RowInUse(start.row, step, holder.session_id, start.session_id)
        tokens = token_buffer(start.prompt_tokens)
        tokens.frombytes(start.output_tokens.astype(np.uint32).tobytes())
        self.open_row(
            Session(
                row=start.row,
                session_id=start.session_id,
                prompt_length=len(start.prompt_tokens),
                sampling=start.sampling,
                cache_salt_digest=start.cache_salt_digest,
                started_step=step,
                tokens=tokens,
                columns=self.columns,
            )
        )

    def open_row(self, session: Session) -> None:
        """Gives the session's row to it, with nothing computed."""
        columns = self.columns
        columns.reserve(session.row)
        columns.clear(session.row)
        self.lives += 1
        columns.life[session.row] = columns.kv_life[session.row] = self.lives
        self.sessions[session.row] = session

    def _end(self, ended: tuple[SessionEnd, ...], step: int) -> None:
        for end in ended:
            if self.sessions.pop(end.row, None) is None:
                raise UnknownRow(end.row, step, "end")
            self.columns.clear(end.row)

    def _preempt(self, row: int, step: int) -> None:
        session = self.sessions.get(row)
        if session is None:
            raise UnknownRow(row, step, "preemption")
        self.lives += 1
        self.columns.kv_life[row] = self.lives
        self.columns.computed[row] = 0
        self.columns.in_flight[row] = 0
        session.tables.clear()
        session.doubt = None

    def _update_blocks(self, update: BlockUpdate, step: int) -> None:
        session = self.sessions.get(update.row)
        if session is None:
            raise UnknownRow(update.row, step, "block update")
        table = session.tables.setdefault(update.kv_group, [])
        if update.offset > len(table):
            raise BlockGap(update.row, update.kv_group, update.offset, len(table))
        table[update.offset :] = update.blocks.tolist()
