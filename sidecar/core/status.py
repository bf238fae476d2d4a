"""What operators are shown of sessions in flight, as values."""

import enum
from dataclasses import dataclass

from sidecar.core.events import Sampling
from sidecar.core.sessions import Session


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
