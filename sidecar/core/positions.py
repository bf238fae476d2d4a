"""Positions of all rows in columns, and how a launch and its outcome move them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidecar.core.errors import BadColumns, UnknownRow
from sidecar.core.events import U32, Commit, SessionEnd


class PositionColumns:
    """Positions of all rows, so that a step of 256 rows is a few array operations.

    `life` counts sessions and is 0 for a row that nobody holds; `kv_life` changes also when a
    session loses its KV (preemption). A step in flight remembers both, so that its outcome never
    reaches a later holder of the row or KV that was given up.
    """

    def __init__(self) -> None:
        self.computed: NDArray[np.int64] = np.zeros(0, np.int64)
        self.in_flight: NDArray[np.int64] = np.zeros(0, np.int64)
        self.life: NDArray[np.int64] = np.zeros(0, np.int64)
        self.kv_life: NDArray[np.int64] = np.zeros(0, np.int64)
        self.last_step: NDArray[np.int64] = np.zeros(0, np.int64)

    def reserve(self, row: int) -> None:
        """Makes room for `row`. Rows are small numbers; the wire bounds them."""
        have = len(self.computed)
        if row < have:
            return
        more = max(row + 1, 2 * have, 64) - have
        for name in ("computed", "in_flight", "life", "kv_life", "last_step"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, np.int64)]))

    def clear(self, row: int) -> None:
        self.computed[row] = 0
        self.in_flight[row] = 0
        self.life[row] = 0
        self.kv_life[row] = 0
        self.last_step[row] = 0


@dataclass(frozen=True, slots=True, eq=False)
class PendingStep:
    """A launched step whose outcome is not known yet. Columns are by row of the launch."""

    step: int
    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    drafts: NDArray[np.int64] | None
    life: NDArray[np.int64]
    kv_life: NDArray[np.int64]


def column(
    given: U32 | None, rows: NDArray[np.int64], default: int, step: int, what: str
) -> NDArray[np.int64]:
    """The column as int64, `default` in every row where it was left out.

    Raises BadColumns where its length is not that of `rows`.
    """
    if given is None:
        return np.full(len(rows), default, np.int64)
    if len(given) != len(rows):
        raise BadColumns(step, what, len(given), len(rows))
    return given.astype(np.int64)


def still_theirs(
    ended: tuple[SessionEnd, ...], pending: PendingStep, columns: PositionColumns
) -> tuple[SessionEnd, ...]:
    """Ends of sessions that hold their row still: one that a later launch had already ended
    (aborted in flight) must not end the row's next holder.
    """
    if not ended:
        return ()
    life = dict(zip(pending.rows.tolist(), pending.life.tolist(), strict=True))
    return tuple(
        end for end in ended if end.row not in life or life[end.row] == int(columns.life[end.row])
    )


def check_rows(columns: PositionColumns, rows: NDArray[np.int64], step: int) -> None:
    """Raises UnknownRow for a row that nobody holds, BadColumns for one that is named twice."""
    highest = int(rows.max())
    if highest >= len(columns.life):
        raise UnknownRow(highest, step, "launch")
    dead = columns.life[rows] == 0
    if dead.any():
        raise UnknownRow(int(rows[dead][0]), step, "launch")
    distinct = len(set(rows.tolist()))
    if distinct != len(rows):
        raise BadColumns(step, "number of distinct rows", distinct, len(rows))


def commit_positions(columns: PositionColumns, commit: Commit, pending: PendingStep) -> None:
    """Moves tokens from in flight to computed, without the rejected ones. Raises BadColumns."""
    rows, counts = pending.rows, pending.counts
    moved = counts
    if commit.rejected is not None:
        rejected = column(commit.rejected, rows, 0, commit.step, "number of rejected")
        moved = counts - rejected
        if (moved < 0).any():
            i = int(np.flatnonzero(moved < 0)[0])
            raise BadColumns(commit.step, "rejected tokens", int(rejected[i]), int(counts[i]))
    kept = columns.kv_life[rows] == pending.kv_life
    if not kept.all():
        rows, moved, counts = rows[kept], moved[kept], counts[kept]
    columns.computed[rows] += moved
    columns.in_flight[rows] -= counts
