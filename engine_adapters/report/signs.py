"""Noticing that this process is not where it was.

Two signs: the process was *re-created* (its start time or the machine's boot id changed: CRIU,
a moved container), or it *stood still* (nothing in it ran for longer than `suspect_after`: a
freezer, a stopped process; or the real clock ran away from the monotonic one: a resumed virtual
machine).

A sign is a question, not a verdict: a wrong one costs an attestation, a missed one costs the
proof. So a gap counts as standing still unless it is proved that it held no freeze of
`suspect_after`. With such a freeze in it
 - the thread that polls can have run, or waited for a processor, only for the rest of the time
   since it last looked: more clears a machine so loaded that nobody got to poll;
 - all processors together can have worked for the process only for the rest of the gap: more
   clears a thread that computed under Python's own lock.
What slept under that lock (a read from a slow disk) is not cleared.

Can miss: a freeze shorter than `suspect_after` that did not re-create the process.
"""

import enum
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.process import ProcessIdentity, read_process, thread_busy_ns

# Polls closer together than this cannot have a dump between them.
QUIET_NS = 20_000_000
# Threads whose time is remembered; those that ended are forgotten with the rest.
MOST_THREADS = 64


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


@dataclass(frozen=True, slots=True)
class _Sample:
    """Time spent up to a moment between two readings of the clock, ns."""

    begun: int
    spent: int
    ended: int


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
        busy: Callable[[], int] = thread_busy_ns,
        cpus: int | None = None,
    ) -> None:
        self._suspect_after_ns = suspect_after_ms * 1_000_000
        self._on_sign = on_sign
        self._read = read
        self._clock = clock
        self._cpu_time = cpu_time
        self._busy = busy
        # By thread, from when it looked last.
        self._threads: dict[int, _Sample] = {}
        self._cpus = cpus or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._count = 0
        # When the newest sign was seen. None: never.
        self._signed: int | None = None
        self.begin()

    def begin(self) -> None:
        """Takes the process as it is now for what it should be: nobody polled before."""
        with self._lock:
            self._process = self._read()
            self._worked = self._sample(self._cpu_time)
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

    @property
    def suspect_after_ns(self) -> int:
        """What counts as standing still."""
        return self._suspect_after_ns

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

    def stood_still(self, gap_ns: int) -> SignSeen | None:
        """Somebody else knows that what it waited for stood still for the last `gap_ns`. None:
        a sign that was seen meanwhile has told of it.
        """
        with self._lock:
            if self._look() is not None:
                return None
            now = self._clock()
            if self._signed is not None and now - self._signed <= gap_ns:
                return None
            return self._sign(SignKind.STOOD_STILL, gap_ns, self._process)

    def _look(self) -> SignSeen | None:
        now = self._clock()
        # A slower thread may have written an older poll: the look is the floor.
        gap = now - max(self._polled, self._looked)
        found = self._read()
        # Both are asked each time: each remembers where it stood.
        awake = [self._thread_was_awake(), self._process_was_awake()]
        kind, still_ns = self._judge(found, gap, awake=any(awake))
        self._process = _known(found, self._process)
        sign = None
        if kind is not None:
            sign = self._sign(kind, still_ns, found)
        # Only now may other threads pass.
        self._looked = self._polled = self._clock()
        return sign

    def _sign(self, kind: SignKind, still_ns: int, process: ProcessIdentity) -> SignSeen:
        self._count += 1
        sign = SignSeen(kind, still_ns, process, self._count)
        self._on_sign(sign)
        self._signed = self._clock()
        return sign

    def _thread_was_awake(self) -> bool:
        """The calling thread was busy for too long to have been frozen since it last looked."""
        if len(self._threads) >= MOST_THREADS:
            self._threads.clear()
        me = threading.get_ident()
        before, now = self._threads.get(me), self._sample(self._busy)
        self._threads[me] = now
        return before is not None and self._was_awake(before, now, processors=1)

    def _process_was_awake(self) -> bool:
        """The process worked for too long to have been frozen since somebody looked."""
        before, self._worked = self._worked, self._sample(self._cpu_time)
        return self._was_awake(before, self._worked, processors=self._cpus)

    def _sample(self, time_spent: Callable[[], int]) -> "_Sample":
        begun = self._clock()
        spent = time_spent()
        return _Sample(begun, spent, self._clock())

    def _was_awake(self, before: "_Sample", now: "_Sample", *, processors: int) -> bool:
        # The widest time that can lie between the two: nothing is cleared by a slow reading.
        awake_at_most = now.ended - before.begun - self._suspect_after_ns
        return now.spent - before.spent > max(processors * awake_at_most, 0)

    def _judge(
        self, found: ProcessIdentity, gap: int, *, awake: bool
    ) -> tuple[SignKind | None, int]:
        known = self._process
        if found.boot_id and known.boot_id and found.boot_id != known.boot_id:
            # Monotonic clocks of two machines have no common origin.
            return SignKind.RECREATED, 0
        if found.start_ticks and known.start_ticks and found.start_ticks != known.start_ticks:
            return SignKind.RECREATED, max(gap, 0)
        if gap > self._suspect_after_ns and not awake:
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
