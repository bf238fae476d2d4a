"""Request bodies and replies of vLLM's `/v1/completions` (0.26 to 0.33). No I/O.

Token ids travel as ids in both directions: `return_token_ids` for the tokens themselves,
`return_tokens_as_token_ids` so that alternatives come as "token_id:N" instead of text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.core.events import Sampling
from sidecar.shadow.engine import TokenScore
from sidecar.shadow.errors import EngineRefused, MalformedReply

_AS_ID = "token_id:"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One message of a streamed completion. `finish` is empty until the last one."""

    tokens: tuple[int, ...]
    top: tuple[Mapping[int, float], ...]
    finish: str
    cached_tokens: int | None


def complete_body(
    prompt: Sequence[int],
    *,
    model: str,
    sampling: Sampling,
    max_tokens: int,
    logprobs: int,
    cache_salt: str | None,
) -> dict[str, Any]:
    """Body of a streamed completion that samples exactly as the session did.

    Every parameter is given: what is left out the server takes from the model's own defaults.
    """
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "n": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "add_special_tokens": False,
        "logprobs": logprobs,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or 1.0,
        "top_k": max(sampling.top_k, 0),
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty or 1.0,
        "min_tokens": sampling.min_tokens,
        "stop_token_ids": list(sampling.stop_token_ids),
        "stop": list(sampling.stop),
        "ignore_eos": sampling.ignore_eos,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if cache_salt is not None:
        body["cache_salt"] = cache_salt
    return body


def score_body(
    tokens: Sequence[int], *, model: str, logprobs: int, cache_salt: str | None
) -> dict[str, Any]:
    """Body of a request that rates its own prompt. The one new token is thrown away."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(tokens),
        "max_tokens": 1,
        "n": 1,
        "temperature": 0.0,
        "add_special_tokens": False,
        "return_token_ids": True,
        "prompt_logprobs": logprobs,
    }
    if cache_salt is not None:
        body["cache_salt"] = cache_salt
    return body


def parse_chunk(message: Any) -> Chunk:
    """One streamed message. Raises EngineRefused for an error in mid-stream, MalformedReply."""
    if not isinstance(message, dict):
        raise MalformedReply("message", message)
    if (error := message.get("error")) is not None:
        code = error.get("code") if isinstance(error, dict) else None
        raise EngineRefused(code if isinstance(code, int) else 500, str(error))
    cached = _cached_tokens(message.get("usage"))
    choices = message.get("choices")
    if choices == []:
        return Chunk((), (), "", cached)
    choice = _only_choice(choices)
    tokens = _token_ids("choices[0].token_ids", choice.get("token_ids"))
    finish = choice.get("finish_reason")
    if not isinstance(finish, str | None):
        raise MalformedReply("choices[0].finish_reason", finish)
    return Chunk(tokens, _top(choice.get("logprobs"), len(tokens)), finish or "", cached)


def parse_scores(
    reply: Any, tokens: Sequence[int], *, first_position: int
) -> tuple[TokenScore, ...]:
    """Scores of `tokens[first_position:]`. Raises MalformedReply if one is missing."""
    choice = _only_choice(reply.get("choices") if isinstance(reply, dict) else reply)
    ids = choice.get("prompt_token_ids")
    if ids != list(tokens):
        raise MalformedReply("choices[0].prompt_token_ids", ids)
    columns = choice.get("prompt_logprobs")
    if not isinstance(columns, list) or len(columns) != len(tokens):
        raise MalformedReply("choices[0].prompt_logprobs", columns)
    return tuple(
        _score(position, tokens[position], columns[position])
        for position in range(first_position, len(tokens))
    )


def _score(position: int, token: int, column: Any) -> TokenScore:
    try:
        top = {int(key): float(value["logprob"]) for key, value in column.items()}
        return TokenScore(position, token, int(column[str(token)]["rank"]), top)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise MalformedReply(f"choices[0].prompt_logprobs[{position}]", column) from None


def _only_choice(choices: Any) -> dict[str, Any]:
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise MalformedReply("choices", choices)
    return choices[0]


def _token_ids(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        # Engines before `return_token_ids` leave it out without a word.
        raise MalformedReply(name, value)
    return tuple(value)


def _top(logprobs: Any, count: int) -> tuple[Mapping[int, float], ...]:
    columns = logprobs.get("top_logprobs") if isinstance(logprobs, dict) else None
    if columns is None and count == 0:
        return ()
    if not isinstance(columns, list) or len(columns) != count:
        raise MalformedReply("choices[0].logprobs.top_logprobs", columns)
    return tuple(_top_of_one(column) for column in columns)


def _top_of_one(column: Any) -> Mapping[int, float]:
    try:
        return {int(key.removeprefix(_AS_ID)): float(value) for key, value in column.items()}
    except (AttributeError, TypeError, ValueError):
        raise MalformedReply("choices[0].logprobs.top_logprobs", column) from None


def _cached_tokens(usage: Any) -> int | None:
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) else None
