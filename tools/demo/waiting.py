"""Bounded waits."""

import time
from collections.abc import Callable
from typing import TypeVar

from tools.demo.errors import DeadlineError

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T | None], what: str, timeout_s: float, interval_s: float = 0.05
) -> T:
    """The first truthy value of `condition`. DeadlineError after `timeout_s`, naming `what`."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise DeadlineError(f"{what}: not within {timeout_s:g} s")
        time.sleep(interval_s)
