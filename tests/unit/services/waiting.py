"""Waiting for something to become true, with a bound."""

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - any condition, told by nobody
            await asyncio.sleep(0.005)
