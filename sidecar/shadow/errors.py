"""What can go wrong between a shadow replay and the engine that runs it."""

# ruff: noqa: N818 - each name says what happened, "Error" would add nothing


class ShadowError(Exception):
    """A replay gave no answer. Says nothing about the session under test."""


class EngineUnreachable(ShadowError):
    """No connection, or the connection broke before the answer was whole."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(
            f"engine at {url} cannot be reached: {cause}; check its address and that it runs"
        )
        self.url = url
        self.cause = cause


class EngineRefused(ShadowError):
    """The engine answered with an error. `text` is its own, cut to 500 characters."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text[:500]
        super().__init__(f"engine refused the replay with status {status}: {self.text}")


class EngineFrozen(ShadowError):
    """Connected, but no token came in time. Health endpoints do not show this."""

    def __init__(self, *, silent_s: float, total_s: float, tokens_received: int) -> None:
        super().__init__(
            f"engine gave {tokens_received} tokens in {total_s:.1f} s and none in the last"
            f" {silent_s:.1f} s; it is frozen, held or overloaded"
        )
        self.silent_s = silent_s
        self.total_s = total_s
        self.tokens_received = tokens_received


class MalformedReply(ShadowError):
    """The engine's answer is not what its API promises."""

    def __init__(self, field: str, value: object) -> None:
        super().__init__(f"engine's reply has {field} = {repr(value)[:200]}")
        self.field = field


class CacheIsolationBroken(ShadowError):
    """An isolated replay was served from the prefix cache, so it proves nothing."""

    def __init__(self, cached_tokens: int) -> None:
        super().__init__(
            f"{cached_tokens} prompt tokens of an independent replay came from the prefix cache;"
            " the engine does not honour cache_salt"
        )
        self.cached_tokens = cached_tokens


class NothingRead(ShadowError):
    """A replay through the prefix cache read none of the restored KV."""

    def __init__(self) -> None:
        super().__init__(
            "no prompt token came from the prefix cache, so the restored KV was not read;"
            " it was evicted, or prefix caching is off"
        )
