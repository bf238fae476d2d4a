"""The scheduler's role when the device stood still: sign, attest, hold, before the tokens leave."""

from types import SimpleNamespace
from typing import Any

import pytest

from engine_adapters.report.attestations import DueAttestation, Origin, SchedulerBody

pytestmark = pytest.mark.usefixtures("vllm_names")

S = 1_000_000_000
SIGN = 1 << 63


class Reporter:
    """Writes down what it is told, in order."""

    suspect_after_ns = 2 * S

    def __init__(self, clock: "Clock") -> None:
        self.told: list[Any] = []
        self.waiting: list[DueAttestation] = []
        self._clock = clock

    def put(self, record: Any) -> None:
        self.told.append(type(record).__name__)

    def note_step(self, step: int) -> None:
        pass

    def stood_still(self, gap_ns: int) -> None:
        self.told.append(("stood still", gap_ns / S))
        self.waiting.append(DueAttestation(SIGN, weights=True, hold=True, origin=Origin.SIGN))

    def due(self) -> DueAttestation | None:
        return self.waiting.pop(0) if self.waiting else None

    def attest(self, due: DueAttestation, body: Any, **_: Any) -> None:
        self.told.append("attest")

    def hold(self, due: DueAttestation) -> None:
        self.told.append("hold")
        self._clock.now += 25 * S


class Clock:
    now = 10**12

    def __call__(self) -> int:
        return self.now


class Engine:
    """Empty steps; what is told in the tests is when they come."""

    def __init__(self, *, watched: bool = True) -> None:
        from engine_adapters.vllm.metadata import StepDone
        from engine_adapters.vllm.scheduler_role import SchedulerRole
        from engine_adapters.vllm.stall_watch import StallWatch

        self.clock = Clock()
        live = SimpleNamespace(read=lambda *_: SchedulerBody(0, ()))
        self.role = SchedulerRole(live, StallWatch(self.clock) if watched else None)
        self.reporter = self.role.reporter = Reporter(self.clock)
        self._done = StepDone
        self.step = 0

    def launch(self) -> Any:
        cached = SimpleNamespace(
            req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[]
        )
        output = SimpleNamespace(
            scheduled_new_reqs=[],
            scheduled_cached_reqs=cached,
            num_scheduled_tokens={},
            total_num_scheduled_tokens=0,
            scheduled_spec_decode_tokens={},
            preempted_req_ids=set(),
        )
        return self.role.launch(output)

    def outcome(self) -> None:
        self.step += 1
        self.role.outcome(self._done(self.step))

    def run(self, seconds: float) -> list[Any]:
        """One step; what the reporter was told in its outcome."""
        self.launch()
        self.reporter.told.clear()
        self.clock.now += int(seconds * S)
        self.outcome()
        return list(self.reporter.told)

    def warm(self) -> "Engine":
        for _ in range(64):
            assert self.run(3.0) == ["CommitRecord"]
        return self


def test_the_sign_comes_before_the_outcome_and_the_hold_after_it():
    engine = Engine().warm()
    assert engine.run(1.9) == ["CommitRecord"]
    assert engine.run(3.0) == [("stood still", 3.0), "CommitRecord", "attest", "hold"]
    # The hold was long, and is nobody's delay.
    assert engine.run(0.1) == ["CommitRecord"]


def test_a_step_that_was_launched_before_the_hold_is_not_late_by_it():
    engine = Engine().warm()
    engine.launch()
    engine.launch()
    engine.clock.now += 3 * S
    engine.outcome()
    assert "hold" in engine.reporter.told
    engine.reporter.told.clear()
    engine.clock.now += S // 10
    engine.outcome()
    assert engine.reporter.told == ["CommitRecord"]


def test_a_step_before_which_ranks_were_asked_to_attest_may_be_long():
    engine = Engine().warm()
    request = DueAttestation(5, weights=True, hold=False, origin=Origin.REQUEST)
    engine.reporter.waiting.append(request)
    assert engine.run(30.0) == ["CommitRecord"]


def test_on_a_cpu_a_step_may_take_its_time():
    engine = Engine(watched=False)
    for _ in range(70):
        assert engine.run(60.0) == ["CommitRecord"]


@pytest.mark.parametrize(
    ("device", "watched"), [("cuda", True), ("xpu", True), ("cpu", False), (None, False)]
)
def test_only_a_device_that_is_no_cpu_is_watched(device, watched):
    from engine_adapters.vllm.assembly import stall_watch_for

    config = SimpleNamespace(device_config=SimpleNamespace(device_type=device))
    assert (stall_watch_for(config) is not None) is watched
    assert stall_watch_for(SimpleNamespace()) is None
