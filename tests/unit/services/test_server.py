"""The sidecar as a process and under pressure."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sidecar.config import Settings
from sidecar.ledger.errors import LedgerFullError, LedgerLockedError, QueueFullError
from sidecar.recorder import ingest
from sidecar.server import Sidecar
from tests.unit.services.conftest import RecordingVerifier
from tests.unit.services.scripted import (
    Script,
    ScriptedWorker,
    channel_to,
    commit,
    first_steps,
    launch,
)
from tests.unit.services.waiting import eventually

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from tests.unit.services.conftest import RecordingVerifier
from sidecar.config import load_settings
from sidecar.server import run

settings = load_settings(
    {"grpc_address": "127.0.0.1:0", "http_address": "127.0.0.1:0", "ledger_path": sys.argv[1],
     "log_format": "json"}
)
run(settings, lambda host, settings: RecordingVerifier(host))
"""


async def started(*arguments: str):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        *arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=asyncio.subprocess.PIPE,
    )


async def test_sigterm_ends_streams_and_flushes_the_ledger(tmp_path):
    program = await started(str(tmp_path / "ledger"))
    try:
        async with asyncio.timeout(30):
            while True:
                line = json.loads(await program.stderr.readline())
                if line["event"] == "sidecar_listening":
                    break
            async with channel_to(line["grpc"]) as channel:
                source, _ = await ScriptedWorker(channel).attach(Script())
                await source.records(*first_steps(steps=50))
                await source.acked(1)
                program.send_signal(signal.SIGTERM)
                code, _ = await source.ended()
                assert code is grpc.StatusCode.UNAVAILABLE
            rest = await program.stderr.read()
            assert await program.wait() == 0
            assert b"sidecar_stopped" in rest
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    with sqlite3.connect(tmp_path / "ledger") as connection:
        (records,) = connection.execute("SELECT COUNT(*) FROM records").fetchone()
    connection.close()
    assert records == 100


async def test_a_second_sidecar_on_the_same_ledger_does_not_start(rig):
    settings = rig.services.settings
    second = Sidecar(settings.model_copy(), lambda host, settings: RecordingVerifier(host))
    with pytest.raises(LedgerLockedError):
        await second.start()


async def test_a_taken_address_is_an_error_and_leaves_nothing_behind(rig, tmp_path):
    settings = Settings(
        grpc_address=rig.bound.grpc_address,
        http_address="127.0.0.1:0",
        ledger_path=tmp_path / "second",
    )
    second = Sidecar(settings, lambda host, settings: RecordingVerifier(host))
    with pytest.raises(OSError, match="cannot listen"):
        await second.start()
    settings = settings.model_copy(
        update={"grpc_address": "127.0.0.1:0", "http_address": rig.bound.http_address}
    )
    second = Sidecar(settings, lambda host, settings: RecordingVerifier(host))
    with pytest.raises(OSError, match=str(rig.bound.http_address.split(":")[1])):
        await second.start()


async def test_a_full_ledger_is_unavailable_and_loses_nothing(rig, monkeypatch):
    source, _ = await rig.workers.attach(Script())
    await source.records(*first_steps())
    await source.acked(2)
    ledger = rig.services.host.ledger
    monkeypatch.setattr(ledger, "append", _raiser(LedgerFullError(Path("ledger"), None)))
    await source.records(*first_steps(steps=2)[2:])
    code, details = await source.ended()
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "disk is full" in details
    monkeypatch.undo()
    again, welcome = await rig.workers.attach(Script(next_seq=5))
    assert welcome.durable_seq == 2
    await again.records(*first_steps(steps=2))
    await again.acked(4)
    assert rig.worker().live.sessions[0].emitted == 5


def _raiser(error):
    def append(*_):
        raise error

    return append


async def test_a_stream_waits_for_room_in_the_ledger(rig, monkeypatch):
    source, _ = await rig.workers.attach(Script())
    ledger = rig.services.host.ledger
    append, refusals = ledger.append, []

    def full_at_first(*arguments):
        if len(refusals) < 3:
            refusals.append(arguments)
            raise QueueFullError(1, 1)
        return append(*arguments)

    monkeypatch.setattr(ledger, "append", full_at_first)
    await source.records(*first_steps())
    await source.acked(2)
    assert len(refusals) == 3


async def test_what_is_not_durable_is_bounded(start_rig, monkeypatch):
    """While nothing becomes durable the stream is read no further."""
    rig = await start_rig(max_unacked_bytes=4096)
    source, _ = await rig.workers.attach(Script())
    monkeypatch.setattr(rig.services.acknowledger, "_durable", lambda *_: None)
    await source.records(*first_steps())
    worker = rig.worker()

    async def flood():
        for step in range(2, 2000):
            await source.records(
                launch(2 * step - 1, step, rows=[0], starts=[step + 1]),
                commit(2 * step, step, tokens=[1]),
            )

    task = asyncio.create_task(flood())
    await eventually(lambda: worker.scheduler.unacked_bytes > 4096)
    seen = worker.scheduler.received_seq
    await asyncio.sleep(0.2)
    assert worker.scheduler.received_seq == seen
    assert worker.scheduler.unacked_bytes < 2 * 4096
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_ledger_that_does_not_become_durable_is_unavailable(start_rig, monkeypatch):
    monkeypatch.setattr(ingest, "ROOM_WAIT_S", 0.05)
    rig = await start_rig(max_unacked_bytes=1024)
    source, _ = await rig.workers.attach(Script())
    monkeypatch.setattr(rig.services.acknowledger, "_durable", lambda *_: None)
    await source.records(*first_steps(steps=100))
    code, details = await source.ended()
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "not durable" in details


async def test_reflection_names_all_services(rig):
    stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {each.name for each in (await call.read()).list_services_response.service}
    assert {
        "tokenwitness.v1.RecorderService",
        "tokenwitness.v1.CheckpointService",
        "tokenwitness.v1.VerifierService",
        "grpc.health.v1.Health",
    } <= names
    call.cancel()


async def test_a_very_long_silence_ends_the_stream(rig):
    source, _ = await rig.workers.attach(Script())
    rig.clock.ahead += 3601
    code, details = await source.ended()
    assert code is grpc.StatusCode.ABORTED
    assert "silent" in details
