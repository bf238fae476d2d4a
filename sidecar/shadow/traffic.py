"""Lets users' requests go first."""

import asyncio

from sidecar.shadow.engine import EngineLoad, ShadowEngine


class TrafficGate:
    """Holds replays back while the engine has requests waiting.

    Shadow requests that wait count too: they wait only where the engine is full. Can miss: an
    engine that reports no load (`watched` stays False), and what arrives after the look.
    """

    def __init__(self, engine: ShadowEngine, *, max_waiting: int, poll_s: float) -> None:
        self._engine = engine
        self._max_waiting = max_waiting
        self._poll_s = poll_s
        # One look at a time, whatever the number of replays that want to start.
        self._lock = asyncio.Lock()
        self.last: EngineLoad | None = None
        self.watched = False

    async def passed(self, *, timeout_s: float) -> None:
        """Returns once a replay may start. The caller bounds the whole wait.

        Raises what `ShadowEngine.load` raises; one look takes at most `timeout_s`.
        """
        while True:
            async with self._lock:
                self.last = await self._engine.load(timeout_s=timeout_s)
            self.watched = self.watched or self.last is not None
            if self.last is None or self.last.waiting <= self._max_waiting:
                return
            await asyncio.sleep(self._poll_s)
