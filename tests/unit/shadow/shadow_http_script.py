"""A scripted HTTP engine, and what tests say to it."""

import asyncio
import json

import httpx

from sidecar.core.events import Sampling
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
