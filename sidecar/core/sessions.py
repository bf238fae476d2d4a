"""Live sessions as the record has them."""

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sidecar.core.errors import BadColumns
from sidecar.core.events import U32, Commit, Sampling
from sidecar.core.positions import PendingStep, PositionColumns, column


@dataclass(slots=True, eq=False)
class Session:
    """A live session. Owned by its SchedulerState: read it, do not change it, and read it before
    the state moves on. `doubt` says why its positions cannot be relied on, None if they can.
    """

    row: int
    session_id: str
    prompt_length: int
    sampling: Sampling
    cache_salt_digest: int
    started_step: int
    tokens: "array[int]"
    columns: PositionColumns = field(repr=False)
    tables: dict[int, list[int]] = field(default_factory=dict)
    doubt: str | None = None

    @property
    def emitted(self) -> int:
        return len(self.tokens)

    @property
    def computed(self) -> int:
        return int(self.columns.computed[self.row])

    @property
    def in_flight(self) -> int:
        return int(self.columns.in_flight[self.row])

    @property
    def last_step(self) -> int:
        """Newest step that was launched with this session; 0: none since it started."""
        return int(self.columns.last_step[self.row])

    def token_array(self) -> U32:
        return np.array(self.tokens, dtype=np.uint32)


def token_buffer(tokens: U32) -> "array[int]":
    """A growing buffer of u32 token ids that begins with a copy of `tokens`."""
    buffer = array("I")
    buffer.frombytes(tokens.astype(np.uint32).tobytes())
    return buffer


def append_tokens(
    sessions: dict[int, Session], commit: Commit, pending: PendingStep, live: NDArray[np.bool_]
) -> None:
    """Appends an outcome's tokens to the sessions that are `live` still, by row of the launch.

    Raises BadColumns.
    """
    rows = pending.rows
    tokens = commit.tokens.tolist()
    if commit.token_counts is None:
        if len(tokens) != len(rows):
            raise BadColumns(commit.step, "number of tokens", len(tokens), len(rows))
        if live.all():
            for row, token in zip(rows.tolist(), tokens, strict=True):
                sessions[row].tokens.append(token)
            return
    counts = column(commit.token_counts, rows, 1, commit.step, "number of token counts")
    if int(counts.sum()) != len(tokens):
        raise BadColumns(commit.step, "number of tokens", len(tokens), int(counts.sum()))
    at = 0
    for row, count, alive in zip(rows.tolist(), counts.tolist(), live.tolist(), strict=True):
        if alive and count:
            sessions[row].tokens.extend(tokens[at : at + count])
        at += count
