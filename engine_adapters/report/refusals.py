"""What to do when the sidecar refuses what it was sent on a stream that it had let in."""

from engine_adapters.report.log import log_once
from engine_adapters.report.outgoing import Outgoing

# By the contract, of a record's refusal.
_OF_RECORD = "records["
# What a reason may carry of the sidecar's own words.
MOST_TEXT = 300


class Refusals:
    """A refused message would be refused for ever, and nothing behind it would arrive.

    The first time at one point of the record it is only sent again: what is out of order is put
    right by a new Hello, and records before a bad one become durable. The next time, with nothing
    new durable, what was sent is given up.
    """

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._refused_at = -1

    def refused(self, details: str | None) -> bool:
        """A stream ended because of a message on it. Whether another attempt can do better."""
        at = self._outgoing.durable_seq
        if at != self._refused_at:
            self._refused_at = at
            return True
        text = " ".join((details or "no reason given").split())[:MOST_TEXT]
        reason = f"the sidecar refused: {text}"
        if text.startswith(_OF_RECORD):
            count = self._outgoing.give_up_records(reason)
            given_up = f"{count} records are given up, and marked as missing"
        else:
            count = self._outgoing.give_up_attestations(reason)
            given_up = f"{count} attestations are given up, and answered by an error"
        if count:
            log_once("given-up", f"the sidecar refused what it was sent ({text}); {given_up}")
        return count > 0
