"""The clocks that the services read, injected so that tests can turn them."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """`monotonic` in seconds for waiting, `unix_ns` in nanoseconds for records."""

    monotonic: Callable[[], float] = time.monotonic
    unix_ns: Callable[[], int] = time.time_ns
