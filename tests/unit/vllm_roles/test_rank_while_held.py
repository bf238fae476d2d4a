"""A rank whose scheduler holds in an outcome, in the same thread: it never comes to a boundary."""

import threading
from typing import Any

import numpy as np
import pytest

from engine_adapters.report.attestations import DueAttestation, Origin

pytestmark = pytest.mark.usefixtures("vllm_names")

ASKED = DueAttestation(5, weights=False, hold=False, origin=Origin.REQUEST)


class Reporter:
    def __init__(self) -> None:
        self.waiting: list[DueAttestation] = []
        self.attested: list[tuple[int, int, bool]] = []
        self.came = threading.Event()

    def put(self, record: Any) -> None:
        pass

    def note_step(self, step: int) -> None:
        pass

    def due(self) -> DueAttestation | None:
        return self.waiting.pop(0) if self.waiting else None

    def attest(self, due: DueAttestation, body: Any, *, step: int, idle: bool) -> None:
        self.attested.append((due.attest_id, step, idle))
        self.came.set()


@pytest.fixture
def rank() -> Any:
    from engine_adapters.vllm.model_access import ModelAccess
    from engine_adapters.vllm.rank_role import RankRole

    role = RankRole([], ModelAccess(None), record_sampler=False)
    role.reporter = Reporter()
    return role


def run_step(rank: Any, number: int) -> None:
    from engine_adapters.vllm.metadata import StepMetadata

    none = np.zeros(0, np.int64)
    step = StepMetadata(step=number, rows=none, starts=none, counts=none)
    rank.before_step(step)
    rank.after_step(step)


def test_asked_while_no_step_runs_it_reads_from_the_reporters_thread(rank):
    run_step(rank, 1)
    assert rank.idle_attestation(ASKED) is not None


def test_asked_at_a_step_after_which_the_scheduler_holds_it_answers_alone(rank, monkeypatch):
    from engine_adapters.vllm import rank_role

    monkeypatch.setattr(rank_role, "_PATIENCE_S", 0.05)
    run_step(rank, 1)
    rank.reporter.waiting.append(ASKED)
    run_step(rank, 2)
    assert rank.reporter.attested == []
    # The engine's thread is in the scheduler's hold from here on.
    assert rank.reporter.came.wait(5)
    assert rank.reporter.attested == [(5, 2, True)]
