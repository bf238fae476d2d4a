"""What the demo shows: progress while it goes, a table at its end."""

import sys
import time
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tools.demo.verdicts import Verdict

_BEGAN = time.monotonic()
# Wide enough for the table where the output goes to a file.
_CONSOLE = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)


def progress(text: str) -> None:
    """One line, with the seconds since the start."""
    _CONSOLE.print(f"{time.monotonic() - _BEGAN:6.1f} s  {text}", soft_wrap=True)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One round: a worker stopped, perhaps tampered with, resumed and judged."""

    name: str
    verdict: Verdict
    stop_seconds: float
    size_bytes: int
    resume_seconds: float
    # Tokens that clients had before the stop, and when they hung up.
    tokens_before: int
    tokens_after: int
    # What became of the clients' streams.
    streams: str

    def line(self) -> str:
        return f"{self.name}: {self.verdict.line()}"


def show_table(way: str, rounds: list[RoundResult]) -> None:
    table = Table(title=way, title_justify="left")
    for column in ("", *(result.name for result in rounds)):
        table.add_column(column)
    for label, cells in _rows(rounds):
        table.add_row(label, *cells)
    _CONSOLE.print(table)


def _rows(rounds: list[RoundResult]) -> list[tuple[str, list[str]]]:
    def compared(name: str) -> list[str]:
        return [f"{result.verdict.compared.get(name, 0):,}" for result in rounds]

    return [
        ("verdict", [r.verdict.name for r in rounds]),
        ("sessions in flight", [str(len(r.verdict.document["sessions"])) for r in rounds]),
        ("KV rows compared", compared("kv_rows")),
        ("of them recorded late", compared("kv_rows_late")),
        ("tokens compared", compared("tokens")),
        ("tensors of the model compared", compared("tensors")),
        ("continuation tokens replayed", compared("shadow_tokens")),
        ("stop", [f"{r.stop_seconds:.1f} s, {r.size_bytes / 1e9:.1f} GB" for r in rounds]),
        ("resume", [f"{r.resume_seconds:.1f} s" for r in rounds]),
        ("noticed to verdict on memory", [f"{r.verdict.state_seconds:.2f} s" for r in rounds]),
        (
            "clients' tokens, before and after",
            [f"{r.tokens_before}, {r.tokens_after}" for r in rounds],
        ),
        ("clients' streams", [r.streams for r in rounds]),
    ]
