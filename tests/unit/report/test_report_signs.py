"""Signs of a restore, with a clock and a process that the test moves."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine_adapters.report.process import ProcessIdentity, read_process, thread_busy_ns
from engine_adapters.report.signs import SignKind, SignWatch

MS = 1_000_000
HERE = ProcessIdentity(pid=7, start_ticks=100, boot_id="b", host="h", clock_distance_ns=10**18)


class Machine:
    def __init__(self) -> None:
        self.now = 10**12
        self.cpu = 0
        self.busy = 0
        self.process = HERE
        self.reads = 0
        self.seen = []
        self.watch = SignWatch(
            2_000,
            self.seen.append,
            read=self._read,
            clock=lambda: self.now,
            cpu_time=lambda: self.cpu,
            busy=lambda: self.busy,
            cpus=2,
        )

    def _read(self) -> ProcessIdentity:
        self.reads += 1
        return self.process

    def after(self, ms: int, cpu_ms: int = 0, busy_ms: int = 0):
        self.now += ms * MS
        self.cpu += cpu_ms * MS
        self.busy += busy_ms * MS
        return self.watch.poll()


def test_a_busy_process_is_not_looked_at():
    machine = Machine()
    before = machine.reads
    for _ in range(100):
        assert machine.after(10) is None
    assert machine.reads == before


def test_a_gap_is_looked_into():
    machine = Machine()
    before = machine.reads
    assert machine.after(21) is None
    assert machine.reads == before + 1


@pytest.mark.parametrize(("change", "gap_ms"), [({"start_ticks": 101}, 300), ({"boot_id": "c"}, 0)])
def test_a_re_created_process_is_a_sign_once(change, gap_ms):
    machine = Machine()
    machine.process = replace(HERE, **change)
    sign = machine.after(300)
    assert sign.kind is SignKind.RECREATED
    assert sign.gap_ns == gap_ms * MS
    assert sign.count == 1
    assert sign.process == machine.process
    assert machine.after(300) is None
    assert machine.seen == [sign]


def test_a_clock_that_went_back_is_a_gap():
    machine = Machine()
    machine.process = replace(HERE, start_ticks=5)
    sign = machine.after(-50_000)
    assert sign.kind is SignKind.RECREATED
    assert sign.gap_ns == 0


def test_standing_still_is_a_sign_only_beyond_the_limit():
    machine = Machine()
    assert machine.after(1_999) is None
    sign = machine.after(2_001)
    assert sign.kind is SignKind.STOOD_STILL
    assert sign.gap_ns == 2_001 * MS
    assert machine.after(30) is None


def test_a_gap_in_which_the_process_computed_is_no_sign():
    # One thread of two processors held Python's lock all the time.
    assert Machine().after(2_500, cpu_ms=2_500) is None


def test_a_starved_process_is_no_sign_however_long_nobody_polled():
    machine = Machine()
    assert machine.after(50) is None
    # The polling thread waited for a processor nearly all the time, and got none.
    assert machine.after(10_000, busy_ms=9_000) is None


def test_waiting_for_a_processor_beside_a_freeze_does_not_hide_it():
    machine = Machine()
    assert machine.after(50) is None
    assert machine.after(10_000, busy_ms=7_900).kind is SignKind.STOOD_STILL


def test_a_thread_that_never_looked_before_clears_nothing():
    machine = Machine()
    machine.busy = 10**15
    assert machine.after(10_000).kind is SignKind.STOOD_STILL


def test_computing_before_the_freeze_does_not_hide_it():
    # Both processors could have done this in what two seconds of freeze leave of the gap.
    assert Machine().after(2_500, cpu_ms=1_000).kind is SignKind.STOOD_STILL


def test_computing_between_the_last_look_and_the_last_poll_does_not_hide_a_freeze():
    machine = Machine()
    for _ in range(100):
        # Polled often, so that nobody looked, while both processors were busy for a second.
        assert machine.after(10, cpu_ms=20) is None
    assert machine.after(2_100, cpu_ms=200).kind is SignKind.STOOD_STILL


def test_the_real_clock_running_away_is_a_sign():
    machine = Machine()
    machine.process = replace(HERE, clock_distance_ns=HERE.clock_distance_ns + 60_000 * MS)
    sign = machine.after(30)
    assert (sign.kind, sign.gap_ns) == (SignKind.STOOD_STILL, 60_000 * MS)
    machine.process = replace(HERE, clock_distance_ns=HERE.clock_distance_ns - 60_000 * MS)
    assert machine.after(30) is None


def test_what_could_not_be_read_proves_nothing():
    machine = Machine()
    machine.process = ProcessIdentity(7, 0, "", "h", 0)
    assert machine.after(300) is None
    # Nor does it hide what comes after.
    machine.process = replace(HERE, start_ticks=101)
    assert machine.after(300).kind is SignKind.RECREATED


def test_the_policy_changes_what_standing_still_is():
    machine = Machine()
    machine.watch.suspect_after(500)
    assert machine.after(600).kind is SignKind.STOOD_STILL


def test_nobody_passes_while_a_sign_is_being_looked_at():
    machine = Machine()
    looking, go_on, passed = threading.Event(), threading.Event(), threading.Event()

    def slow_read() -> ProcessIdentity:
        looking.set()
        assert go_on.wait(5)
        return replace(HERE, start_ticks=101)

    machine.watch._read = slow_read
    machine.now += 100 * MS
    first = threading.Thread(target=machine.watch.poll)
    first.start()
    assert looking.wait(5)

    def engine() -> None:
        machine.watch.poll()
        assert machine.seen, "passed before the sign was known"
        passed.set()

    second = threading.Thread(target=engine)
    second.start()
    assert not passed.wait(0.05)
    go_on.set()
    first.join(5)
    second.join(5)
    assert passed.is_set()
    assert len(machine.seen) == 1


def test_the_time_of_a_real_thread_grows_while_it_runs_and_not_while_it_sleeps():
    began, before = time.monotonic_ns(), thread_busy_ns()
    time.sleep(0.2)
    slept, ended = thread_busy_ns(), time.monotonic_ns()
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    assert before > 0
    assert thread_busy_ns() - slept > 90_000_000
    assert slept - before < ended - began - 150 * MS


def test_the_real_process_is_read_and_nothing_stays_open():
    open_files = Path("/proc/self/fd")
    before = len(list(open_files.iterdir()))
    process = read_process()
    assert len(list(open_files.iterdir())) == before
    assert process.pid == os.getpid()
    assert process.start_ticks > 0
    assert len(process.boot_id) == 36
    assert process == replace(read_process(), clock_distance_ns=process.clock_distance_ns)


def test_what_somebody_else_saw_stand_still_is_a_sign_once():
    machine = Machine()
    machine.after(10)
    sign = machine.watch.stood_still(3_000 * MS)
    assert (sign.kind, sign.gap_ns, sign.count) == (SignKind.STOOD_STILL, 3_000 * MS, 1)
    machine.after(10)
    assert machine.watch.stood_still(2_500 * MS) is None
    machine.now += 5_000 * MS
    machine.watch._polled = machine.watch._looked = machine.now
    assert machine.watch.stood_still(2_500 * MS).count == 2
    assert [each.count for each in machine.seen] == [1, 2]


def test_a_gap_in_which_the_process_has_signed_is_no_second_sign():
    machine = Machine()
    assert machine.after(3_000).kind is SignKind.STOOD_STILL
    machine.after(10)
    assert machine.watch.stood_still(3_010 * MS) is None
    assert len(machine.seen) == 1


def test_a_re_created_process_is_told_as_such_and_not_as_a_stalled_device():
    machine = Machine()
    machine.process = replace(HERE, start_ticks=101)
    machine.now += 5 * MS
    assert machine.watch.stood_still(3_000 * MS) is None
    assert [each.kind for each in machine.seen] == [SignKind.RECREATED]
