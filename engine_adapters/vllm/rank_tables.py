"""What a rank knows of the sessions: names, block tables, how much is written. numpy only."""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from engine_adapters.report.columns import Column
from engine_adapters.vllm.metadata import Rows, StepMetadata

Slots = npt.NDArray[np.int64]
_NULL_BLOCK = 0


class GroupTable:
    """Block tables of one KV group, [rows][blocks], grown as needed."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._blocks: Slots = np.zeros((64, 64), np.int64)

    def update(self, row: int, offset: int, blocks: Column) -> None:
        """Blocks from `offset` on. What is behind is null already, except in a whole table."""
        end = offset + len(blocks)
        if row >= len(self._blocks) or end > self._blocks.shape[1]:
            self._reserve(row, end)
        if offset and len(blocks) == 1:
            self._blocks[row, offset] = blocks[0]
            return
        self._blocks[row, offset:end] = blocks
        self._blocks[row, end:] = _NULL_BLOCK

    def clear(self, row: int) -> None:
        if row < len(self._blocks):
            self._blocks[row] = _NULL_BLOCK

    def slots(self, rows: Rows, positions: Slots) -> Slots:
        """Slot of each (row, position). Positions without a block give slots below
        `block_size`, the null block's.
        """
        # One flat column: indexing by two, like `take`, lets go of Python's lock, and getting
        # it back from the sender's thread costs more than all the rest.
        entry = rows * self._blocks.shape[1] + positions // self.block_size
        blocks: Slots = self._blocks.reshape(-1)[entry]
        return blocks * self.block_size + positions % self.block_size

    def _reserve(self, row: int, width: int) -> None:
        rows, columns = self._blocks.shape
        grown = np.zeros(
            (rows if row < rows else 2 * row, columns if width <= columns else 2 * width), np.int64
        )
        grown[:rows, :columns] = self._blocks
        self._blocks = grown


class RankTables:
    """Sessions as the scheduler told of them, at the last step whose metadata came in."""

    def __init__(self, block_sizes: Mapping[int, int]) -> None:
        """`block_sizes` by the engine's number of the KV group."""
        self.groups = {group: GroupTable(size) for group, size in block_sizes.items()}
        self._names: dict[int, str] = {}
        # By row: KV is written below this position.
        self._written: Slots = np.zeros(64, np.int64)

    def apply(self, step: StepMetadata) -> None:
        """What the step's launch changes, before it writes anything."""
        for row in step.ended:
            self._forget(row)
            self._names.pop(row, None)
        for row, name in step.started:
            self._forget(row)
            self._names[row] = name
        for row in step.preempted:
            self._forget(row)
        for update in step.tables:
            # Groups without a layer on this rank (pipeline parallel) are not ours.
            group = self.groups.get(update.kv_group)
            if group is not None:
                group.update(update.row, update.offset, update.blocks)
        if len(step.rows):
            self._reserve(int(step.rows.max()))
            # Hits in the prefix cache: written by another session, or in an earlier life.
            self._written[step.rows] = np.maximum(self._written[step.rows], step.starts)

    def finished(self, step: StepMetadata) -> None:
        """The step has written its rows."""
        if len(step.rows):
            self._written[step.rows] = step.starts + (1 if step.counts is None else step.counts)

    def live(self) -> Iterator[tuple[int, str, int]]:
        """(row, session id, KV is written below) of all sessions that hold KV."""
        for row, name in self._names.items():
            written = int(self._written[row]) if row < len(self._written) else 0
            if written:
                yield row, name, written

    def _forget(self, row: int) -> None:
        self._reserve(row)
        self._written[row] = 0
        for group in self.groups.values():
            group.clear(row)

    def _reserve(self, row: int) -> None:
        if row >= len(self._written):
            grown = np.zeros(2 * row, np.int64)
            grown[: len(self._written)] = self._written
            self._written = grown


def written_positions(step: StepMetadata) -> tuple[Rows, Slots]:
    """(rows, positions) of all tokens that the step writes, in the launch's order."""
    if step.counts is None:
        return step.rows, step.starts
    total = int(step.counts.sum())
    first = np.cumsum(step.counts) - step.counts
    within = np.arange(total) - np.repeat(first, step.counts)
    return np.repeat(step.rows, step.counts), np.repeat(step.starts, step.counts) + within
