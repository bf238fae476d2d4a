"""Starting a scheduler's record at an attestation: adapter attached late, or after a hole."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sidecar.core.errors import BaselineIncomplete
from sidecar.core.events import Launch, LiveSession, SchedulerAttestation, Witness
from sidecar.core.positions import PendingStep, column
from sidecar.core.sessions import Session, token_buffer

if TYPE_CHECKING:
    from sidecar.core.scheduler_state import SchedulerState


def launch_in_doubt(launch: Launch) -> PendingStep:
    """A launched step whose sessions are not known, kept until a baseline names them."""
    rows = launch.rows.astype(np.int64)
    counts = column(launch.counts, rows, 1, launch.step, "number of counts")
    drafts = None
    if launch.drafts is not None:
        drafts = column(launch.drafts, rows, 0, launch.step, "number of drafts")
    unknown = np.zeros(len(rows), np.int64)
    return PendingStep(launch.step, rows, counts, drafts, unknown, unknown)


def start_from_attestation(
    state: "SchedulerState", attestation: SchedulerAttestation, pending: Sequence[PendingStep]
) -> None:
    """Fills an empty state. Raises BaselineIncomplete where `pending`, the steps after
    `committed` up to `launched`, does not explain the attested positions.
    """
    state.launched = state.witnessed_launched = attestation.launched
    state.committed = state.witnessed_committed = attestation.committed
    state.origin = Witness.BASELINE
    for live in attestation.sessions:
        _open(state, live)
    steps = [each.step for each in pending]
    in_flight = any(live.in_flight for live in attestation.sessions)
    wanted = list(range(attestation.committed + 1, attestation.launched + 1))
    if steps != wanted and (in_flight or steps):
        raise BaselineIncomplete(
            f"attestation at launched {attestation.launched}, committed {attestation.committed} "
            f"needs the launches of steps {wanted}, given are {steps}"
        )
    if not steps:
        # Nothing of these steps was in flight: empty steps stand for them.
        none = np.zeros(0, np.int64)
        pending = [PendingStep(step, none, none, None, none, none) for step in wanted]
    writers = _writers(attestation.sessions, pending)
    for each in pending:
        state.pending.append(_named(state, each, writers))


def _open(state: "SchedulerState", live: LiveSession) -> None:
    session = Session(
        row=live.row,
        session_id=live.session_id,
        prompt_length=live.prompt_length,
        sampling=live.sampling,
        cache_salt_digest=0,
        started_step=state.launched,
        tokens=token_buffer(live.tokens),
        columns=state.columns,
        tables=block_tables(live),
    )
    state.open_row(session)
    state.columns.computed[live.row] = live.computed
    state.columns.in_flight[live.row] = live.in_flight


def block_tables(live: LiveSession) -> dict[int, list[int]]:
    """The block tables of an attested session by KV group."""
    tables: dict[int, list[int]] = {}
    for update in live.blocks:
        table = tables.setdefault(update.kv_group, [])
        table[update.offset :] = update.blocks.tolist()
    return tables


def _writers(
    sessions: Sequence[LiveSession], pending: Sequence[PendingStep]
) -> frozenset[tuple[int, int]]:
    """(step, row) of steps in flight that write a session's present KV: its newest ones, as many
    as it has tokens in flight. Older ones write KV that was given up meanwhile (preemption).
    """
    writers = set()
    left = {live.row: live.in_flight for live in sessions}
    for each in reversed(pending):
        for row, count in zip(each.rows.tolist(), each.counts.tolist(), strict=True):
            if left.get(row):
                left[row] -= count
                writers.add((each.step, row))
    for live in sessions:
        if left[live.row]:
            raise BaselineIncomplete(
                f"session {live.session_id!r} has {live.in_flight} tokens in flight, the launches "
                f"explain {live.in_flight - left[live.row]}"
            )
    return frozenset(writers)


def _named(
    state: "SchedulerState", pending: PendingStep, writers: frozenset[tuple[int, int]]
) -> PendingStep:
    """The pending step with the sessions that hold its rows now; -1 for rows that nobody does."""
    life: NDArray[np.int64] = np.full(len(pending.rows), -1, np.int64)
    kv_life = life.copy()
    for i, row in enumerate(pending.rows.tolist()):
        if row in state.sessions:
            life[i] = state.columns.life[row]
            if (pending.step, row) in writers:
                kv_life[i] = state.columns.kv_life[row]
            state.columns.last_step[row] = pending.step
        else:
            state.columns.reserve(row)
    return replace(pending, life=life, kv_life=kv_life)
