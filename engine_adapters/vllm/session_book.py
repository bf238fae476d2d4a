"""Which sessions are live, under which row, and where the record says that they stand.

Positions are columns by row, so that a step of 256 sessions costs a few array operations.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engine_adapters.report.records import Sampling, SessionEnd
from engine_adapters.vllm.metadata import Rows

Int64 = npt.NDArray[np.int64]
_COLUMNS = ("emitted", "computed", "in_flight", "kv_life")


@dataclass(slots=True, eq=False)
class Session:
    """One request that the record follows. `tokens` is the engine's own growing list."""

    row: int
    session_id: str
    request: Any
    tokens: Sequence[int]
    prompt_length: int
    sampling: Sampling
    # Blocks told so far, by KV group.
    table_lengths: list[int] = field(default_factory=list)
    # Whether a launch has told of it; before that it ends without a trace.
    announced: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Sessions of a step in the engine's order; the same object while the batch is unchanged."""

    names: list[str]
    sessions: list[Session]
    rows: Rows
    tokens: list[Sequence[int]]


EMPTY_BATCH = Batch([], [], np.zeros(0, np.int64), [])


class SessionBook:
    """Sessions by id, and their rows.

    A row is used again only when no launched step that mentions it is without its outcome.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Session] = {}
        # By row. `emitted`: tokens told; `computed`: tokens with KV, committed; `in_flight`: of
        # launched steps; `kv_life` changes when a row's KV is given up.
        self.emitted: Int64 = np.zeros(0, np.int64)
        self.computed: Int64 = np.zeros(0, np.int64)
        self.in_flight: Int64 = np.zeros(0, np.int64)
        self.kv_life: Int64 = np.zeros(0, np.int64)
        # Counts changes of kv_life: equal means that nothing changed since.
        self.epoch = 0
        # Counts sessions that came and went, for whoever keeps a batch.
        self.changes = 0
        self._unannounced: list[Session] = []
        self._ended: list[SessionEnd] = []
        self._ended_for_ranks: list[int] = []
        self._free: list[int] = []
        self._leaving: deque[tuple[int, int]] = deque()
        self._rows = 0

    def __iter__(self) -> Iterator[Session]:
        return iter(self.by_id.values())

    def open(self, request: Any, tokens: Sequence[int], sampling: Sampling) -> Session:
        """Gives a new request a row; the next launch tells of it."""
        row = self._free.pop() if self._free else self._new_row()
        session = Session(
            row=row,
            session_id=request.request_id,
            request=request,
            tokens=tokens,
            prompt_length=request.num_prompt_tokens,
            sampling=sampling,
        )
        self.emitted[row] = session.prompt_length
        self._forget_kv(session)
        self.by_id[session.session_id] = session
        self.changes += 1
        self._unannounced.append(session)
        return session

    def end(self, session_id: str, reason: int, launched: int) -> None:
        """The request is finished; told with the next record. Unknown ids are not ours."""
        session = self.by_id.pop(session_id, None)
        if session is None:
            return
        self.changes += 1
        self._forget_kv(session)
        if session.announced:
            self._ended.append(SessionEnd(session.row, reason))
            self._ended_for_ranks.append(session.row)
        else:
            self._unannounced.remove(session)
        self._leaving.append((launched, session.row))

    def preempt(self, session_id: str) -> int | None:
        """Its KV was given up. The row, or None if the id is not ours."""
        session = self.by_id.get(session_id)
        if session is None:
            return None
        self._forget_kv(session)
        return session.row

    def take_unannounced(self) -> list[Session]:
        taken, self._unannounced = self._unannounced, []
        for session in taken:
            session.announced = True
        return taken

    def take_ended(self) -> list[SessionEnd]:
        taken, self._ended = self._ended, []
        return taken

    def take_ended_for_ranks(self) -> list[int]:
        taken, self._ended_for_ranks = self._ended_for_ranks, []
        return taken

    def committed(self, step: int) -> None:
        """Rows that no uncommitted step mentions can be used again."""
        while self._leaving and self._leaving[0][0] <= step:
            self._free.append(self._leaving.popleft()[1])

    def _forget_kv(self, session: Session) -> None:
        self.epoch += 1
        row = session.row
        self.kv_life[row] = self.epoch
        self.computed[row] = self.in_flight[row] = 0
        session.table_lengths.clear()

    def _new_row(self) -> int:
        row, self._rows = self._rows, self._rows + 1
        if row >= len(self.emitted):
            more = np.zeros(max(64, len(self.emitted)), np.int64)
            for name in _COLUMNS:
                setattr(self, name, np.concatenate([getattr(self, name), more]))
        return row
