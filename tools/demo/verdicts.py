"""Verdicts as the CLI prints them, read into what the demo shows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Verdict:
    """A worker's verdict: the document of `tokenwitness restored --wait --json`."""

    document: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.document["verdict"])

    @property
    def final(self) -> bool:
        return bool(self.document["final"])

    @property
    def trigger(self) -> str:
        """What made the sidecar verify."""
        return str(self.document["trigger"])

    @property
    def compared(self) -> dict[str, int]:
        return dict(self.document["compared"] or {})

    @property
    def state_seconds(self) -> float:
        """From noticing the restore to the verdict on memory."""
        nanoseconds = self.document["state_judged_unix_ns"] - self.document["noticed_unix_ns"]
        return float(nanoseconds) / 1e9

    def session_verdicts(self) -> dict[str, str]:
        return {s["session_id"]: str(s["verdict"]) for s in self.document["sessions"]}

    def findings(self) -> Iterator[dict[str, Any]]:
        """Of the worker and of its sessions."""
        yield from self.document["findings"]
        for session in self.document["sessions"]:
            yield from session["findings"]

    def reasons(self) -> list[str]:
        return [f"{f['verdict']}: {f['reason']}" for f in self.findings()]

    def kv_places(self) -> str:
        """`rank=.. layers=.. positions=..` of all KV mismatches; empty if there are none."""
        ranks: set[int] = set()
        layers: set[int] = set()
        positions: set[int] = set()
        for finding in self.findings():
            if finding["verdict"] == "KV_MISMATCH":
                ranks.add(finding["rank"])
                layers.update(finding["layers"])
                ranges = zip(finding["position_starts"], finding["position_ends"], strict=True)
                for first, end in ranges:
                    positions.update(range(first, end))
        if not ranks:
            return ""
        return f"rank={spans(ranks)} layers={spans(layers)} positions={spans(positions)}"

    def line(self) -> str:
        return f"{self.name} {self.kv_places()}".strip()


def spans(numbers: Iterable[int]) -> str:
    """Ascending numbers with runs joined: `0-6,9`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in parts)
