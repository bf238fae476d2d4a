"""Noticing that this process is not where it was.

Two signs: the process was *re-created* (its start time or the machine's boot id changed: CRIU,
a moved container), or it *stood still* (nothing in it ran for longer than `suspect_after`: a
freezer, a stopped process; or the real clock ran away from the monotonic one: a resumed virtual
machine).

A sign is a question, not a verdict: a wrong one costs an attestation, a missed one costs the
proof. So a gap counts as standing still unless the processor time used in it proves that this
process ran: were it frozen for `suspect_after`, it could not have used more than all processors
for the rest of the gap. That clears a thread that computed under Python's own lock; it cannot
clear one that slept under it.

Can miss: a freeze shorter than `suspect_after` that did not re-create the process.
"""

import enum
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.process import ProcessIdentity, read_process

# Polls closer together than this cannot have a dump between them.
QUIET_NS = 20_000_000


class SignKind(enum.Enum):
    RECREATED = "process_recreated"
    STOOD_STILL = "stood_still"

    def encode(self) -> pb.SignKind:
        if self is SignKind.RECREATED:
            return pb.SIGN_KIND_PROCESS_RECREATED
        return pb.SIGN_KIND_STOOD_STILL


@dataclass(frozen=True, slots=True)
class SignSeen:
    kind: SignKind
    # How long the process stood still by the monotonic clock; 0: not known.
    gap_ns: int
    process: ProcessIdentity
    # Signs seen so far, this one included.
    count: int


class SignWatch:
    """Polled by every thread of a reporter; the engine's too. Thread safe.

    Some thread must poll at least each 50 ms, or idleness reads as standing still.
    `on_sign` is called by the thread that saw the sign, once, and before any other thread's
    `poll` returns: nobody passes a restore unnoticed.
    """

    def __init__(
        self,
        suspect_after_ms: int,
        on_sign: Callable[[SignSeen], None],
        *,
        read: Callable[[], ProcessIdentity] = read_process,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_time: Callable[[], int] = time.process_time_ns,
        cpus: int | None = None,
    ) -> None:
        self._suspect_after_ns = suspect_after_ms * 1_000_000
        self._on_sign = on_sign
        self._read = read
        self._clock = clock
        self._cpu_time = cpu_time
        self._cpus = cpus or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._count = 0
        self.begin()

    def begin(self) -> None:
        """Takes the process as it is now for what it should be: nobody polled before."""
        with self._lock:
            self._process = self._read()
            self._cpu_used = self._cpu_time()
            # Last poll by anyone; and last look at /proc, only written under the lock.
            self._polled = self._looked = self._clock()

    @property
    def process(self) -> ProcessIdentity:
        """The process as last looked at."""
        return self._process

    @property
    def count(self) -> int:
        """Signs seen so far."""
        return self._count

    def suspect_after(self, milliseconds: int) -> None:
        """Changes what counts as standing still."""
        self._suspect_after_ns = milliseconds * 1_000_000

    def poll(self) -> SignSeen | None:
        """The sign, to the caller that is the first to see it. Well under a microsecond unless
        nobody polled for 20 ms.
        """
        now = self._clock()
        # The clock of another machine may be behind this one's: backwards is a gap too.
        if 0 <= now - self._polled <= QUIET_NS:
            self._polled = now
            return None
        with self._lock:
            if 0 <= self._clock() - self._looked <= QUIET_NS:
                return None
            return self._look()

    def _look(self) -> SignSeen | None:
        now = self._clock()
        # A slower thread may have written an older poll: the look is the floor.
        gap = now - max(self._polled, self._looked)
        window = now - self._looked
        found = self._read()
        used = self._cpu_time()
        kind, still_ns = self._judge(found, gap, window, used - self._cpu_used)
        self._process, self._cpu_used = _known(found, self._process), used
        sign = None
        if kind is not None:
            self._count += 1
            sign = SignSeen(kind, still_ns, found, self._count)
            self._on_sign(sign)
        # Only now may other threads pass.
        self._looked = self._polled = self._clock()
        return sign

    def _judge(
        self, found: ProcessIdentity, gap: int, window: int, cpu_used: int
    ) -> tuple[SignKind | None, int]:
        known = self._process
        if found.boot_id and known.boot_id and found.boot_id != known.boot_id:
            # Monotonic clocks of two machines have no common origin.
            return SignKind.RECREATED, 0
        if found.start_ticks and known.start_ticks and found.start_ticks != known.start_ticks:
            return SignKind.RECREATED, max(gap, 0)
        if gap > self._suspect_after_ns:
            most_if_frozen = self._cpus * max(window - self._suspect_after_ns, 0)
            if cpu_used <= most_if_frozen:
                return SignKind.STOOD_STILL, gap
        if found.clock_distance_ns and known.clock_distance_ns:
            ahead = found.clock_distance_ns - known.clock_distance_ns
            if ahead > self._suspect_after_ns:
                return SignKind.STOOD_STILL, ahead
        return None, 0


def _known(found: ProcessIdentity, before: ProcessIdentity) -> ProcessIdentity:
    """What was found; where it could not be read, what was known before."""
    return replace(
        found,
        start_ticks=found.start_ticks or before.start_ticks,
        boot_id=found.boot_id or before.boot_id,
        clock_distance_ns=found.clock_distance_ns or before.clock_distance_ns,
    )
