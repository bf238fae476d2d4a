"""How long to wait before the next attempt to reach the sidecar."""

import random


class Backoff:
    """Doubles from `first_s` to `most_s`; each wait is drawn between half of that and all of it,
    so that the sources of a worker do not knock in step. Never gives up.
    """

    def __init__(self, first_s: float = 0.1, most_s: float = 5.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def reset(self) -> None:
        """The last attempt worked."""
        self._next_s = self._first_s

    def next_wait(self) -> float:
        """Seconds."""
        wait = self._next_s
        self._next_s = min(2 * wait, self._most_s)
        return random.uniform(wait / 2, wait)  # noqa: S311 - spreads load, guards nothing
