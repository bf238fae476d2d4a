"""A step whose outcome comes too late, by a clock that the test sets."""

import pytest

from engine_adapters.vllm.stall_watch import WARM_UP_STEPS, StallWatch

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 10**12
        self.readings = 0

    def __call__(self) -> int:
        self.readings += 1
        return self.now

    def pass_ms(self, milliseconds: int) -> None:
        self.now += milliseconds * MS


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> StallWatch:
    """Warm, with no step under way."""
    made = StallWatch(clock)
    for _ in range(WARM_UP_STEPS):
        assert step(made, clock, 5_000) == 0
    return made


def step(watch: StallWatch, clock: Clock, took_ms: int) -> int:
    watch.launch()
    clock.pass_ms(took_ms)
    return watch.outcome() // MS


def test_a_step_is_measured_from_its_launch_once_it_is_warm(watch, clock):
    clock.pass_ms(60_000)
    assert step(watch, clock, 20) == 20
    assert step(watch, clock, 9_000) == 9_000


def test_a_step_behind_another_is_measured_from_the_others_outcome(watch, clock):
    watch.launch()
    clock.pass_ms(10)
    watch.launch()
    clock.pass_ms(4_000)
    assert watch.outcome() == 4_010 * MS
    clock.pass_ms(20)
    assert watch.outcome() == 20 * MS


def test_time_in_which_the_engine_was_held_is_no_step_s(watch, clock):
    watch.launch()
    watch.launch()
    clock.pass_ms(20)
    watch.outcome()
    clock.pass_ms(30_000)
    watch.held()
    clock.pass_ms(10)
    assert watch.outcome() == 10 * MS


def test_a_step_before_which_ranks_attest_is_not_measured_and_the_next_one_is(watch, clock):
    watch.launch_with_attestation()
    clock.pass_ms(8_000)
    assert watch.outcome() == 0
    assert step(watch, clock, 3_000) == 3_000


def test_a_clock_that_went_back_says_nothing(watch, clock):
    watch.launch()
    clock.pass_ms(-500_000)
    assert watch.outcome() == 0
    assert step(watch, clock, 7) == 7


def test_it_costs_one_reading_per_launch_and_per_outcome(watch, clock):
    before = clock.readings
    step(watch, clock, 1)
    assert clock.readings - before == 2
