"""Who watches, and what each of them still has to be told."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.ports import StatusChanged, WatchEvent


class TooManyWatchersError(Exception):
    """The limit on watch streams is reached."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} watchers are open, the limit (watchers_limit)")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Missed:
    """So many events were dropped here."""

    count: int


def worker_of(event: WatchEvent) -> str:
    """The worker that an event is about."""
    return event.worker


class Watcher:
    """One watcher's queue. When it is full the oldest events give way and are counted."""

    def __init__(self, worker: str, capacity: int, on_missed: Callable[[], None]) -> None:
        self._worker = worker
        self._capacity = capacity
        self._on_missed = on_missed
        self._events: deque[WatchEvent] = deque()
        self._missed = 0
        self._wake = asyncio.Event()

    def offer(self, event: WatchEvent) -> None:
        """Queues an event of the watched worker."""
        if self._worker and worker_of(event) != self._worker:
            return
        if isinstance(event, StatusChanged) and event in self._events:
            # The status is read when it is sent: one entry stands for all.
            return
        if len(self._events) >= self._capacity:
            self._events.popleft()
            self._missed += 1
            self._on_missed()
        self._events.append(event)
        self._wake.set()

    async def next(self) -> WatchEvent | Missed:
        """The next event; before it, if some were dropped, how many."""
        while True:
            if self._missed:
                missed, self._missed = self._missed, 0
                return Missed(missed)
            if self._events:
                return self._events.popleft()
            self._wake.clear()
            await self._wake.wait()


class WatchHub:
    """All watchers."""

    def __init__(self, *, limit: int, capacity: int, on_missed: Callable[[], None]) -> None:
        self._limit = limit
        self._capacity = capacity
        self._on_missed = on_missed
        self._watchers: set[Watcher] = set()

    def open(self, worker: str) -> Watcher:
        """A watcher of one worker; empty: of all.

        Raises:
            TooManyWatchersError: the limit is reached.

        """
        if len(self._watchers) >= self._limit:
            raise TooManyWatchersError(self._limit)
        watcher = Watcher(worker, self._capacity, self._on_missed)
        self._watchers.add(watcher)
        return watcher

    def close(self, watcher: Watcher) -> None:
        """Forgets a watcher."""
        self._watchers.discard(watcher)

    def publish(self, event: WatchEvent) -> None:
        """Tells every watcher."""
        for watcher in self._watchers:
            watcher.offer(event)
