"""An engine that decodes by a rule, so that every replay has a known right answer.

Greedy: a digest of all tokens before. Seeded: that, mixed with a generator which is made anew
for each request and moves by one draw per token, as in an engine that keeps one per session.
"""

import asyncio
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from sidecar.core.events import Sampling
from sidecar.shadow.engine import Completion, EngineDescription, EngineLoad, TokenScore

VOCABULARY = 1000


def best_token(tokens: Sequence[int]) -> int:
    digest = hashlib.blake2b(repr(tuple(tokens)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % VOCABULARY


def decode(prompt: Sequence[int], sampling: Sampling, count: int) -> tuple[int, ...]:
    generator = random.Random(sampling.seed)
    tokens = list(prompt)
    for _ in range(count):
        token = best_token(tokens)
        if sampling.temperature > 0:
            token = (token + generator.randrange(VOCABULARY)) % VOCABULARY
        tokens.append(token)
    return tuple(tokens[len(prompt) :])


@dataclass
class FakeEngine:
    max_context: int | None = None
    cached_tokens: int | None = None
    waiting: list[int | None] = field(default_factory=list)
    delay_s: float = 0.0
    fail_with: Exception | None = None
    calls: list[dict] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    looks: int = 0

    async def describe(self, *, timeout_s):
        if self.fail_with is not None:
            raise self.fail_with
        return EngineDescription("fake", self.max_context)

    async def load(self, *, timeout_s):
        self.looks += 1
        waiting = self.waiting.pop(0) if self.waiting else 0
        return None if waiting is None else EngineLoad(self.running, waiting)

    async def complete(self, prompt, **call):
        self.calls.append({"prompt": tuple(prompt), **call})
        await self._work()
        tokens = decode(prompt, call["sampling"], call["max_tokens"])
        top = tuple({token: -0.5, (token + 1) % VOCABULARY: -1.5} for token in tokens)
        return Completion(tokens, top, "length", self.cached_tokens)

    async def score(self, tokens, *, first_position, **call):
        self.calls.append({"tokens": tuple(tokens), "first_position": first_position, **call})
        await self._work()
        return tuple(
            _score(position, tokens[position], best_token(tokens[:position]))
            for position in range(first_position, len(tokens))
        )

    async def _work(self):
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.running -= 1


def _score(position: int, token: int, best: int) -> TokenScore:
    if token == best:
        return TokenScore(position, token, 1, {token: -0.5, (token + 1) % VOCABULARY: -1.5})
    return TokenScore(position, token, 3, {best: -0.5, token: -4.5})
