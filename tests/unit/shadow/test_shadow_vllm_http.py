"""Streamed completions over a scripted transport."""

import json

import httpx
import pytest
from shadow_http_script import DONE, Server, Stream, chunk, complete, event, streamed, usage

from sidecar.core.events import Sampling
from sidecar.shadow.errors import (
    EngineFrozen,
    EngineRefused,
    EngineUnreachable,
    MalformedReply,
)


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


async def test_messages_without_tokens_are_no_sign_of_life():
    empty = [part for _ in range(200) for part in (0.01, chunk([]))]
    with pytest.raises(EngineFrozen):
        await complete(Server(streamed(*empty)).engine(stall_timeout_s=0.1))


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
