"""`tokenwitness serve` as a process of its own, as a container runs it."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def serving(tmp_path):
    @contextmanager
    def start(port, name):
        command = [
            *(sys.executable, "-m", "sidecar.cli.main", "serve"),
            *("--grpc-address", f"127.0.0.1:{port}", "--http-address", "127.0.0.1:0"),
            *("--ledger-path", str(tmp_path / name), "--log-format", "json"),
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TOKENWITNESS_")}
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(10)
            process.stdout.close()

    return start


def until_answering(run, port, process):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stdout.read()
        if run("workers", "--sidecar", f"127.0.0.1:{port}").exit_code == 0:
            return
        time.sleep(0.05)
    pytest.fail("sidecar did not answer within 30 s")


def test_sidecar_serves_and_ends_when_told(run, serving, tmp_path):
    port = free_port()
    with serving(port, "a.ledger") as process:
        until_answering(run, port, process)
        at = ("--sidecar", f"127.0.0.1:{port}")
        assert run("workers", "--json", *at).json == {"workers": []}
        assert run("sessions", "-w", "nobody", *at).exit_code == 4
        assert run("verify", "-w", "nobody", *at).exit_code == 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert run("ledger", "verify", tmp_path / "a.ledger").exit_code == 0


def test_ledger_in_use_is_said_with_status_1(run, serving):
    first = free_port()
    with serving(first, "b.ledger") as owner:
        until_answering(run, first, owner)
        with serving(free_port(), "b.ledger") as second:
            assert second.wait(20) == 1
            assert "in use" in second.stdout.read()


def test_port_in_use_is_said_with_status_1(run, serving):
    port = free_port()
    with serving(port, "c.ledger") as owner:
        until_answering(run, port, owner)
        with serving(port, "d.ledger") as second:
            assert second.wait(20) == 1
            assert f"127.0.0.1:{port}" in second.stdout.read()
