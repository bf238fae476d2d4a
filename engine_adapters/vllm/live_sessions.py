"""Reads what vLLM's scheduler holds in memory right now, for an attestation.

Nothing here comes from the adapter's record but the row numbers and how many tokens are under
way: tokens, positions and block tables are the engine's own objects.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.attestations import LiveSession, SchedulerBody
from engine_adapters.report.records import BlockUpdate
from engine_adapters.vllm.launches import Launch
from engine_adapters.vllm.sampling import sampling_of
from engine_adapters.vllm.session_book import Session, SessionBook

# Two readings this far apart that are equal were not taken while the engine moved: scheduling
# or updating a large batch takes a few milliseconds.
_STABLE_S = 0.02
_TRIES = 5

# By the names of vLLM's RequestStatus; everything else is an error's.
_REASONS = {
    "FINISHED_STOPPED": pb.SESSION_END_REASON_STOPPED,
    "FINISHED_REPETITION": pb.SESSION_END_REASON_STOPPED,
    "FINISHED_LENGTH_CAPPED": pb.SESSION_END_REASON_LENGTH,
    "FINISHED_IGNORED": pb.SESSION_END_REASON_LENGTH,
    "FINISHED_ABORTED": pb.SESSION_END_REASON_ABORTED,
}
_TableOf = Callable[[str], Sequence[Sequence[int]]]


def end_reason(request: Any) -> int:
    """Why a finished request ended, as the contract numbers it."""
    return int(_REASONS.get(request.status.name, pb.SESSION_END_REASON_ERROR))


class LiveReader:
    """`table_of(request_id)` gives the engine's own block ids, one list per KV group."""

    def __init__(self, table_of: _TableOf) -> None:
        self._table_of = table_of

    def read(
        self, book: SessionBook, committed: int, not_advanced: Launch | None = None
    ) -> SchedulerBody:
        """All unfinished sessions that a launch has told of, at the boundary that stands now."""
        ahead = _ahead(not_advanced)
        return SchedulerBody(
            committed_step=committed,
            sessions=[
                self._session(session, int(book.in_flight[session.row]), ahead)
                for session in book
                if session.announced
            ],
        )

    def read_stable(self, book: SessionBook, committed: int) -> SchedulerBody | None:
        """As `read`, from a thread that is not the engine's: read twice until both are equal.
        None if the engine moves on all the time.
        """
        before: SchedulerBody | None = None
        for _ in range(_TRIES):
            try:
                now = self.read(book, committed)
            except RuntimeError:
                # A dictionary changed while it was read.
                before = None
            else:
                if before is not None and _equal(before, now):
                    return now
                before = now
            time.sleep(_STABLE_S)
        return None

    def _session(self, session: Session, in_flight: int, ahead: dict[int, int]) -> LiveSession:
        request = session.request
        tokens = np.array(list(request.all_token_ids), np.uint32)
        status = request.status.name
        advanced = in_flight - ahead.get(session.row, 0)
        return LiveSession(
            row=session.row,
            session_id=request.request_id,
            emitted=len(tokens),
            computed=max(int(request.num_computed_tokens) - advanced, 0),
            in_flight=in_flight,
            prompt_length=int(request.num_prompt_tokens),
            tokens=tokens,
            sampling=sampling_of(request),
            blocks=[
                BlockUpdate(session.row, group, 0, np.array(blocks, np.uint32))
                for group, blocks in enumerate(self._table_of(request.request_id))
                if len(blocks)
            ],
            waiting=status.startswith("WAITING") or status == "PREEMPTED",
        )


def _ahead(launch: Launch | None) -> dict[int, int]:
    """Tokens by row that the record counts as in flight and the engine does not count yet."""
    if launch is None:
        return {}
    counts = np.broadcast_to(np.asarray(launch.moves, np.int64), launch.batch.rows.shape)
    return dict(zip(launch.batch.rows.tolist(), counts.tolist(), strict=True))


def _equal(a: SchedulerBody, b: SchedulerBody) -> bool:
    return a.committed_step == b.committed_step and [_plain(s) for s in a.sessions] == [
        _plain(s) for s in b.sessions
    ]


def _plain(session: LiveSession) -> tuple[object, ...]:
    return (
        session.session_id,
        session.computed,
        session.in_flight,
        np.asarray(session.tokens).tobytes(),
        tuple((block.kv_group, np.asarray(block.blocks).tobytes()) for block in session.blocks),
    )
