"""Whether the tokens that followed are those that the uninterrupted run would have given.

Equal is IDENTICAL. Where the engine is batch invariant there is no noise and every difference is
DIVERGED. Elsewhere a first difference at a near-tie proves nothing, as long as no noise floor was
calibrated; a difference whose margin is not known proves nothing either.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass


class Exactness(enum.Enum):
    """What the engine declares of itself: whether batch composition can change a token."""

    BATCH_INVARIANT = "batch_invariant"
    NOT_INVARIANT = "not_invariant"


class UnseededRule(enum.Enum):
    """What a plausible score of an unseeded session, whose tokens nobody can replay, is worth."""

    # The state verdict stands.
    SCORED_PASS = "scored_pass"  # noqa: S105 - a rule, not a secret
    # A score proves no continuation.
    INCOMPARABLE = "incomparable"


class ContinuationCheck(enum.Enum):
    # At least one session's continuation must have been compared.
    REQUIRED = "required"
    # The verdict on memory is all that was asked for.
    NOT_REQUESTED = "not_requested"


@dataclass(frozen=True, slots=True)
class ContinuationSettings:
    """`near_tie_margin`: nats between the best two tokens below which a difference can be noise.
    `minimum_tokens`: with fewer compared nothing was compared. `enough_recorded_tokens`: so many
    tokens equal to the recorded future need no shadow. `minimum_mean_logprob`: forced scores of
    an unseeded session are plausible from here on, nats per token.
    """

    exactness: Exactness = Exactness.NOT_INVARIANT
    near_tie_margin: float = 0.1
    minimum_tokens: int = 1
    enough_recorded_tokens: int = 16
    minimum_mean_logprob: float = -6.0
    unseeded: UnseededRule = UnseededRule.INCOMPARABLE
    check: ContinuationCheck = ContinuationCheck.REQUIRED


class Outcome(enum.Enum):
    IDENTICAL = "identical"
    # Differs first at a near-tie of an engine that is not exact.
    NEAR_TIE = "near_tie"
    # Differs first where the margin is not known, on an engine that is not exact.
    UNMEASURED = "unmeasured"
    DIVERGED = "diverged"
    NOTHING_COMPARED = "nothing_compared"
    # Scored, not compared: no seed to replay with.
    PLAUSIBLE = "plausible"
    IMPLAUSIBLE = "implausible"
    # The configuration left this session out.
    NOT_CHOSEN = "not_chosen"


class StreamEnd(enum.Enum):
    """Why a token sequence ends: the session did, or only what is known of it."""

    ENDED = "ended"
    CUT = "cut"


class Mode(enum.Enum):
    """What the found tokens were compared with."""

    RECORDED = "recorded"
    INDEPENDENT = "independent"
    CACHED = "cached"
    FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Continuation:
    """`first_difference` counts from the first compared token.

    `expected` and `found` are the differing tokens, None where a sequence had ended.
    `ended_alike`: both sequences ended, after the same tokens; there is nothing more to compare.
    """

    outcome: Outcome
    compared: int = 0
    first_difference: int | None = None
    margin: float | None = None
    expected: int | None = None
    found: int | None = None
    reason: str = ""
    ended_alike: bool = False


def compare_continuation(
    reference: Sequence[int],
    found: Sequence[int],
    margins: Sequence[float | None],
    settings: ContinuationSettings,
    *,
    reference_end: StreamEnd = StreamEnd.CUT,
    found_end: StreamEnd = StreamEnd.CUT,
) -> Continuation:
    """Compares two continuations from the same position.

    `margins[i]`: log-probability of the best token less that of the second where token i was
    chosen (nats, by either run), None or beyond the end: not known. A sequence that ended while
    the other goes on differs at its end; one that was cut says nothing beyond it.
    """
    common = min(len(reference), len(found))
    difference = next((i for i in range(common) if reference[i] != found[i]), None)
    if difference is None and len(reference) != len(found):
        shorter_end = reference_end if len(reference) < len(found) else found_end
        if shorter_end is StreamEnd.ENDED:
            difference = common
    if difference is None:
        ended_alike = len(reference) == len(found) and reference_end is found_end is StreamEnd.ENDED
        if common < (1 if ended_alike else max(settings.minimum_tokens, 1)):
            return Continuation(
                Outcome.NOTHING_COMPARED,
                common,
                reason=f"{common} continuation tokens could be compared, at least "
                f"{max(settings.minimum_tokens, 1)} are needed",
            )
        return Continuation(Outcome.IDENTICAL, common, ended_alike=ended_alike)
    margin = margins[difference] if difference < len(margins) else None
    if margin is not None and not math.isfinite(margin):
        margin = None
    outcome, reason = _weigh(margin, settings)
    return Continuation(
        outcome,
        compared=min(difference + 1, common),
        first_difference=difference,
        margin=margin,
        expected=reference[difference] if difference < len(reference) else None,
        found=found[difference] if difference < len(found) else None,
        reason=reason,
    )


def _weigh(margin: float | None, settings: ContinuationSettings) -> tuple[Outcome, str]:
    if settings.exactness is Exactness.BATCH_INVARIANT:
        return Outcome.DIVERGED, "the engine is batch invariant: no difference is noise"
    if margin is None:
        return Outcome.UNMEASURED, "first difference without a known margin, engine is not exact"
    if abs(margin) < settings.near_tie_margin:
        reason = "near-tie, no calibrated floor: margin"
        return (
            Outcome.NEAR_TIE,
            f"{reason} {abs(margin):.4f} nats is below {settings.near_tie_margin:g}",
        )
    return (
        Outcome.DIVERGED,
        f"margin {abs(margin):.4f} nats is not below {settings.near_tie_margin:g}",
    )


def score_continuation(logprobs: Sequence[float], settings: ContinuationSettings) -> Continuation:
    """Scores tokens that cannot be replayed by the log-probabilities that a forced pass gives
    them. Tells gross damage only: a wrong but fluent continuation is plausible.
    """
    count = len(logprobs)
    if count < max(settings.minimum_tokens, 1):
        return Continuation(Outcome.NOTHING_COMPARED, count, reason=f"{count} tokens were scored")
    mean = sum(logprobs) / count
    # Not `mean < minimum`: a mean that is not a number is no plausible score.
    if mean >= settings.minimum_mean_logprob:
        return Continuation(Outcome.PLAUSIBLE, count, reason=f"scored {mean:.3f} nats per token")
    return Continuation(
        Outcome.IMPLAUSIBLE,
        count,
        reason=f"scored {mean:.3f} nats per token, plausible is "
        f"{settings.minimum_mean_logprob:g} or more",
    )


def not_compared(reason: str) -> Continuation:
    """A continuation that was wanted and could not be had (engine failed, unreplayable)."""
    return Continuation(Outcome.NOTHING_COMPARED, reason=reason)


def not_chosen(reason: str) -> Continuation:
    """A session that the configured choice or budget left out."""
    return Continuation(Outcome.NOT_CHOSEN, reason=reason)


@dataclass(frozen=True, slots=True)
class ContinuationResult:
    """A continuation compared in one mode, from `first_position` of its session."""

    mode: Mode
    continuation: Continuation
    first_position: int = 0
