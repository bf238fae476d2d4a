"""What a worker has in flight right now, folded from its scheduler's records as they come."""

from collections.abc import Iterable
from contextlib import suppress

from sidecar.core.errors import RecordError
from sidecar.core.events import Commit, Hole, Launch, SchedulerAttestation
from sidecar.core.scheduler_state import SchedulerState
from sidecar.core.sessions import Session


class LiveSessions:
    """The newest scheduler state of a worker.

    `stale` says why the state cannot be used, empty if it can. A stale state has to be
    replaced from the ledger before the next record is folded.
    """

    def __init__(self) -> None:
        self.state = SchedulerState()
        self.stale = ""
        # Tokens committed since the worker was seen first, by this process.
        self.committed_tokens = 0

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Live sessions by row; empty where they are not known."""
        return tuple(self.state.sessions.values())

    @property
    def unknown(self) -> str:
        """Why sessions are not known; empty: they are."""
        return self.stale or self.state.broken or ""

    def fold(self, event: Launch | Commit | Hole) -> None:
        """Advances by one record.

        Raises:
            RecordError: the record contradicts the ones before it. The state is stale then.

        """
        try:
            self.state.apply(event)
        except RecordError as error:
            self.stale = str(error)
            raise
        if isinstance(event, Commit):
            self.committed_tokens += len(event.tokens)

    def heal(self, attestation: SchedulerAttestation) -> None:
        """Goes on from what memory holds, where records are missing. `attestation` came right
        after the newest record. Leaves the state broken where it does not fit.
        """
        if self.state.broken is None or self.stale:
            return
        with suppress(RecordError):
            self.state = self.state.rebased(attestation)

    def lose(self, why: str) -> None:
        """Goes on without knowing any session, following steps only."""
        state = SchedulerState()
        state.apply(Hole(count=1, first_step=0, last_step=0, reason=why))
        self.replace(state)

    def replace(self, state: SchedulerState) -> None:
        """Goes on from a state that the ledger gave."""
        self.state = state
        self.stale = ""


def user_sessions(sessions: Iterable[Session], shadow_ids: Iterable[str]) -> list[Session]:
    """The sessions that are not replays of the sidecar's own."""
    own = set(shadow_ids)
    return [session for session in sessions if session.session_id not in own]
