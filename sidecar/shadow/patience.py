"""How long a replay waits for an engine."""

import asyncio
from types import TracebackType
from typing import Self

from sidecar.shadow.errors import EngineFrozen


class Patience:
    """Bounds a whole exchange and the silence inside it. Expiry raises EngineFrozen."""

    def __init__(self, total_s: float, stall_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = self._last = self._loop.time()
        self._end = self._start + total_s
        self._stall_s = stall_s
        self._tokens = 0
        self._timeout = asyncio.timeout_at(min(self._end, self._start + stall_s))

    @property
    def left_s(self) -> float:
        return max(self._end - self._loop.time(), 0.001)

    def received(self, tokens: int) -> None:
        self._tokens += tokens
        self.alive()

    def alive(self) -> None:
        """Silence is counted from now on. Not for keep-alives: a frozen engine sends them too."""
        if not self._timeout.expired():
            self._last = self._loop.time()
            self._timeout.reschedule(min(self._end, self._last + self._stall_s))

    def pause(self) -> None:
        """Until `alive`, only the whole exchange is bounded: we wait, not the engine."""
        if not self._timeout.expired():
            self._timeout.reschedule(self._end)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            now = self._loop.time()
            raise EngineFrozen(
                silent_s=now - self._last, total_s=now - self._start, tokens_received=self._tokens
            ) from None
