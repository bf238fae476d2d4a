"""Tokens that restored sessions emit, followed while records come in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sidecar.core.scheduler_state import SchedulerState
from sidecar.core.sessions import Session
from sidecar.registry import WorkerRuntime


@dataclass(frozen=True, slots=True)
class Followed:
    """All tokens of one session as last seen; `ended`: there will be no more."""

    tokens: tuple[int, ...]
    ended: bool


class Follower:
    """Follows sessions through the worker's live state, beyond their end.

    A session object keeps the tokens of its last step after the state dropped it. Where the
    live state was replaced in between (a rollback, a hole), what was followed in the old one no
    longer counts.
    """

    def __init__(self, session_ids: Iterable[str]) -> None:
        self._ids = frozenset(session_ids)
        self._seen: dict[str, tuple[SchedulerState, Session]] = {}
        self._state: SchedulerState | None = None

    def look(self, worker: WorkerRuntime) -> None:
        """Takes note of the sessions that are live now."""
        if worker.live.unknown:
            return
        state = worker.live.state
        self._state = state
        for session in state.sessions.values():
            if session.session_id in self._ids:
                self._seen[session.session_id] = (state, session)

    def progressed(self, worker: WorkerRuntime, wanted: Mapping[str, int]) -> bool:
        """Whether each session has emitted so many tokens (prompt included) or has ended."""
        self.look(worker)
        return all(
            followed is not None and (followed.ended or len(followed.tokens) >= count)
            for session_id, count in wanted.items()
            for followed in (self._of(session_id),)
        )

    def emitted(self, session_id: str) -> Followed | None:
        """What is known of a session; None: it was never seen live."""
        return self._of(session_id)

    def _of(self, session_id: str) -> Followed | None:
        seen = self._seen.get(session_id)
        if seen is None or seen[0] is not self._state:
            return None
        state, session = seen
        ended = state.sessions.get(session.row) is not session
        return Followed(tuple(session.tokens), ended)
