"""What a reporter tells of itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counters:
    """A snapshot of what happened so far. `refused_records` are the dropped ones that the sidecar
    did not take.
    """

    records: int
    dropped_records: int
    refused_records: int
    holes_sent: int
    errors: int
    connects: int
    signs: int
    queued_bytes: int
