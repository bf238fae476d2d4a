"""Attestations that this source owes, who takes them, and the release that a hold waits for.

An attestation is taken by the engine's thread at a step boundary, or, when no boundary comes,
read by the reporter's own thread (idle). The engine's thread always wins: what was being read
idle is thrown away when it comes. Pure but for its lock. Thread safe.
"""

import enum
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine_adapters.report.attestations import DueAttestation, Origin

_HIGHEST_BIT = 1 << 63
# Requests beyond this that nobody served are answered with an error.
MOST_REQUESTS = 8


def sign_attest_id() -> int:
    """An id for the attestation that belongs to a sign: highest bit set."""
    return _HIGHEST_BIT | secrets.randbits(63)


class Release(enum.Enum):
    """What the sidecar said about the attestation that is held for."""

    NONE = "none"
    GO = "go"
    STAY = "stay"


@dataclass(slots=True)
class _Duty:
    due: DueAttestation
    # Monotonic seconds: when idle reading may begin, and when the request is given up.
    idle_at: float
    expires: float
    reading: bool = field(default=False)


class Duties:
    """Times are seconds of one monotonic clock, as the caller reads it."""

    def __init__(self, idle_after_s: float) -> None:
        self._idle_after_s = idle_after_s
        self._lock = threading.Lock()
        self.changed = threading.Condition(self._lock)
        self._waiting: list[_Duty] = []
        # Attested idle and still to be held for at the next boundary.
        self._to_hold: DueAttestation | None = None
        self._held_id = 0
        self._release = Release.NONE
        # Read without the lock on the engine's fast path.
        self.attention = False

    def sign(self, attest_id: int, *, hold: bool, now: float) -> None:
        """A sign was seen: owed first, and what an earlier sign asked for is void."""
        due = DueAttestation(attest_id, weights=True, hold=hold, origin=Origin.SIGN)
        with self.changed:
            self._waiting = [d for d in self._waiting if d.due.origin is not Origin.SIGN]
            # Time that passed while the process did not run is nobody's delay.
            for duty in self._waiting:
                duty.idle_at = now + self._idle_after_s
            self._waiting.insert(0, _Duty(due, now + self._idle_after_s, float("inf")))
            self._to_hold = None
            self._held_id, self._release = (attest_id if hold else 0), Release.NONE
            self._note()

    def request(self, attest_id: int, *, weights: bool, limit_s: float, now: float) -> bool:
        """The sidecar asks. False if there are too many requests already; asking twice for the
        same id changes nothing.
        """
        due = DueAttestation(attest_id, weights=weights, hold=False, origin=Origin.REQUEST)
        with self.changed:
            if any(duty.due.attest_id == attest_id for duty in self._waiting):
                return True
            if len(self._waiting) >= MOST_REQUESTS:
                return False
            self._waiting.append(_Duty(due, now + self._idle_after_s, now + limit_s))
            self._note()
            return True

    def take(self) -> DueAttestation | None:
        """What the engine's thread has to do now; it is the engine's from here on."""
        with self.changed:
            if self._waiting:
                due = self._waiting.pop(0).due
                self._note()
                return due
            due_hold, self._to_hold = self._to_hold, None
            self._note()
            return due_hold

    def idle_begin(self, now: float) -> DueAttestation | None:
        """What the reporter's own thread may read now, one at a time."""
        with self.changed:
            if any(duty.reading for duty in self._waiting):
                return None
            for duty in self._waiting:
                if duty.idle_at <= now:
                    duty.reading = True
                    return duty.due
            return None

    def idle_end(self, due: DueAttestation) -> bool:
        """It was read. False: the engine's thread took it over, throw it away."""
        with self.changed:
            for duty in self._waiting:
                if duty.due == due and duty.reading:
                    self._waiting.remove(duty)
                    if due.hold and self._release is not Release.GO:
                        self._to_hold = replace(due, attested=True)
                    self._note()
                    return True
            return False

    def idle_later(self, due: DueAttestation, now: float) -> None:
        """It could not be read safely; to be tried again."""
        with self.changed:
            for duty in self._waiting:
                if duty.due == due:
                    duty.reading = False
                    duty.idle_at = now + self._idle_after_s

    def expired(self, now: float) -> Sequence[DueAttestation]:
        """Requests that nobody served in time; they are no longer owed."""
        with self.changed:
            late = [duty for duty in self._waiting if duty.expires <= now]
            for duty in late:
                self._waiting.remove(duty)
            self._note()
            return [duty.due for duty in late]

    def released(self, attest_id: int, *, go: bool) -> None:
        """The sidecar's answer to the hold; an answer to another one changes nothing."""
        with self.changed:
            if not attest_id or attest_id != self._held_id:
                return
            self._release = Release.GO if go else Release.STAY
            if go:
                self._to_hold = None
            self._note()

    def hold_state(self, attest_id: int) -> Release | None:
        """The answer so far; None: another sign took its place. Call with `changed` held."""
        return self._release if attest_id == self._held_id else None

    def hold_over(self, attest_id: int) -> None:
        """The engine goes on."""
        with self.changed:
            if attest_id == self._held_id:
                self._held_id = 0

    @property
    def holding_for(self) -> int:
        """Attest id that is or will be held for; 0: none."""
        return self._held_id

    def _note(self) -> None:
        self.attention = bool(self._waiting) or self._to_hold is not None
        self.changed.notify_all()
