"""What a source does when it notices that it was restored."""

from dataclasses import dataclass

from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.config import AdapterConfig

# No policy from elsewhere may hold an engine for longer than a day.
_LONGEST_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """Times in seconds. `waits`: hold for the verdict on memory."""

    waits: bool
    deadline_s: float
    fails_closed: bool
    closed_limit_s: float
    suspect_after_ms: int

    @classmethod
    def of_config(cls, config: AdapterConfig) -> "HoldPolicy":
        """What holds until the sidecar has told its own."""
        return cls(
            waits=config.hold_mode == "verdict",
            deadline_s=config.hold_deadline_ms / 1_000,
            fails_closed=config.hold_fail == "closed",
            closed_limit_s=config.hold_closed_limit_ms / 1_000,
            suspect_after_ms=config.suspect_after_ms,
        )

    def told(self, message: pb.HoldPolicy) -> "HoldPolicy":
        """The policy of a Welcome. What it leaves at 0 stays as it was."""
        if message.mode == pb.HOLD_MODE_UNSPECIFIED:
            return self
        return HoldPolicy(
            waits=message.mode == pb.HOLD_MODE_VERDICT,
            deadline_s=_seconds(message.deadline_ms, self.deadline_s),
            fails_closed=message.fail_closed,
            closed_limit_s=_seconds(message.closed_limit_ms, self.closed_limit_s),
            suspect_after_ms=message.suspect_after_ms or self.suspect_after_ms,
        )


def _seconds(milliseconds: int, otherwise: float) -> float:
    return min(milliseconds, _LONGEST_MS) / 1_000 if milliseconds else otherwise
