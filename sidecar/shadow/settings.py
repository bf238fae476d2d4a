"""How shadow replays are chosen and run."""

from dataclasses import dataclass
from enum import Enum


class ShadowMode(Enum):
    """What a replay proves."""

    # Recomputes everything without the KV under test: proves the continuation.
    INDEPENDENT = "independent"
    # Reads the restored KV through the prefix cache: proves what new requests would get.
    CACHED = "cached"
    # Scores the emitted continuation in one pass: an early difference does not hide the rest.
    FORCED = "forced"


class SeededReplay(Enum):
    """Where the replay of a seeded session starts."""

    # Right on every engine: a generator per session has to be run from its beginning.
    FROM_PROMPT = "from_prompt"
    # Only where noise is a function of (seed, position), as in vLLM's model runner V2.
    FROM_POSITION = "from_position"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSettings:
    """Bounds of one round of replays.

    `max_sessions` None: all. `token_budget` counts prompt and output tokens of all replays.
    `max_waiting`: replays pause while the engine reports more waiting requests than this.
    `logprobs`: how many best tokens to ask for at each position, 2 or more.
    Raises ValueError with the bad name and value.
    """

    modes: tuple[ShadowMode, ...] = (ShadowMode.INDEPENDENT,)
    k: int = 32
    seeded_replay: SeededReplay = SeededReplay.FROM_PROMPT
    max_sessions: int | None = None
    # Chooses the sample: the same key and sessions give the same choice.
    sample_key: str = ""
    token_budget: int = 200_000
    concurrency: int = 2
    request_timeout_s: float = 60.0
    deadline_s: float = 300.0
    logprobs: int = 5
    max_waiting: int = 0
    poll_s: float = 0.25

    def __post_init__(self) -> None:
        if not self.modes or len(set(self.modes)) != len(self.modes):
            raise ValueError(f"shadow modes must be given once each, got {self.modes!r}")
        at_least = {
            "k": (self.k, 1),
            "token_budget": (self.token_budget, 1),
            "concurrency": (self.concurrency, 1),
            "logprobs": (self.logprobs, 2),
            "max_waiting": (self.max_waiting, 0),
            "max_sessions": (1 if self.max_sessions is None else self.max_sessions, 1),
        }
        for name, (value, least) in at_least.items():
            if value < least:
                raise ValueError(f"shadow {name} must be {least} or more, got {value}")
        for name in ("request_timeout_s", "deadline_s", "poll_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(
                    f"shadow {name} must be positive and finite, got {getattr(self, name)}"
                )
