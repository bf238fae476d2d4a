"""A real process that is really frozen, forked, ended."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from report_fakes import Script, wait_for
from tokenwitness.v1 import recorder_pb2 as pb

ENGINE = Path(__file__).with_name("engine_double.py")


@pytest.fixture
def engine() -> Iterator[Callable[..., subprocess.Popen]]:
    started: list[subprocess.Popen] = []

    def start(address: str, what: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(ENGINE), address, what],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(5)
        process.stdout.close()


def test_a_frozen_process_signs_before_anything_else_and_holds(start_sidecar, engine):
    policy = pb.HoldPolicy(mode=pb.HOLD_MODE_VERDICT, deadline_ms=20_000, suspect_after_ms=400)
    sidecar = start_sidecar(Script(policy=policy))
    process = engine(sidecar.address, "run")
    wait_for(lambda: sidecar.durable > 5, "steps")
    process.send_signal(signal.SIGSTOP)
    time.sleep(1)  # the freeze itself: longer than suspect_after
    before = len(sidecar.messages)
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: sidecar.of_kind("sign"), "sign")
    wait_for(lambda: sidecar.of_kind("attestation"), "attestation")
    kinds = [m.WhichOneof("message") for _, m in sidecar.messages[before:]]
    # What was already on its way in gRPC when the process froze may arrive first, at most one.
    assert "sign" in kinds[:2]
    sign = sidecar.of_kind("sign")[0].sign
    assert sign.kind == pb.SIGN_KIND_STOOD_STILL
    assert sign.gap_ns > 400_000_000
    held_at = sidecar.durable
    sidecar.release(sign.held_attest_id, go=True)
    wait_for(lambda: sidecar.durable > held_at + 5, "goes on")
    assert process.stdout.readline() == "due sign hold=True\n"
    assert process.stdout.readline() == "hold released\n"
    assert sidecar.streams == 1, "the stream survived the freeze"
    assert len(sidecar.of_kind("sign")) == 1


def test_a_forked_child_reports_nothing_and_hangs_on_nothing(sidecar, engine):
    process = engine(sidecar.address, "fork")
    assert process.stdout.readline() == "child 0\n"
    wait_for(lambda: sidecar.durable > 5, "the parent goes on")
    assert sidecar.streams == 1
    assert not any(r.commit.step == 999 for r in sidecar.ledger.values())


def test_an_engine_that_exits_sends_what_it_has(sidecar, engine):
    process = engine(sidecar.address, "exit")
    assert process.wait(10) == 0
    assert sidecar.durable == 3
