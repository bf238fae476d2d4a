"""vLLM's HTTP API as a shadow engine. No httpx exception leaves this module."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from sidecar.core.events import Sampling
from sidecar.shadow.engine import Completion, EngineDescription, EngineLoad, TokenScore
from sidecar.shadow.errors import EngineRefused, EngineUnreachable, MalformedReply
from sidecar.shadow.patience import Patience
from sidecar.shadow.vllm_payload import complete_body, parse_chunk, parse_scores, score_body

_WAITING = "vllm:num_requests_waiting"
_RUNNING = "vllm:num_requests_running"
# An engine answers 503 while it scales or drains; nothing was computed then.
_TRY_AGAIN = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmHttpSettings:
    """`model` None: the first that the server lists. `stall_timeout_s`: the longest wait for
    one more token. `attempts`: tries of a request that the engine never took.
    `data_parallel_rank`: the replica that holds the sessions, where one server has several.
    """

    base_url: str
    model: str | None = None
    api_key: str | None = None
    connect_timeout_s: float = 5.0
    stall_timeout_s: float = 30.0
    attempts: int = 3
    data_parallel_rank: int | None = None


class VllmHttpEngine:
    """A `ShadowEngine`. Use as an async context manager, in one event loop.

    `transport` replaces the network in tests.
    """

    def __init__(
        self, settings: VllmHttpSettings, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._settings = settings
        self._model: str | None = settings.model
        headers = {}
        if settings.api_key is not None:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        if settings.data_parallel_rank is not None:
            headers["X-data-parallel-rank"] = str(settings.data_parallel_rank)
        self._client = httpx.AsyncClient(
            base_url=settings.base_url,
            headers=headers,
            # Reads are bounded by `Patience`: keep-alive comments of a frozen engine would
            # satisfy a read timeout.
            timeout=httpx.Timeout(None, connect=settings.connect_timeout_s, write=30.0),
            transport=transport,
            # A proxy of the environment must not see the tokens, nor stand in for the engine.
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.aclose()

    async def describe(self, *, timeout_s: float) -> EngineDescription:
        async with Patience(timeout_s, timeout_s) as patience:
            reply = await self._json("GET", "/v1/models", patience)
        cards = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
            raise MalformedReply("models.data", cards)
        wanted = [card for card in cards if self._settings.model in (None, card.get("id"))]
        if not wanted or not isinstance(wanted[0].get("id"), str):
            raise MalformedReply(
                f"models (wanted {self._settings.model or 'any'})",
                [card.get("id") for card in cards],
            )
        self._model = wanted[0]["id"]
        limit = wanted[0].get("max_model_len")
        return EngineDescription(wanted[0]["id"], limit if isinstance(limit, int) else None)

    async def load(self, *, timeout_s: float) -> EngineLoad | None:
        """None also where the server has no metrics. Raises EngineUnreachable, EngineFrozen."""
        try:
            async with (
                Patience(timeout_s, timeout_s) as patience,
                self._open("GET", "/metrics", patience) as response,
            ):
                text = (await response.aread()).decode(errors="replace")
        except EngineRefused:
            return None
        return _parse_load(text)

    async def complete(
        self,
        prompt: Sequence[int],
        *,
        sampling: Sampling,
        max_tokens: int,
        cache_salt: str | None,
        request_id: str,
        logprobs: int,
        timeout_s: float,
    ) -> Completion:
        """Streams, so that a frozen engine is noticed by its silence and not by its age."""
        tokens: list[int] = []
        top: list[Mapping[int, float]] = []
        finish = ""
        cached: int | None = None
        async with Patience(timeout_s, self._settings.stall_timeout_s) as patience:
            body = complete_body(
                prompt,
                model=await self._model_name(patience),
                sampling=sampling,
                max_tokens=max_tokens,
                logprobs=logprobs,
                cache_salt=cache_salt,
            )
            async with self._open(
                "POST", "/v1/completions", patience, body=body, request_id=request_id
            ) as response:
                async for message in _messages(response):
                    chunk = parse_chunk(message)
                    tokens.extend(chunk.tokens)
                    top.extend(chunk.top)
                    finish = chunk.finish or finish
                    cached = cached if chunk.cached_tokens is None else chunk.cached_tokens
                    if chunk.tokens:
                        patience.received(len(chunk.tokens))
        if not finish:
            raise EngineUnreachable(
                self._settings.base_url, f"stream ended after {len(tokens)} tokens"
            )
        if len(tokens) > max_tokens:
            raise MalformedReply("number of tokens", len(tokens))
        return Completion(tuple(tokens), tuple(top), finish, cached)

    async def score(
        self,
        tokens: Sequence[int],
        *,
        first_position: int,
        cache_salt: str | None,
        request_id: str,
        logprobs: int,
        timeout_s: float,
    ) -> tuple[TokenScore, ...]:
        async with Patience(timeout_s, timeout_s) as patience:
            body = score_body(
                tokens,
                model=await self._model_name(patience),
                logprobs=logprobs,
                cache_salt=cache_salt,
            )
            reply = await self._json(
                "POST", "/v1/completions", patience, body=body, request_id=request_id
            )
        return parse_scores(reply, tokens, first_position=first_position)

    async def _model_name(self, patience: Patience) -> str:
        if self._model is None:
            return (await self.describe(timeout_s=patience.left_s)).model
        return self._model

    async def _json(
        self,
        method: str,
        path: str,
        patience: Patience,
        *,
        body: dict[str, Any] | None = None,
        request_id: str | None = None,
    ) -> Any:
        async with self._open(method, path, patience, body=body, request_id=request_id) as reply:
            text = await reply.aread()
        try:
            return json.loads(text)
        except ValueError:
            raise MalformedReply(path, text) from None

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        patience: Patience,
        *,
        body: dict[str, Any] | None = None,
        request_id: str | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Sends a request, again if the engine did not take it, and yields its open reply."""
        request = self._client.build_request(
            method, path, json=body, headers={"X-Request-Id": request_id} if request_id else None
        )
        try:
            async for attempt in AsyncRetrying(
                stop=stop_after_attempt(self._settings.attempts),
                wait=wait_random_exponential(multiplier=0.2, max=2.0),
                retry=retry_if_exception(_never_taken),
                before_sleep=lambda _state: patience.pause(),
                reraise=True,
            ):
                with attempt:
                    patience.alive()
                    response = await self._client.send(request, stream=True)
                    if response.status_code != httpx.codes.OK:
                        text = (await response.aread()).decode(errors="replace")
                        await response.aclose()
                        raise EngineRefused(response.status_code, text)
            patience.alive()
            try:
                yield response
            finally:
                # Closing early makes the engine abort what it still computes for us.
                await response.aclose()
        except httpx.HTTPError as error:
            cause = f"{type(error).__name__}: {error}"
            raise EngineUnreachable(self._settings.base_url, cause) from error
        except httpx.InvalidURL as error:
            raise EngineUnreachable(self._settings.base_url, str(error)) from error


def _never_taken(error: BaseException) -> bool:
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) or (
        isinstance(error, EngineRefused) and error.status == _TRY_AGAIN
    )


async def _messages(response: httpx.Response) -> AsyncIterator[Any]:
    """Messages of a server-sent event stream, up to its `[DONE]`."""
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        try:
            message = json.loads(data)
        except ValueError:
            raise MalformedReply("stream", data) from None
        yield message


def _parse_load(text: str) -> EngineLoad | None:
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            if family.name in (_WAITING, _RUNNING):
                # One sample per engine of a data-parallel server.
                found[family.name] = sum(sample.value for sample in family.samples)
    except ValueError:
        return None
    if _WAITING not in found:
        return None
    return EngineLoad(running=int(found.get(_RUNNING, 0)), waiting=int(found[_WAITING]))
