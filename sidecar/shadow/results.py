"""What came out of a replay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from sidecar.shadow.engine import TokenScore
from sidecar.shadow.settings import ShadowMode


class FailureKind(Enum):
    """Why a replay has no tokens. The first six are decided before anything runs."""

    INVALID = "invalid"
    UNREPLAYABLE = "unreplayable"
    NOT_CHOSEN = "not_chosen"
    OVER_BUDGET = "over_budget"
    NOTHING_TO_REPLAY = "nothing_to_replay"
    SALT_UNKNOWN = "salt_unknown"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    FROZEN = "frozen"
    MALFORMED = "malformed"
    NOT_ISOLATED = "not_isolated"
    NOTHING_READ = "nothing_read"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class ShadowFailure:
    kind: FailureKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowResult:
    """One replay. Either `error` is set, or something was computed.

    `tokens[i]` is what the engine gives at position `first_position + i`; a replay from the
    prompt starts there, not at the restored position. `top[i]` maps token ids to raw
    log-probabilities at that position. Forced: `scores` rate the session's own tokens;
    `tokens` are the model's best ones, empty where the best is not simply the chosen one
    (sampling, penalties). `plain_greedy`: log-probabilities tell how near a tie was.
    `mode` None: the session was left out in every mode.
    """

    session_id: str
    mode: ShadowMode | None
    first_position: int = 0
    tokens: tuple[int, ...] = ()
    top: tuple[Mapping[int, float], ...] = ()
    scores: tuple[TokenScore, ...] = ()
    plain_greedy: bool = False
    finish: str = ""
    cached_tokens: int | None = None
    note: str = ""
    error: ShadowFailure | None = None

    def margins(self) -> tuple[float | None, ...]:
        """Best less second log-probability by position; None where it says nothing."""
        return tuple(self._gap(top, None) for top in self.top)

    def margins_against(self, found: Sequence[int]) -> tuple[float | None, ...]:
        """How far each found token is from the best: `found[i]` at `first_position + i`.

        Where they agree, best less second. Where they differ, best less found, and infinity if
        the found token is not among those reported: a tie of two other tokens excuses nothing.
        None where log-probabilities do not decide (sampling, penalties). As long as the shorter
        of both.
        """
        return tuple(
            self._gap(top, None if token == own else token)
            for top, token, own in zip(self.top, found, self.tokens, strict=False)
        )

    def _gap(self, top: Mapping[int, float], other: int | None) -> float | None:
        if not self.plain_greedy or not top:
            return None
        best, *rest = sorted(top.values(), reverse=True)
        if other is not None:
            return best - top[other] if other in top else float("inf")
        return best - rest[0] if rest else None
