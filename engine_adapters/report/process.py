"""What tells one life of a process from another, read without keeping anything open."""

import os
import socket
import time
from dataclasses import dataclass

from tokenwitness.v1 import recorder_pb2 as pb

# A reading of two clocks that took longer than this says nothing about their distance.
_SLOPPY_READING_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Fields that could not be read are 0 or empty, and then prove nothing."""

    pid: int
    start_ticks: int
    boot_id: str
    host: str
    # Real clock less monotonic clock; 0: not known.
    clock_distance_ns: int

    def encode(self) -> pb.ProcessIdentity:
        return pb.ProcessIdentity(
            pid=self.pid,
            start_ticks=self.start_ticks,
            boot_id=self.boot_id,
            host=self.host,
            clock_distance_ns=self.clock_distance_ns,
        )


def read_process() -> ProcessIdentity:
    """The process as it is now. Never raises; takes some tens of microseconds."""
    return ProcessIdentity(
        pid=os.getpid(),
        start_ticks=_start_ticks(),
        boot_id=_read("/proc/sys/kernel/random/boot_id").strip(),
        host=socket.gethostname(),
        clock_distance_ns=_clock_distance_ns(),
    )


def thread_busy_ns() -> int:
    """How long the calling thread ran or waited for a processor so far; neither grows while it
    sleeps or is frozen. 0: the kernel does not tell.
    """
    fields = _read("/proc/thread-self/schedstat").split()
    try:
        return int(fields[0]) + int(fields[1])
    except (IndexError, ValueError):
        return 0


def _read(path: str) -> str:
    # Closed before anything else happens: an open file under /proc can fail a dump.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 4096).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _start_ticks() -> int:
    # The name of the program (field 2) may hold spaces and brackets: count from its end.
    fields = _read("/proc/self/stat").rpartition(")")[2].split()
    try:
        return int(fields[19])
    except (IndexError, ValueError):
        return 0


def _clock_distance_ns() -> int:
    for _ in range(3):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if 0 <= after - before < _SLOPPY_READING_NS:
            return real - before
    return 0
