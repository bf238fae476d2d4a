"""The driver's checkpoint API for one process, by pid: lock, checkpoint, restore, unlock.

Calls libcuda from a process that holds no device memory. cuCheckpointProcess* are in drivers
570 and later.
"""

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LOCK_TIMEOUT_MS = 30_000


class DriverError(Exception):
    """A call of the driver failed; the text has the call and the driver's name of the error."""


class _LockArguments(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


@dataclass
class DriverCheckpoint:
    """One process. `seconds` has each call's duration by its name."""

    pid: int
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._check("init", self._driver.cuInit(0))

    def suspend(self) -> None:
        """Locks the process's CUDA calls and moves its device memory to the host."""
        arguments = _LockArguments(LOCK_TIMEOUT_MS)
        self._timed(
            "lock",
            lambda: self._driver.cuCheckpointProcessLock(self.pid, ctypes.byref(arguments)),
        )
        self._timed(
            "checkpoint", lambda: self._driver.cuCheckpointProcessCheckpoint(self.pid, None)
        )

    def resume(self) -> None:
        """Moves device memory back and lets CUDA calls go on."""
        self._timed("restore", lambda: self._driver.cuCheckpointProcessRestore(self.pid, None))
        self._timed("unlock", lambda: self._driver.cuCheckpointProcessUnlock(self.pid, None))

    def _timed(self, what: str, call: Callable[[], int]) -> None:
        began = time.monotonic()
        result = call()
        self.seconds[what] = round(time.monotonic() - began, 3)
        self._check(what, result)

    def _check(self, what: str, result: int) -> None:
        if result == 0:
            return
        name = ctypes.c_char_p()
        self._driver.cuGetErrorName(result, ctypes.byref(name))
        raise DriverError(f"{what} of process {self.pid}: {(name.value or b'?').decode()}")
