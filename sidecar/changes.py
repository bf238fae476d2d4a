"""Waiting for shared state of one event loop to change, always with a bound."""

import asyncio
from collections.abc import Callable


class Changes:
    """Wakes those that wait for a condition over state that somebody else alters.

    Whoever alters the state calls `notify`, from the loop's own thread. There is nothing
    queued: a waiter sees the newest state and may miss those in between.
    """

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Makes every waiter look again."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` became true within `timeout_s` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            left = deadline - loop.time()
            if left <= 0:
                return False
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)
        return True
