"""How the ledger replays: payload bytes into core events, core events into states."""

from collections.abc import Callable
from typing import Protocol

from sidecar.core.errors import RecordError, SnapshotCorrupt
from sidecar.core.events import (
    Commit,
    Event,
    Hole,
    Launch,
    RankStep,
    SourceKind,
    WeightDigests,
    Witness,
)
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState

from .values import SourceEntry

State = SchedulerState | RankState
# Raises ValueError (or a subclass) for bytes that are no record.
Decoder = Callable[[bytes], Event]

REPLAY_ERRORS = (RecordError, SnapshotCorrupt, ValueError)


class Fold(Protocol):
    """Makes, advances and restores the state of one source."""

    def empty(self) -> State: ...

    def load(self, data: bytes) -> State: ...

    def apply(self, state: State, payload: bytes, witness: Witness) -> Event: ...


class CoreFold:
    """The fold of the core, for one source."""

    def __init__(self, entry: SourceEntry, decode: Decoder) -> None:
        self._entry = entry
        self._decode = decode

    @property
    def _scheduler(self) -> bool:
        return self._entry.key.kind is SourceKind.SCHEDULER

    def empty(self) -> State:
        if self._scheduler:
            return SchedulerState()
        return RankState(self._entry.description.kv_groups)

    def load(self, data: bytes) -> State:
        """Raises SnapshotCorrupt."""
        return SchedulerState.from_bytes(data) if self._scheduler else RankState.from_bytes(data)

    def apply(self, state: State, payload: bytes, witness: Witness) -> Event:
        """Advances the state by one record and returns it. Raises one of REPLAY_ERRORS."""
        event = self._decode(payload)
        if isinstance(state, SchedulerState):
            if not isinstance(event, Launch | Commit | Hole):
                raise ValueError(f"a {type(event).__name__} is no record of a scheduler")  # noqa: TRY004 - bad data
            state.apply(event, witness)
        else:
            if not isinstance(event, RankStep | Hole | WeightDigests):
                raise ValueError(f"a {type(event).__name__} is no record of a rank")  # noqa: TRY004 - bad data
            state.apply(event, witness)
        return event


def boundary(state: State) -> tuple[int, int]:
    """(launched, committed); of a rank its step twice."""
    if isinstance(state, SchedulerState):
        return state.boundary
    return state.step, state.step
