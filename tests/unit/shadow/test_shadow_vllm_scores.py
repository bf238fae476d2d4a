"""Scores, description and load over a scripted transport; sockets for what only they do."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest
from shadow_http_script import Server, complete

from sidecar.shadow.errors import EngineFrozen, EngineUnreachable, MalformedReply
from sidecar.shadow.vllm_http import VllmHttpEngine, VllmHttpSettings


def scores_reply(tokens, columns):
    choice = {"index": 0, "prompt_token_ids": tokens, "prompt_logprobs": columns}
    return httpx.Response(200, json={"choices": [choice]})


def entry(logprob, rank):
    return {"logprob": logprob, "rank": rank, "decoded_token": "x"}


async def score(engine):
    async with engine:
        return await engine.score(
            (5, 6, 7),
            first_position=1,
            cache_salt="s",
            request_id="tokenwitness-shadow-1",
            logprobs=2,
            timeout_s=1.0,
        )


COLUMNS = [
    None,
    {"6": entry(-0.1, 1), "9": entry(-3.0, 2)},
    {"8": entry(-0.2, 1), "7": entry(-4.2, 17)},
]


async def test_scores_rate_the_given_tokens():
    server = Server(scores_reply([5, 6, 7], COLUMNS))
    first, second = await score(server.engine())
    assert (first.position, first.token, first.rank, first.shortfall) == (1, 6, 1, 0.0)
    assert (second.token, second.rank, second.best_token) == (7, 17, 8)
    assert second.shortfall == pytest.approx(4.0)
    assert json.loads(server.asked[0].content)["prompt_logprobs"] == 2


@pytest.mark.parametrize(
    ("tokens", "columns"),
    [
        ([5, 6], COLUMNS),
        ([5, 6, 8], COLUMNS),
        ([5, 6, 7], COLUMNS[:2]),
        ([5, 6, 7], None),
        ([5, 6, 7], [None, None, COLUMNS[2]]),
        ([5, 6, 7], [None, {"9": entry(-3.0, 1)}, COLUMNS[2]]),
    ],
)
async def test_missing_score_is_malformed(tokens, columns):
    with pytest.raises(MalformedReply):
        await score(Server(scores_reply(tokens, columns)).engine())


async def test_description_names_the_model_and_its_limit():
    async with Server().engine() as engine:
        described = await engine.describe(timeout_s=1.0)
    assert (described.model, described.max_context) == ("small", 2048)
    async with Server().engine(model="other") as engine:
        assert (await engine.describe(timeout_s=1.0)).max_context is None


@pytest.mark.parametrize("models", [{}, {"data": []}, {"data": [{"id": "third"}]}])
async def test_model_that_is_not_served_is_said(models):
    async with Server(models=models).engine(model="wanted") as engine:
        with pytest.raises(MalformedReply):
            await engine.describe(timeout_s=1.0)


METRICS = """# HELP vllm:num_requests_waiting Number waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="small"} 2.0
vllm:num_requests_waiting{engine="1",model_name="small"} 3.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="small"} 4.0
"""


async def test_load_sums_over_the_server_s_engines():
    async with Server(httpx.Response(200, text=METRICS)).engine() as engine:
        load = await engine.load(timeout_s=1.0)
    assert (load.running, load.waiting) == (4, 5)


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(404), httpx.Response(200, text="x 1\n"), httpx.Response(200, text="{")],
)
async def test_engine_without_figures_has_no_load(answer):
    async with Server(answer).engine() as engine:
        assert await engine.load(timeout_s=1.0) is None


@asynccontextmanager
async def listening(handle):
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def test_closed_port_is_unreachable():
    async with listening(lambda _reader, writer: writer.close()) as url:
        pass
    engine = VllmHttpEngine(VllmHttpSettings(base_url=url, model="m", attempts=1))
    with pytest.raises(EngineUnreachable):
        await complete(engine)


async def test_server_that_accepts_and_says_nothing_is_frozen():
    hung_up = asyncio.Event()

    async def silent(reader, writer):
        while await reader.read(1024):
            pass
        hung_up.set()
        writer.close()

    async with listening(silent) as url:
        settings = VllmHttpSettings(base_url=url, model="m", stall_timeout_s=0.1)
        with pytest.raises(EngineFrozen):
            await complete(VllmHttpEngine(settings))
        # The engine is told to stop computing: the connection is gone.
        await asyncio.wait_for(hung_up.wait(), 2.0)


async def test_proxy_of_the_environment_is_not_asked(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    reply = b'{"data": [{"id": "direct"}]}'

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(reply)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + reply)
        await writer.drain()
        writer.close()

    async with (
        listening(answer) as url,
        VllmHttpEngine(VllmHttpSettings(base_url=url)) as engine,
    ):
        assert (await engine.describe(timeout_s=2.0)).model == "direct"
