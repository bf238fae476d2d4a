"""What operators and orchestrators are shown: marks and sessions in flight, as values."""

import enum
from dataclasses import dataclass

from sidecar.core.events import Sampling
from sidecar.core.sessions import Session


class MarkOutcome(enum.IntEnum):
    UNSPECIFIED = 0
    PREPARED = 1
    TAKEN = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """A named boundary. `last_step` is the newest step that the image can hold, 0 until the mark
    is completed. Times are unix nanoseconds, 0: not yet.
    """

    name: str
    worker: str
    incarnation: str
    generation: int
    step: int
    last_step: int = 0
    sessions: int = 0
    made_unix_ns: int = 0
    completed_unix_ns: int = 0
    outcome: MarkOutcome = MarkOutcome.PREPARED
    image: str = ""


class SessionOrigin(enum.Enum):
    USER = "user"
    # A replay of the verifier's own.
    SHADOW = "shadow"


@dataclass(frozen=True, slots=True)
class SessionStatus:
    session_id: str
    emitted: int
    computed: int
    in_flight: int
    prompt_length: int
    last_step: int
    sampling: Sampling
    origin: SessionOrigin = SessionOrigin.USER


def session_status(session: Session, origin: SessionOrigin) -> SessionStatus:
    """Where a live session stands now."""
    return SessionStatus(
        session_id=session.session_id,
        emitted=session.emitted,
        computed=session.computed,
        in_flight=session.in_flight,
        prompt_length=session.prompt_length,
        last_step=session.last_step,
        sampling=session.sampling,
        origin=origin,
    )
