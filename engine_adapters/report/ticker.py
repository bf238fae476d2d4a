"""A thread that keeps ticking across a restore."""

import ctypes
import threading
from collections.abc import Callable

from engine_adapters.report.log import note_error

TICK_US = 50_000


class Ticker:
    """Calls `on_tick` about every 50 ms until stopped.

    It sleeps in the C library by a span, not until a moment: Python's waits have a deadline on
    the monotonic clock, and a process that is restored on a machine whose clock is days behind
    would sleep for days. A restore interrupts this one, or it runs its span.
    """

    def __init__(self, on_tick: Callable[[], None]) -> None:
        self._on_tick = on_tick
        self._stopped = threading.Event()
        self._sleep = ctypes.CDLL(None).usleep

    def start(self) -> None:
        threading.Thread(target=self._run, name="tokenwitness-ticker", daemon=True).start()

    def stop(self) -> None:
        """It ends within a tick."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._on_tick()
            except Exception as error:  # noqa: BLE001 - without it nothing notices a restore when idle
                note_error("ticker", error)
            self._sleep(TICK_US)
