"""From vLLM's SchedulerOutput to the columns of a launch, and from lists of tokens back."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine_adapters.report.records import BlockUpdate
from engine_adapters.vllm.errors import OutOfStepError
from engine_adapters.vllm.metadata import Rows
from engine_adapters.vllm.session_book import EMPTY_BATCH, Batch, Int64, SessionBook


@dataclass(frozen=True, slots=True)
class Launch:
    """A step that is under way. `counts` None: 1 each; `drafts` None: 0 each."""

    step: int
    batch: Batch
    starts: Int64
    counts: Int64 | None
    drafts: Int64 | None
    kv_life: Int64
    epoch: int

    @property
    def moves(self) -> Int64 | int:
        return 1 if self.counts is None else self.counts


class LaunchReader:
    """Reads scheduler outputs of vLLM 0.26 to 0.33; keeps the last batch to know it again."""

    def __init__(self, book: SessionBook) -> None:
        self._book = book
        self._batch = EMPTY_BATCH
        self._changes = 0

    def read(self, output: Any, step: int) -> Launch:
        """The step's columns; positions of the book advance by what it computes."""
        batch = self._same_or_new_batch(output)
        rows = batch.rows
        starts = self._starts(output, batch)
        counts = drafts = None
        if output.total_num_scheduled_tokens != len(rows):
            scheduled = output.num_scheduled_tokens
            counts = np.array([scheduled[name] for name in batch.names], np.int64)
        if output.scheduled_spec_decode_tokens:
            spec = output.scheduled_spec_decode_tokens
            drafts = np.array([len(spec.get(name, ())) for name in batch.names], np.int64)
        launch = Launch(
            step, batch, starts, counts, drafts, self._book.kv_life[rows], self._book.epoch
        )
        self._advance(launch)
        return launch

    def _same_or_new_batch(self, output: Any) -> Batch:
        scheduled = output.num_scheduled_tokens
        if self._changes == self._book.changes and list(scheduled) == self._batch.names:
            return self._batch
        by_id = self._book.by_id
        names = [name for name in scheduled if name in by_id]
        self._changes = self._book.changes
        sessions = [by_id[name] for name in names]
        self._batch = Batch(
            names=names,
            sessions=sessions,
            rows=np.array([session.row for session in sessions], np.int64),
            tokens=[session.tokens for session in sessions],
        )
        return self._batch

    def _starts(self, output: Any, batch: Batch) -> Int64:
        cached = output.scheduled_cached_reqs
        if not output.scheduled_new_reqs and cached.req_ids == batch.names:
            return np.array(cached.num_computed_tokens, np.int64)
        by_name = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for new in output.scheduled_new_reqs:
            by_name[new.req_id] = new.num_computed_tokens
        return np.array([by_name[name] for name in batch.names], np.int64)

    def _advance(self, launch: Launch) -> None:
        book, rows = self._book, launch.batch.rows
        in_flight = book.in_flight[rows]
        jumped = launch.starts != book.computed[rows] + in_flight
        if jumped.any():
            # A hit in the prefix cache: computed by an earlier holder of the blocks.
            book.computed[rows[jumped]] = np.maximum(launch.starts - in_flight, 0)[jumped]
        book.in_flight[rows] = in_flight + launch.moves

    def tables(self, output: Any) -> list[BlockUpdate]:
        """What changes in block tables. New and resumed requests bring their whole table."""
        updates: list[BlockUpdate] = []
        for new in output.scheduled_new_reqs:
            self._table(updates, new.req_id, new.block_ids, is_whole=True)
        cached = output.scheduled_cached_reqs
        new_blocks = cached.new_block_ids
        resumed = cached.resumed_req_ids
        # None where nothing is new: of many sessions in a step few get a block.
        named = zip(cached.req_ids, new_blocks, strict=True)
        for name, blocks in itertools.compress(named, new_blocks):
            self._table(updates, name, blocks, is_whole=name in resumed)
        return updates

    def _table(
        self,
        updates: list[BlockUpdate],
        name: str,
        blocks: Sequence[Sequence[int]],
        *,
        is_whole: bool,
    ) -> None:
        session = self._book.by_id.get(name)
        if session is None:
            return
        lengths = session.table_lengths
        if is_whole or not lengths:
            lengths[:] = [0] * len(blocks)
        for group, ids in enumerate(blocks):
            if ids:
                updates.append(BlockUpdate(session.row, group, lengths[group], list(ids)))
                lengths[group] += len(ids)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step appended and took back. None: the contract's empty column."""

    tokens: list[int]
    token_counts: Int64 | None
    rejected: Int64 | None


def read_outcome(book: SessionBook, launch: Launch) -> Outcome:
    """The tokens that the engine appended since the last outcome; positions advance.

    Raises:
        OutOfStepError: a session has fewer tokens than before.

    """
    batch = launch.batch
    rows = batch.rows
    emitted = book.emitted[rows]
    lengths = list(map(len, batch.tokens))
    if launch.drafts is None and sum(lengths) == int(emitted.sum()) + len(rows):
        # Without drafts a step appends one token at most, so this is one each.
        tokens = [appended[-1] for appended in batch.tokens]
        book.emitted[rows] = emitted + 1
        return Outcome(tokens, None, _commit_positions(book, launch))
    grown = np.array(lengths, np.int64) - emitted
    tokens = _appended(batch, grown)
    book.emitted[rows] = emitted + grown
    return Outcome(tokens, grown, _commit_positions(book, launch))


def _appended(batch: Batch, grown: Int64) -> list[int]:
    tokens: list[int] = []
    for appended, count, session in zip(batch.tokens, grown.tolist(), batch.sessions, strict=True):
        if count > 0:
            tokens.extend(appended[-count:])
        elif count < 0:
            raise OutOfStepError(
                f"tokens of {session.session_id}", len(appended), len(appended) - count
            )
    return tokens


def _commit_positions(book: SessionBook, launch: Launch) -> Int64 | None:
    """Moves what was in flight to computed, less rejected drafts; gives those."""
    rows, moves = launch.batch.rows, launch.moves
    if launch.epoch == book.epoch and launch.drafts is None:
        book.in_flight[rows] -= moves
        book.computed[rows] += moves
        return None
    kept = book.kv_life[rows] == launch.kv_life
    counts = np.broadcast_to(np.asarray(moves, np.int64), rows.shape)
    book.in_flight[rows[kept]] -= counts[kept]
    rejected = _rejected(book, launch, kept) if launch.drafts is not None else None
    moved = counts if rejected is None else counts - rejected
    book.computed[rows[kept]] += moved[kept]
    return rejected


def _rejected(book: SessionBook, launch: Launch, kept: npt.NDArray[np.bool_]) -> Int64:
    """Drafts taken back, by row: how far the engine's own position fell behind the record's."""
    assert launch.drafts is not None  # noqa: S101 - called only for launches with drafts
    rows = launch.batch.rows
    live = np.array(
        [session.request.num_computed_tokens for session in launch.batch.sessions], np.int64
    )
    expected = book.computed[rows] + launch.moves + book.in_flight[rows]
    return np.where(kept, np.clip(expected - live, 0, launch.drafts), 0)


def digest_range(launch: Launch, pending: Sequence[Launch]) -> tuple[Rows, Rows | None]:
    """Positions (starts, counts) whose rows the ranks digest after the step.

    Where earlier steps with drafts have no outcome yet, the engine launches at the position
    that holds if all are accepted, and its workers correct it on the device. The rows that may
    be written then begin lower; what lies there is digested as it is after the step.
    """
    open_drafts = [earlier for earlier in pending if earlier.drafts is not None]
    if not open_drafts:
        return launch.starts, launch.counts
    lower: dict[int, int] = {}
    for earlier in open_drafts:
        assert earlier.drafts is not None  # noqa: S101 - filtered above
        for row, drafts in zip(earlier.batch.rows.tolist(), earlier.drafts.tolist(), strict=True):
            lower[row] = lower.get(row, 0) + drafts
    down = np.array([lower.get(row, 0) for row in launch.batch.rows.tolist()], np.int64)
    down = np.minimum(down, launch.starts)
    return launch.starts - down, launch.moves + down
