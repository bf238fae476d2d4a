"""KV rows of one session on one rank: the scheduler's block table joined with the rank's record
by slot, against what the rank reads now by position.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidecar.core.baseline import block_tables
from sidecar.core.events import (
    NULL_BLOCK,
    U64,
    KvGroup,
    LiveSession,
    RankAttestation,
    SessionKv,
    Witness,
)
from sidecar.core.evidence import Outcome
from sidecar.core.rank_state import RankState, slots_of
from sidecar.core.sessions import Session
from sidecar.core.verdicts import Compared, Finding, Verdict

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]
# So many ranges of positions stand in a finding; `mismatches` counts all rows.
_RANGES_SHOWN = 64


@dataclass(frozen=True, slots=True, eq=False)
class RankKv:
    """A rank's record and what it attested, indexed by session and KV group."""

    rank: int
    expected: RankState
    attested: Mapping[tuple[str, int], Sequence[SessionKv]]


def index_attested(attestation: RankAttestation) -> Mapping[tuple[str, int], Sequence[SessionKv]]:
    by_session: dict[tuple[str, int], list[SessionKv]] = {}
    for kv in attestation.kv:
        by_session.setdefault((kv.session_id, kv.kv_group), []).append(kv)
    return by_session


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """One session in one KV group of one rank."""

    rank: int
    session: Session
    group: KvGroup


def compare_session_kv(kv: RankKv, session: Session, found: LiveSession, written: int) -> Outcome:
    """Every position below `written` in every KV group of the rank.

    Never judged: rows in the null block and rows that fell out of a sliding window. A position
    that is not recorded or not attested is INCOMPARABLE, and so is a session of which no row was
    compared although some were written. Can miss: rows that were wrong when they were recorded.
    """
    outcome = Outcome()
    found_tables = block_tables(found)
    for group in kv.expected.kv_groups:
        positions = _judged_positions(group, session, written)
        if not len(positions):
            continue
        table = session.tables.get(group.group, [])
        needed = int(positions[-1]) // group.block_size + 1
        if len(table) < needed:
            reason = (
                f"the recorded block table of KV group {group.group} has {len(table)} blocks, "
                f"{needed} are needed"
            )
            outcome += Outcome((_incomparable(kv.rank, session, reason),))
            continue
        place = _Place(kv.rank, session, group)
        outcome += _compare_tables(place, positions, table, found_tables)
        outcome += _compare_rows(kv, place, positions, table)
    if written and not outcome.compared.kv_rows and not outcome.findings:
        reason = f"none of {written} rows was compared"
        outcome += Outcome((_incomparable(kv.rank, session, reason),))
    return outcome


def _judged_positions(group: KvGroup, session: Session, written: int) -> Positions:
    """A row is needed while a coming token looks back to it; with everything launched counted,
    the next token is at computed + in_flight and sees `sliding_window` rows, itself included.
    """
    first = 0
    if group.sliding_window:
        first = max(0, session.computed + session.in_flight - group.sliding_window + 1)
    return np.arange(first, written, dtype=np.int64)


def _compare_tables(
    place: _Place,
    positions: Positions,
    table: Sequence[int],
    found_tables: Mapping[int, Sequence[int]],
) -> Outcome:
    """Blocks that hold judged positions. Blocks allocated ahead are not compared, nor is a table
    that was not attested.
    """
    group = place.group
    found = found_tables.get(group.group)
    if found is None:
        return Outcome()
    first, last = (int(positions[i]) // group.block_size for i in (0, -1))
    wrong = [
        i
        for i in range(first, last + 1)
        if i >= len(found) or (found[i] != table[i] and NULL_BLOCK not in (found[i], table[i]))
    ]
    if not wrong:
        return Outcome()
    blocks = np.zeros(last + 1, dtype=bool)
    blocks[wrong] = True
    return Outcome(
        (
            Finding(
                Verdict.KV_MISMATCH,
                f"block table of KV group {group.group} is not the recorded one at entry "
                f"{wrong[0]}: the session reads rows of other tokens",
                session_id=place.session.session_id,
                rank=place.rank,
                layers=group.layers,
                positions=ranges(positions[blocks[positions // group.block_size]]),
                expected=f"block {table[wrong[0]]}",
                found=f"block {found[wrong[0]]}" if wrong[0] < len(found) else "no block",
                mismatches=len(wrong),
            ),
        )
    )


def _compare_rows(kv: RankKv, place: _Place, positions: Positions, table: Sequence[int]) -> Outcome:
    session, group = place.session, place.group
    slots = slots_of(positions, table, group.block_size)
    owned = slots >= 0
    recorded, witness = kv.expected.lookup(group.group, slots)
    parts = kv.attested.get((session.session_id, group.group), ())
    if any(part.digests.shape[1] != group.digests for part in parts):
        reason = f"KV group {group.group} was attested with another number of digests per token"
        return Outcome((_incomparable(kv.rank, session, reason),))
    attested, have = _attested_rows(parts, positions, group)
    findings = []
    for rows, what in (
        (owned & ~have, "not attested: the rank did not read them"),
        (owned & have & (witness == Witness.UNKNOWN), "not recorded: " + _why_unknown(kv)),
    ):
        if rows.any():
            missing = positions[rows]
            findings.append(
                _incomparable(
                    kv.rank,
                    session,
                    f"{len(missing)} rows of KV group {group.group}, the first at position "
                    f"{missing[0]}, are {what}",
                    missing,
                )
            )
    judged = owned & have & (witness != Witness.UNKNOWN)
    findings += _mismatches(place, positions[judged], recorded[judged], attested[judged])
    compared = Compared(
        kv_rows=int(judged.sum()), kv_rows_late=int((judged & (witness == Witness.LATE)).sum())
    )
    return Outcome(tuple(findings), compared)


def _why_unknown(kv: RankKv) -> str:
    return kv.expected.broken or "the record began after they were written"


def _attested_rows(
    parts: Sequence[SessionKv], positions: Positions, group: KvGroup
) -> tuple[U64, Mask]:
    """Digests by judged position, and which positions were attested."""
    first, end = int(positions[0]), int(positions[-1]) + 1
    digests = np.zeros((end - first, group.digests), np.uint64)
    have = np.zeros(end - first, dtype=bool)
    for part in parts:
        low = max(first, part.first_position)
        high = min(end, part.first_position + len(part.digests))
        if low < high:
            taken = part.digests[low - part.first_position : high - part.first_position]
            digests[low - first : high - first] = taken
            have[low - first : high - first] = True
    return digests, have


def _mismatches(place: _Place, positions: Positions, recorded: U64, attested: U64) -> list[Finding]:
    """One finding for all layers that differ at the same positions."""
    different = recorded != attested
    if not different.any():
        return []
    by_rows: dict[bytes, list[int]] = {}
    for digest in np.flatnonzero(different.any(axis=0)).tolist():
        by_rows.setdefault(different[:, digest].tobytes(), []).append(digest)
    findings = []
    for digests in by_rows.values():
        rows = np.flatnonzero(different[:, digests[0]])
        layers = tuple(layer for digest in digests for layer in place.group.layers_of(digest))
        wrong = positions[rows]
        findings.append(
            Finding(
                Verdict.KV_MISMATCH,
                f"{len(rows)} KV rows of group {place.group.group} are not what rank "
                f"{place.rank} wrote, the first at position {wrong[0]}",
                session_id=place.session.session_id,
                rank=place.rank,
                layers=layers,
                positions=ranges(wrong),
                expected=f"{recorded[rows[0], digests[0]]:016x}",
                found=f"{attested[rows[0], digests[0]]:016x}",
                mismatches=len(rows),
            )
        )
    return findings


def _incomparable(
    rank: int, session: Session, reason: str, positions: Positions | None = None
) -> Finding:
    return Finding(
        Verdict.INCOMPARABLE,
        f"KV on rank {rank}: {reason}",
        session_id=session.session_id,
        rank=rank,
        positions=() if positions is None else ranges(positions),
    )


def ranges(positions: Positions) -> tuple[tuple[int, int], ...]:
    """Ascending positions as half-open ranges, at most the first 64 of them."""
    if not len(positions):
        return ()
    breaks = np.flatnonzero(np.diff(positions) != 1) + 1
    runs = np.split(positions, breaks)[:_RANGES_SHOWN]
    return tuple((int(run[0]), int(run[-1]) + 1) for run in runs)
