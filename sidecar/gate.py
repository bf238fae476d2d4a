"""Whether a worker may be given traffic.

The rule, for each worker by itself:

- A worker that is not *whole* (scheduler and every rank attached and heard of) is closed: a
  part of it cannot be judged. So a worker starts closed and opens when its last rank attaches.
- From the moment in which a restore is noticed it is closed, until a verification of that
  restore, or of a later one, ends in a pass.
- A verdict that is not a pass leaves it closed until a later verification passes. That it
  reattaches, or that the sidecar restarts, opens nothing.

Pure: no clock, no I/O. Whoever wants to follow it waits on `changes`.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.changes import Changes


class GatePosition(enum.Enum):
    """What a verification decides about a worker's gate."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class GateState:
    """One worker's gate. `reason` is empty exactly when `open`."""

    open: bool
    reason: str


@dataclass(slots=True)
class _Gate:
    missing: str = "no source attached yet"
    distrust: str = ""
    generation: int = 0


class GateBoard:
    """The gates of all workers."""

    def __init__(self, on_change: Callable[[str, GateState], None] | None = None) -> None:
        self._gates: dict[str, _Gate] = {}
        self._on_change = on_change
        self.changes = Changes()

    def state(self, worker: str) -> GateState | None:
        """The gate of a worker; None for one that was never seen."""
        gate = self._gates.get(worker)
        if gate is None:
            return None
        # A failed judgement says more than an absence: it comes first.
        reason = gate.distrust or gate.missing
        return GateState(open=not reason, reason=reason)

    def states(self) -> dict[str, GateState]:
        """All gates by worker."""
        return {
            worker: state for worker in self._gates if (state := self.state(worker)) is not None
        }

    def overall(self) -> GateState:
        """Open if there is a worker and every gate is open."""
        if not self._gates:
            return GateState(open=False, reason="no worker has attached")
        closed = [
            f"{name}: {state.reason}" for name, state in self.states().items() if state.reason
        ]
        return GateState(open=not closed, reason="; ".join(closed))

    def note_missing(self, worker: str, missing: str) -> None:
        """Says which sources of the worker are not there; empty: it is whole."""
        self._alter(worker, lambda gate: setattr(gate, "missing", missing))

    def suspect(self, worker: str, generation: int, reason: str) -> None:
        """Closes the gate because a restore, `generation`, was noticed and is not judged yet."""

        def close(gate: _Gate) -> None:
            gate.generation = max(gate.generation, generation)
            gate.distrust = reason

        self._alter(worker, close)

    def decide(self, worker: str, generation: int, position: GatePosition, reason: str) -> bool:
        """Takes a verification's decision about restore `generation`.

        Returns False, and changes nothing, when the worker was restored again since: what was
        found about older memory says nothing about today's.
        """
        gate = self._gates.get(worker)
        if gate is not None and generation < gate.generation:
            return False

        def set_distrust(gate: _Gate) -> None:
            gate.generation = generation
            closed = position is GatePosition.CLOSED
            gate.distrust = (reason or "closed without a reason") if closed else ""

        self._alter(worker, set_distrust)
        return True

    def forget(self, worker: str) -> None:
        """Drops a worker that is gone for good."""
        if self._gates.pop(worker, None) is not None:
            self.changes.notify()

    def _alter(self, worker: str, change: Callable[[_Gate], None]) -> None:
        before = self.state(worker)
        change(self._gates.setdefault(worker, _Gate()))
        after = self.state(worker)
        if after is None or after == before:
            return
        if self._on_change is not None:
            self._on_change(worker, after)
        self.changes.notify()
