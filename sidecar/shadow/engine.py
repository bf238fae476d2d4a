"""What a shadow replay needs of an engine. Tokens are ids, positions count from 0."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sidecar.core.events import Sampling


@dataclass(frozen=True, slots=True)
class Completion:
    """Tokens that follow a prompt.

    `top` has one mapping per token, from token id to raw log-probability: the best few and
    the chosen one. `cached_tokens`: prompt tokens served from the prefix cache; None where
    the engine does not say.
    """

    tokens: tuple[int, ...]
    top: tuple[Mapping[int, float], ...]
    finish: str
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TokenScore:
    """How the model rates one given token after the tokens before it.

    `rank` 1: the best. `top` maps token ids to raw log-probabilities: the best few and this one.
    """

    position: int
    token: int
    rank: int
    top: Mapping[int, float]

    @property
    def logprob(self) -> float:
        return self.top[self.token]

    @property
    def best_token(self) -> int:
        """The token itself where another one is equally good."""
        best = max(self.top.values())
        return self.token if self.logprob == best else max(self.top, key=self.top.__getitem__)

    @property
    def shortfall(self) -> float:
        """Log-probability of the best token less that of this one; 0 if it is the best."""
        return max(self.top.values()) - self.logprob


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """`max_context`: prompt and output tokens of one request together; None: not told."""

    model: str
    max_context: int | None


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Requests of all users, shadow replays included."""

    running: int
    waiting: int


class ShadowEngine(Protocol):
    """All methods raise only `ShadowError`s, and return or raise within their time limits."""

    async def describe(self, *, timeout_s: float) -> EngineDescription: ...

    async def load(self, *, timeout_s: float) -> EngineLoad | None:
        """None where the engine does not tell; a replay then does not wait for others."""
        ...

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
        """Generates at most `max_tokens` with exactly the given sampling parameters.

        `sampling.max_tokens` is not looked at. At most `max_tokens` tokens come back.
        """
        ...

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
        """Rates `tokens[first_position:]`, one score each, without reading cached KV."""
        ...
