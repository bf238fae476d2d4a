"""The wait at a step boundary for the sidecar's answer. Always ends."""

import enum
import time
from collections.abc import Callable

from engine_adapters.report.duties import Duties, Release
from engine_adapters.report.policy import HoldPolicy

# How often a held thread looks for another restore.
_LOOK_S = 0.05


class HoldOutcome(enum.Enum):
    """How a hold ended."""

    RELEASED = "released"
    # The deadline passed and the policy fails open.
    TIMED_OUT = "timed_out"
    # The policy fails closed, or the sidecar said "stay": held to the policy's limit.
    LIMIT_REACHED = "limit_reached"
    # Another sign was seen while held: attest and hold again (`due` returns it).
    SUPERSEDED = "superseded"
    # Nothing to hold for, or the reporter was closed.
    NOT_HELD = "not_held"


def hold(
    attest_id: int,
    duties: Duties,
    *,
    policy: Callable[[], HoldPolicy],
    poll: Callable[[], object],
    closed: Callable[[], bool],
) -> HoldOutcome:
    """Blocks until the release of `attest_id`, at most to the policy's deadline (fail open) or
    limit (fail closed, or told to stay), counted from this call. The policy may change meanwhile.
    """
    began = time.monotonic()
    try:
        while True:
            poll()
            with duties.changed:
                release = duties.hold_state(attest_id)
                if release is None:
                    return HoldOutcome.NOT_HELD if closed() else HoldOutcome.SUPERSEDED
                outcome = _judge(release, policy(), time.monotonic() - began)
                if closed():
                    return HoldOutcome.NOT_HELD
                if outcome is not None:
                    return outcome
                duties.changed.wait(_LOOK_S)
    finally:
        duties.hold_over(attest_id)


def _judge(release: Release, policy: HoldPolicy, waited_s: float) -> HoldOutcome | None:
    if release is Release.GO:
        return HoldOutcome.RELEASED
    stays = release is Release.STAY or policy.fails_closed
    if stays:
        # A limit below the deadline would make failing closed the shorter wait.
        limit_s = max(policy.closed_limit_s, policy.deadline_s)
        return HoldOutcome.LIMIT_REACHED if waited_s >= limit_s else None
    return HoldOutcome.TIMED_OUT if waited_s >= policy.deadline_s else None
