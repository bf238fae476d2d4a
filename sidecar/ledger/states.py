"""Reading states back: as of a boundary, as of now, and the future that was."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState

from .asof import History
from .base import LedgerBase
from .errors import FlushTimeoutError, LedgerFullError, StateNotRecordedError
from .export import exported
from .lineage import futures, lineage
from .values import ExportedRecord, FutureTokens


class States(LedgerBase):
    """Every call waits (bounded by `read_flush_s`) for what was appended before it, then reads
    through a connection of its own. Meant for a worker thread: a replay takes milliseconds to
    seconds.
    """

    def scheduler_state(
        self, source_id: int, generation: int, launched: int, committed: int, cut: int
    ) -> SchedulerState:
        """The scheduler at a boundary; events newer than `cut` are applied as LATE.

        Raises BoundaryNeverStoodError, StateNotRecordedError, LedgerCorruptError,
        UnknownSourceError, UnknownGenerationError.
        """
        with self._history(source_id, generation) as history:
            state = history.scheduler(launched, committed, cut).state
        if not isinstance(state, SchedulerState):
            raise self._other_kind(source_id, generation, "a scheduler")
        return state

    def rank_state(self, source_id: int, generation: int, step: int, cut: int) -> RankState:
        """The rank after all it recorded up to `step`; events newer than `cut` are LATE.

        Its `step` is smaller where the rank recorded nothing for the last steps. Raises as
        `scheduler_state`.
        """
        with self._history(source_id, generation) as history:
            state = history.rank(step, cut).state
        if not isinstance(state, RankState):
            raise self._other_kind(source_id, generation, "a rank")
        return state

    def newest_state(self, source_id: int, generation: int) -> SchedulerState | RankState:
        """After everything recorded. Raises as `scheduler_state`."""
        with self._history(source_id, generation) as history:
            return history.newest().state

    def newest_step(self, source_id: int, generation: int) -> int:
        """Newest step that the history of a generation has a record of; 0: none."""
        self._settle()
        log = self._log_of(source_id)
        log.generation(generation)
        with self._readers.lend() as connection:
            for segment in reversed(lineage(log.generations, generation)):
                end = segment.end if segment.end is not None else (1 << 63) - 1
                (step,) = connection.execute(
                    "SELECT MAX(step) FROM (SELECT step FROM records WHERE source = ?"
                    " AND generation = ? AND seq < ? ORDER BY seq DESC LIMIT 64)",
                    (source_id, segment.generation, end),
                ).fetchone()
                if step is not None:
                    return int(step)
        return 0

    def newest_step_of_branch(self, source_id: int, generation: int) -> int:
        """Newest step that any older history has which goes on from where `generation` branched
        off; 0: none. How far back its restore went is counted from there.
        """
        log = self._log_of(source_id)
        log.generation(generation)
        older = futures(log.generations, generation)
        return max((self.newest_step(source_id, each) for each in older), default=0)

    def future_tokens(
        self, source_id: int, generation: int, session_ids: frozenset[str] = frozenset()
    ) -> tuple[FutureTokens, ...]:
        """Tokens that sessions emitted in older generations from where `generation` branched
        off, newest generation first. Empty `session_ids`: of all sessions.

        Raises StateNotRecordedError, LedgerCorruptError, UnknownSourceError,
        UnknownGenerationError.
        """
        log = self._log_of(source_id)
        branch = log.generation(generation).first_seq
        found: list[FutureTokens] = []
        for older in futures(log.generations, generation):
            with self._history(source_id, older) as history:
                found += history.future_tokens(branch, session_ids)
        return tuple(found)

    def export(self, worker: str, from_step: int = 0, to_step: int = 0) -> Iterator[ExportedRecord]:
        """Committed records of a worker in the order of their arrival; `to_step` 0: to the
        newest. Records that come meanwhile are not in it. Raises LedgerError.
        """
        with self._lock:
            logs = {
                source_id: log.entry
                for source_id, log in self._registry.sources.items()
                if log.entry.worker == worker
            }
        with self._readers.lend() as connection:
            yield from exported(connection, logs, from_step, to_step)

    @contextmanager
    def _history(self, source_id: int, generation: int) -> Iterator[History]:
        self._settle()
        log = self._log_of(source_id)
        log.generation(generation)
        with self._readers.lend() as connection:
            yield self._history_on(connection, source_id, generation)

    def _history_on(
        self, connection: sqlite3.Connection, source_id: int, generation: int
    ) -> History:
        log = self._log_of(source_id)
        return History(connection, self.path, log, self._fold(log), generation)

    def _settle(self) -> None:
        # Without room, or with a slow disk, the answer is made of what is committed.
        with suppress(FlushTimeoutError, LedgerFullError):
            self.flush(self.settings.read_flush_s)

    def _other_kind(self, source_id: int, generation: int, wanted: str) -> StateNotRecordedError:
        return StateNotRecordedError(source_id, generation, "kind", f"the source is not {wanted}")
