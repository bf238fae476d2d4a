"""Re-reads every row that live sessions hold, in bounded pieces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine_adapters.report.attestations import SessionKv
from engine_adapters.vllm.kv_groups import ObservedGroup
from engine_adapters.vllm.rank_tables import GroupTable, RankTables, Slots


@dataclass(frozen=True, slots=True)
class _Held:
    row: int
    session_id: str
    first: int
    slots: Slots


def read_live(groups: Sequence[ObservedGroup], tables: RankTables) -> list[SessionKv]:
    """Digests of all live sessions' rows, position by position, as memory is now."""
    return [
        session
        for group in groups
        for session in _read_group(group, tables.groups[group.spec.group], tables)
    ]


def _read_group(group: ObservedGroup, table: GroupTable, tables: RankTables) -> Iterator[SessionKv]:
    held = [
        found
        for row, name, written in tables.live()
        if (found := _held(table, row, name, written, group.spec.sliding_window)) is not None
    ]
    if not held:
        return
    # One call for all sessions; the digester cuts it into pieces of bounded size.
    digests = group.digester.now(np.concatenate([session.slots for session in held]))
    at = 0
    for session in held:
        yield SessionKv(
            row=session.row,
            session_id=session.session_id,
            kv_group=group.spec.group,
            first_position=session.first,
            digests=digests[at : at + len(session.slots)],
        )
        at += len(session.slots)


def _held(table: GroupTable, row: int, name: str, written: int, window: int) -> _Held | None:
    first = first_held(written, window)
    positions = np.arange(first, written)
    slots = table.slots(np.full(len(positions), row), positions)
    # A window's oldest block may be given up already; what is held has no gap after it.
    given_up = np.flatnonzero(slots < table.block_size)
    if len(given_up):
        skipped = int(given_up[-1]) + 1
        first, slots = first + skipped, slots[skipped:]
    return _Held(row, name, first, slots) if len(slots) else None


def first_held(written: int, window: int) -> int:
    """First position whose row the next token can see; older ones may be given up."""
    return max(0, written - window + 1) if window else 0
