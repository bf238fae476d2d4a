"""The gate: what opens and closes it, by itself and as others see it."""

import asyncio

import aiohttp
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from sidecar.gate import GateBoard, GatePosition, GateState
from tests.unit.services.scripted import WAIT_S, Script

OPEN, CLOSED = GatePosition.OPEN, GatePosition.CLOSED
Status = health_pb2.HealthCheckResponse


def whole_board():
    changes = []
    board = GateBoard(lambda worker, state: changes.append(state))
    board.note_missing("w", "")
    return board, changes


def test_a_worker_is_closed_until_it_is_whole():
    board = GateBoard()
    assert board.state("w") is None
    board.note_missing("w", "not attached: rank 0")
    assert board.state("w") == GateState(open=False, reason="not attached: rank 0")
    board.note_missing("w", "")
    assert board.state("w") == GateState(open=True, reason="")


def test_distrust_outlives_a_reattachment():
    board, _ = whole_board()
    board.suspect("w", 1, "restored")
    board.note_missing("w", "not attached: rank 0")
    board.note_missing("w", "")
    assert board.state("w") == GateState(open=False, reason="restored")
    board.decide("w", 1, CLOSED, "LOST")
    assert board.state("w") == GateState(open=False, reason="LOST")
    board.decide("w", 1, OPEN, "")
    assert board.state("w").open


def test_a_pass_does_not_open_an_incomplete_worker():
    board, _ = whole_board()
    board.suspect("w", 1, "restored")
    board.note_missing("w", "not attached: rank 0")
    board.decide("w", 1, OPEN, "")
    assert board.state("w").reason == "not attached: rank 0"


def test_only_changes_are_told():
    board, changes = whole_board()
    board.note_missing("w", "")
    board.suspect("w", 1, "restored")
    board.suspect("w", 1, "restored")
    assert [state.open for state in changes] == [True, False]


def test_all_gates_together():
    board = GateBoard()
    assert not board.overall().open
    board.note_missing("a", "")
    assert board.overall().open
    board.note_missing("b", "gone")
    assert board.overall() == GateState(open=False, reason="b: gone")
    board.forget("b")
    assert board.overall().open


ACTIONS = st.one_of(
    st.tuples(st.just("missing"), st.sampled_from(["", "gone"])),
    st.tuples(st.just("suspect"), st.integers(0, 4)),
    st.tuples(st.just("open"), st.integers(0, 4)),
    st.tuples(st.just("close"), st.integers(0, 4)),
)


@given(st.lists(ACTIONS, max_size=20))
def test_open_means_whole_and_nothing_unjudged_or_failed(actions):
    """A model of the rule beside the gate: the two agree after any history."""
    board = GateBoard()
    missing, newest, trusted = "no source attached yet", 0, True
    for action, value in actions:
        if action == "missing":
            missing = value
            board.note_missing("w", value)
        elif action == "suspect":
            newest, trusted = max(newest, value), False
            board.suspect("w", value, "restored")
        elif value >= newest or board.state("w") is None:
            newest, trusted = value, action == "open"
            assert board.decide("w", value, OPEN if trusted else CLOSED, "why")
        else:
            assert not board.decide("w", value, OPEN if action == "open" else CLOSED, "why")
        state = board.state("w")
        assert state.open == (trusted and not missing)
        assert bool(state.reason) != state.open


async def status(rig, service):
    stub = health_pb2_grpc.HealthStub(rig.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


async def test_health_follows_the_gate(rig):
    assert await status(rig, "") == Status.SERVING
    assert await status(rig, "workers") == Status.NOT_SERVING
    scheduler, _ = await rig.workers.attach(Script())
    assert await status(rig, "worker/w") == Status.NOT_SERVING
    await rig.workers.attach(Script(rank=0))
    assert await status(rig, "worker/w") == Status.SERVING
    assert await status(rig, "workers") == Status.SERVING
    # What follows the sign on the stream is answered after it: by then the gate is closed.
    await scheduler.sign(next_seq=1)
    await scheduler.say(heartbeat={"step": 77})
    async with asyncio.timeout(WAIT_S):
        while rig.worker().scheduler.step != 77:
            await asyncio.sleep(0.001)
            if rig.worker().generation:
                break
    assert await status(rig, "worker/w") == Status.NOT_SERVING
    assert await status(rig, "") == Status.SERVING
    with pytest.raises(Exception, match="not known"):
        await status(rig, "worker/none")


async def test_health_can_be_watched(rig):
    stub = health_pb2_grpc.HealthStub(rig.channel)
    call = stub.Watch(health_pb2.HealthCheckRequest(service="worker/w"))
    assert (await call.read()).status == Status.SERVICE_UNKNOWN
    other = stub.Watch(health_pb2.HealthCheckRequest(service="worker/w"))
    assert (await other.read()).status == Status.SERVICE_UNKNOWN
    other.cancel()
    await rig.workers.attach(Script())
    assert (await call.read()).status == Status.NOT_SERVING
    await rig.workers.attach(Script(rank=0))
    assert (await call.read()).status == Status.SERVING
    call.cancel()


async def fetch(rig, path):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{rig.bound.http_address}{path}") as response,
    ):
        return response.status, await response.text()


async def test_http_says_what_lives_and_what_is_ready(rig):
    assert (await fetch(rig, "/healthz"))[0] == 200
    code, text = await fetch(rig, "/readyz")
    assert code == 503
    assert "no worker has attached" in text
    assert (await fetch(rig, "/readyz?worker=w"))[0] == 404
    await rig.workers.attach(Script())
    code, text = await fetch(rig, "/readyz?worker=w")
    assert code == 503
    assert "rank 0" in text
    await rig.workers.attach(Script(rank=0))
    assert (await fetch(rig, "/readyz?worker=w"))[0] == 200
    assert (await fetch(rig, "/readyz"))[0] == 200
    assert (await fetch(rig, "/else"))[0] == 404
