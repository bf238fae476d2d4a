"""The client against a scripted transport, and against real sockets for what only they do."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest

from sidecar.core.events import Sampling
from sidecar.shadow.errors import (
    EngineFrozen,
    EngineRefused,
    EngineUnreachable,
    MalformedReply,
)
from sidecar.shadow.vllm_http import VllmHttpEngine, VllmHttpSettings

GREEDY = Sampling(temperature=0.0)
MODELS = {"data": [{"id": "small", "max_model_len": 2048}, {"id": "other"}]}


class Stream(httpx.AsyncByteStream):
    def __init__(self, parts):
        self.parts = parts
        self.closed = False

    async def __aiter__(self):
        for part in self.parts:
            if isinstance(part, float):
                await asyncio.sleep(part)
            elif isinstance(part, Exception):
                raise part
            else:
                yield part

    async def aclose(self):
        self.closed = True


def event(message):
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def chunk(tokens, *, top=None, finish=None):
    columns = top or [{f"token_id:{token}": -0.5, "token_id:0": -2.0} for token in tokens]
    return event(
        {
            "choices": [
                {
                    "index": 0,
                    "text": "",
                    "token_ids": tokens,
                    "logprobs": {"top_logprobs": columns},
                    "finish_reason": finish,
                }
            ]
        }
    )


def usage(cached=None):
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return event({"choices": [], "usage": {"prompt_tokens": 3, **details}})


DONE = b"data: [DONE]\n\n"


class Server:
    """Answers from a script and keeps what it was asked."""

    def __init__(self, *answers, models=MODELS):
        self.answers = list(answers)
        self.models = models
        self.asked = []

    def __call__(self, request):
        if request.url.path == "/v1/models":
            return httpx.Response(200, json=self.models)
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def engine(self, **settings):
        given = {"base_url": "http://engine.test", "stall_timeout_s": 0.2, **settings}
        return VllmHttpEngine(
            VllmHttpSettings(**given), transport=httpx.MockTransport(self.__call__)
        )


def streamed(*parts):
    return httpx.Response(200, stream=Stream(list(parts)))


async def complete(engine, **change):
    call = {
        "sampling": GREEDY,
        "max_tokens": 4,
        "cache_salt": "salt",
        "request_id": "tokenwitness-shadow-1",
        "logprobs": 2,
        "timeout_s": 2.0,
    }
    async with engine:
        return await engine.complete((5, 6, 7), **(call | change))


async def test_stream_becomes_one_completion():
    server = Server(
        streamed(chunk([11, 12]), b": keep-alive\n\n", chunk([13], finish="length"), usage(2), DONE)
    )
    completion = await complete(server.engine())
    assert completion.tokens == (11, 12, 13)
    assert completion.top[2] == {13: -0.5, 0: -2.0}
    assert (completion.finish, completion.cached_tokens) == ("length", 2)


async def test_request_says_everything_that_the_server_would_else_choose():
    server = Server(streamed(chunk([1], finish="stop"), DONE))
    sampling = Sampling(
        temperature=0.7,
        top_p=0.9,
        top_k=-1,
        min_p=0.1,
        seed=-3,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        repetition_penalty=1.1,
        min_tokens=2,
        stop_token_ids=(9,),
        ignore_eos=True,
        stop=("END",),
    )
    await complete(server.engine(api_key="k", data_parallel_rank=1), sampling=sampling)
    request = server.asked[0]
    body = json.loads(request.content)
    assert request.headers["X-Request-Id"] == "tokenwitness-shadow-1"
    assert request.headers["Authorization"] == "Bearer k"
    assert request.headers["X-data-parallel-rank"] == "1"
    assert body == {
        "model": "small",
        "prompt": [5, 6, 7],
        "max_tokens": 4,
        "n": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "add_special_tokens": False,
        "logprobs": 2,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
        "min_tokens": 2,
        "stop_token_ids": [9],
        "stop": ["END"],
        "ignore_eos": True,
        "seed": -3,
        "cache_salt": "salt",
    }


async def test_no_salt_and_no_seed_are_left_out():
    server = Server(streamed(chunk([1], finish="stop"), DONE))
    await complete(server.engine(), cache_salt=None)
    body = json.loads(server.asked[0].content)
    assert "cache_salt" not in body
    assert "seed" not in body


async def test_busy_engine_is_asked_again():
    server = Server(
        httpx.Response(503, text="scaling"),
        httpx.ConnectError("refused"),
        streamed(chunk([1], finish="stop"), DONE),
    )
    # A stall limit far below the waits between attempts: they are no silence of the engine's.
    assert (await complete(server.engine(stall_timeout_s=0.02))).tokens == (1,)


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_refusal_is_told_in_the_engine_s_words_and_not_repeated(status):
    server = Server(httpx.Response(status, text="prompt too long " * 100))
    with pytest.raises(EngineRefused, match="prompt too long") as caught:
        await complete(server.engine())
    assert caught.value.status == status
    assert len(caught.value.text) == 500
    assert len(server.asked) == 1


async def test_error_in_mid_stream_is_a_refusal():
    server = Server(
        streamed(chunk([1]), event({"error": {"message": "engine died", "code": 500}}), DONE)
    )
    with pytest.raises(EngineRefused, match="engine died"):
        await complete(server.engine())


async def test_connection_that_never_comes_is_unreachable_after_all_attempts():
    server = Server(*[httpx.ConnectError("refused")] * 2)
    with pytest.raises(EngineUnreachable, match=r"http://engine\.test.*refused"):
        await complete(server.engine(attempts=2))
    assert len(server.asked) == 2


async def test_request_that_was_taken_is_not_sent_twice():
    server = Server(httpx.ReadError("reset"))
    with pytest.raises(EngineUnreachable, match="reset"):
        await complete(server.engine())
    assert len(server.asked) == 1


async def test_stream_that_ends_too_early_is_no_completion():
    server = Server(streamed(chunk([1])))
    with pytest.raises(EngineUnreachable, match="after 1 tokens"):
        await complete(server.engine())


async def test_engine_that_stops_giving_tokens_is_frozen_whatever_it_comments():
    comments = [part for _ in range(200) for part in (0.01, b": keep-alive\n\n")]
    stream = Stream([chunk([1, 2]), *comments])
    server = Server(httpx.Response(200, stream=stream))
    with pytest.raises(EngineFrozen) as caught:
        await complete(server.engine())
    assert caught.value.tokens_received == 2
    assert caught.value.silent_s >= 0.2
    assert stream.closed


async def test_slow_engine_that_goes_on_is_not_frozen():
    parts = [part for token in range(1, 5) for part in (0.1, chunk([token]))]
    server = Server(streamed(*parts, chunk([], finish="length"), DONE))
    assert (await complete(server.engine())).tokens == (1, 2, 3, 4)


async def test_total_time_is_bounded_too():
    parts = [part for token in range(1, 100) for part in (0.05, chunk([token]))]
    with pytest.raises(EngineFrozen) as caught:
        await complete(Server(streamed(*parts)).engine(), max_tokens=200, timeout_s=0.3)
    assert caught.value.tokens_received > 1
    assert caught.value.total_s < 1


@pytest.mark.parametrize(
    "parts",
    [
        [b"data: {nonsense\n\n"],
        [event([1, 2])],
        [event({"choices": "none"})],
        [event({"choices": [{"finish_reason": "stop"}]})],
        [chunk([1.5])],
        [chunk([True])],
        [chunk([1], top=[{"text": -0.5}])],
        [chunk([1], top=[{}, {}])],
        [chunk([1, 2, 3, 4, 5], finish="length"), DONE],
    ],
)
async def test_reply_that_breaks_the_contract_is_malformed(parts):
    with pytest.raises(MalformedReply):
        await complete(Server(streamed(*parts)).engine())


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
