"""Clients of the engine: sessions whose tokens are read from a stream while they are made."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from tools.demo.errors import DemoError
from tools.demo.waiting import wait_for

# A restored server may stand still for a dump and a restore in mid-stream.
READ_TIMEOUT_S = 180


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What one client asks for. `seed` None: greedy."""

    name: str
    # Text, or token ids.
    prompt: str | list[int]
    max_tokens: int
    seed: int | None = None

    def limited_to(self, tokens: int) -> "SessionPlan":
        """The same session, ended sooner: its tokens are a prefix of this one's."""
        return replace(self, max_tokens=tokens)

    def payload(self, model: str) -> dict[str, Any]:
        sampling = (
            {"temperature": 0.0}
            if self.seed is None
            else {"temperature": 0.8, "top_p": 0.95, "seed": self.seed}
        )
        return {
            "model": model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
            **sampling,
        }


@dataclass
class Stream:
    """One session as its client sees it; filled by a thread of its own."""

    plan: SessionPlan
    tokens: list[int] = field(default_factory=list)
    # Unix time in ns at which each token arrived.
    arrivals: list[int] = field(default_factory=list)
    request_id: str = ""
    finish_reason: str | None = None
    error: str | None = None
    done: threading.Event = field(default_factory=threading.Event)
    leaving: threading.Event = field(default_factory=threading.Event)

    def run(self, url: str, model: str) -> None:
        try:
            self._read(url, model)
        except (httpx.HTTPError, OSError, ValueError) as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.done.set()

    def _read(self, url: str, model: str) -> None:
        timeout = httpx.Timeout(10, read=READ_TIMEOUT_S)
        with httpx.stream(
            "POST", f"{url}/v1/completions", json=self.plan.payload(model), timeout=timeout
        ) as response:
            if response.status_code != httpx.codes.OK:
                response.read()
                self.error = f"HTTP {response.status_code}: {response.text[:200]}"
                return
            for line in response.iter_lines():
                if self.leaving.is_set():
                    return
                if line.startswith("data: ") and line != "data: [DONE]":
                    self._take(json.loads(line.removeprefix("data: ")))

    def _take(self, event: dict[str, Any]) -> None:
        if "error" in event:
            self.error = str(event["error"])
            return
        self.request_id = event["id"]
        for choice in event["choices"]:
            fresh = choice.get("token_ids") or []
            self.tokens += fresh
            self.arrivals += [time.time_ns()] * len(fresh)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason


@dataclass(frozen=True, slots=True)
class Streams:
    """Several sessions at once."""

    all: list[Stream]
    threads: list[threading.Thread]

    def wait_for_tokens(self, count: int, timeout_s: float = 120) -> None:
        """Until each session has given `count` tokens. DemoError: one of them failed."""
        goals = [count] * len(self.all)
        wait_for(lambda: self._reached(goals), f"{count} tokens of each session", timeout_s)

    def wait_done(self, timeout_s: float = 300) -> None:
        wait_for(
            lambda: all(stream.done.is_set() for stream in self.all),
            "end of all sessions",
            timeout_s,
        )

    def wait_for_more(self, count: int) -> None:
        """Until each session has given `count` tokens more than now."""
        goals = [tokens + count for tokens in self.counts()]
        wait_for(lambda: self._reached(goals), f"{count} more tokens of each session", 120)

    def _reached(self, goals: list[int]) -> bool:
        self.raise_errors()
        return all(now >= goal for now, goal in zip(self.counts(), goals, strict=True))

    def leave(self, timeout_s: float = 60) -> None:
        """Hangs up, each client at its next token; the engine drops the sessions."""
        for stream in self.all:
            stream.leaving.set()
        self.wait_done(timeout_s)

    def raise_errors(self) -> None:
        for stream in self.all:
            if stream.error:
                raise DemoError(f"session {stream.plan.name}: {stream.error}")

    def counts(self) -> list[int]:
        return [len(stream.tokens) for stream in self.all]

    def tokens(self) -> dict[str, list[int]]:
        return {stream.plan.name: list(stream.tokens) for stream in self.all}


def open_streams(url: str, model: str, plans: Sequence[SessionPlan]) -> Streams:
    """Starts all sessions at once."""
    streams = [Stream(plan) for plan in plans]
    threads = [
        threading.Thread(target=stream.run, args=(url, model), daemon=True) for stream in streams
    ]
    for thread in threads:
        thread.start()
    return Streams(streams, threads)
