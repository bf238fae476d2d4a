"""Verdicts and their evidence, as values. Numbers are the wire's and order by how bad it is."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field


class Verdict(enum.IntEnum):
    UNSPECIFIED = 0
    RESUMED_EXACT = 1
    NOTHING_IN_FLIGHT = 2
    EQUIVALENT = 3
    INCOMPARABLE = 4
    TIMEOUT = 5
    UNKNOWN = 6
    DIVERGED = 7
    SAMPLER_MISMATCH = 8
    LOST = 9
    RESTARTED = 10
    KV_MISMATCH = 11
    TOKENS_MISMATCH = 12
    POSITION_MISMATCH = 13
    WEIGHTS_MISMATCH = 14
    RANK_SKEW = 15
    ENVIRONMENT_CHANGED = 16

    @property
    def passes(self) -> bool:
        return self in PASSES


PASSES = frozenset({Verdict.RESUMED_EXACT, Verdict.EQUIVALENT, Verdict.NOTHING_IN_FLIGHT})


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict; INCOMPARABLE of none, and in place of one that was never given."""
    given = [v if v is not Verdict.UNSPECIFIED else Verdict.INCOMPARABLE for v in verdicts]
    return max(given, default=Verdict.INCOMPARABLE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of evidence. `positions` are half-open ranges of token positions."""

    verdict: Verdict
    reason: str
    session_id: str = ""
    rank: int | None = None
    layers: tuple[int, ...] = ()
    positions: tuple[tuple[int, int], ...] = ()
    expected: str = ""
    found: str = ""
    first_differing_position: int | None = None
    logprob_margin: float | None = None
    mismatches: int = 0


@dataclass(frozen=True, slots=True)
class Compared:
    """How much was compared. `names` counts names of the environment (not on the wire)."""

    kv_rows: int = 0
    kv_rows_late: int = 0
    tokens: int = 0
    tensors: int = 0
    recorded_tokens: int = 0
    shadow_tokens: int = 0
    names: int = 0

    def __add__(self, other: "Compared") -> "Compared":
        return Compared(
            kv_rows=self.kv_rows + other.kv_rows,
            kv_rows_late=self.kv_rows_late + other.kv_rows_late,
            tokens=self.tokens + other.tokens,
            tensors=self.tensors + other.tensors,
            recorded_tokens=self.recorded_tokens + other.recorded_tokens,
            shadow_tokens=self.shadow_tokens + other.shadow_tokens,
            names=self.names + other.names,
        )


@dataclass(frozen=True, slots=True)
class SessionVerdict:
    session_id: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    compared: Compared = field(default_factory=Compared)
    emitted_found: int = 0
    emitted_expected: int = 0
    continuation_modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerVerdict:
    """One verification's outcome. Times are unix nanoseconds, 0: not known."""

    verification_id: str
    worker: str
    incarnation: str
    generation: int
    trigger: str
    mark: str
    verdict: Verdict
    state_verdict: Verdict
    final: bool
    sessions: tuple[SessionVerdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    compared: Compared = field(default_factory=Compared)
    noticed_unix_ns: int = 0
    attested_unix_ns: int = 0
    state_judged_unix_ns: int = 0
    finished_unix_ns: int = 0
    tokens_before_verdict: int = 0
    rolled_back_steps: int = 0
    fingerprint_digest: str = ""
