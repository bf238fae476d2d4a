"""Noticing that the device stood still although the process did not.

A driver's checkpoint (lock, checkpoint, restore, unlock from outside) freezes only calls into
the device: threads go on polling, and no sign of theirs shows it. What shows is a step whose
outcome comes too late. Pure but for the clock: one reading per launch and per outcome.

Can miss: a freeze shorter than what is suspected, and one while no step ran. Only who froze the
device can tell of it then.
"""

import time
from collections import deque
from collections.abc import Callable

# Compilation and warm-up make the first steps slow.
WARM_UP_STEPS = 64


class StallWatch:
    """Of one scheduler. Times in ns. Steps are told in the order of their launch."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._launched: deque[int | None] = deque()
        # Until here the device was busy with earlier steps, or the engine's thread with us.
        self._busy_until: int | None = None
        self._outcomes = 0

    def launch(self) -> None:
        """A step is about to run."""
        self._launched.append(self._clock())

    def launch_with_attestation(self) -> None:
        """A step is about to run before which the ranks read their memory: it is not measured."""
        self._launched.append(None)

    def outcome(self) -> int:
        """The oldest step has its outcome. How long the device took for it alone; 0 where that
        says nothing: not measured, warm-up, or a clock that went back (another machine's).
        """
        now = self._clock()
        began = self._launched.popleft()
        before, self._busy_until = self._busy_until, now
        self._outcomes += 1
        if began is None or self._outcomes <= WARM_UP_STEPS:
            return 0
        return max(now - (began if before is None else max(began, before)), 0)

    def held(self) -> None:
        """The engine's thread attested, or was held: what ran beside that is not late."""
        self._busy_until = self._clock()
