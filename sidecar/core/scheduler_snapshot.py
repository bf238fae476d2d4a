"""Snapshots of a SchedulerState as bytes.

Layout (little-endian; arrays with their u32 length first): magic "TWS1", u32 version; the
boundary, what of it was witnessed, origin, reason of a hole, counter of lives; then sessions;
then steps in flight.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from sidecar.core.errors import SnapshotCorrupt
from sidecar.core.events import U64, Sampling, Witness
from sidecar.core.packing import Packer, Unpacker
from sidecar.core.positions import PendingStep
from sidecar.core.sessions import Session, token_buffer

if TYPE_CHECKING:
    from sidecar.core.scheduler_state import SchedulerState

_MAGIC = b"TWS1"
_VERSION = 1
# A row that would make the columns larger than this cannot come from the wire.
_MAX_ROW = 1 << 20
_DEFAULTS: Mapping[str, Any] = asdict(Sampling())


def pack_scheduler(state: "SchedulerState") -> bytes:
    packer = Packer(_MAGIC, _VERSION)
    for number in (
        state.launched,
        state.committed,
        state.witnessed_launched,
        state.witnessed_committed,
        int(state.origin),
        state.lives,
    ):
        packer.u64(number)
    packer.optional_text(state.broken)
    packer.u32(len(state.sessions))
    for session in state.sessions.values():
        _pack_session(packer, session)
    packer.u32(len(state.pending))
    for pending in state.pending:
        _pack_pending(packer, pending)
    return packer.done()


def unpack_scheduler(state: "SchedulerState", data: bytes) -> None:
    """Fills an empty state. Raises SnapshotCorrupt."""
    unpacker = Unpacker(data, _MAGIC, _VERSION)
    state.launched = unpacker.u64()
    state.committed = unpacker.u64()
    state.witnessed_launched = unpacker.u64()
    state.witnessed_committed = unpacker.u64()
    state.origin = Witness(_bounded(unpacker.u64(), max(Witness), "origin"))
    lives = unpacker.u64()
    state.broken = unpacker.optional_text()
    for _ in range(unpacker.u32()):
        _unpack_session(unpacker, state)
    state.lives = lives
    for _ in range(unpacker.u32()):
        pending = _unpack_pending(unpacker)
        if len(pending.rows):
            state.columns.reserve(_bounded(int(pending.rows.max()), _MAX_ROW, "row"))
        state.pending.append(pending)
    unpacker.end()


def _bounded(value: int, limit: int, what: str) -> int:
    if value > limit:
        raise SnapshotCorrupt(f"{what} in snapshot is {value}, the most is {int(limit)}")
    return value


def _pack_session(packer: Packer, session: Session) -> None:
    columns, row = session.columns, session.row
    packer.u32(row)
    packer.text(session.session_id)
    packer.u32(session.prompt_length)
    packer.text(_sampling_text(session.sampling))
    for number in (
        session.cache_salt_digest,
        session.started_step,
        session.last_step,
        session.computed,
        session.in_flight,
        int(columns.life[row]),
        int(columns.kv_life[row]),
    ):
        packer.u64(number)
    packer.optional_text(session.doubt)
    packer.u32s(session.token_array())
    packer.u32(len(session.tables))
    for kv_group, table in session.tables.items():
        packer.u32(kv_group)
        packer.u32s(np.array(table, dtype=np.uint32))


def _unpack_session(unpacker: Unpacker, state: "SchedulerState") -> None:
    row = _bounded(unpacker.u32(), _MAX_ROW, "row")
    if row in state.sessions:
        raise SnapshotCorrupt(f"row {row} is in the snapshot twice")
    session_id = unpacker.text()
    prompt_length = unpacker.u32()
    sampling = _sampling(unpacker.text())
    salt, started_step, last_step, computed, in_flight, life, kv_life = (
        unpacker.u64() for _ in range(7)
    )
    doubt = unpacker.optional_text()
    tokens = token_buffer(unpacker.u32s())
    tables = {}
    for _ in range(unpacker.u32()):
        kv_group = unpacker.u32()
        tables[kv_group] = unpacker.u32s().tolist()
    columns = state.columns
    state.open_row(
        Session(
            row=row,
            session_id=session_id,
            prompt_length=prompt_length,
            sampling=sampling,
            cache_salt_digest=salt,
            started_step=started_step,
            tokens=tokens,
            columns=columns,
            tables=tables,
            doubt=doubt,
        )
    )
    largest = 1 << 62
    columns.computed[row] = _bounded(computed, largest, "computed")
    columns.in_flight[row] = _bounded(in_flight, largest, "in_flight")
    columns.last_step[row] = _bounded(last_step, largest, "last step")
    columns.life[row] = _bounded(life, largest, "life")
    columns.kv_life[row] = _bounded(kv_life, largest, "KV life")


def _pack_pending(packer: Packer, pending: PendingStep) -> None:
    packer.u64(pending.step)
    packer.u32s(pending.rows.astype(np.uint32))
    packer.u32s(pending.counts.astype(np.uint32))
    packer.u32(0 if pending.drafts is None else 1)
    if pending.drafts is not None:
        packer.u32s(pending.drafts.astype(np.uint32))
    packer.u64s(pending.life.view(np.uint64))
    packer.u64s(pending.kv_life.view(np.uint64))


def _unpack_pending(unpacker: Unpacker) -> PendingStep:
    step = unpacker.u64()
    rows = unpacker.u32s().astype(np.int64)
    counts = unpacker.u32s().astype(np.int64)
    has_drafts = _bounded(unpacker.u32(), 1, "presence of drafts")
    drafts = unpacker.u32s().astype(np.int64) if has_drafts else None
    life: U64 = unpacker.u64s()
    kv_life: U64 = unpacker.u64s()
    lengths = {len(rows), len(counts), len(life), len(kv_life)}
    if len(lengths) != 1 or (drafts is not None and len(drafts) != len(rows)):
        raise SnapshotCorrupt(f"columns of step {step} in snapshot differ in length")
    return PendingStep(step, rows, counts, drafts, life.view(np.int64), kv_life.view(np.int64))


def _sampling_text(sampling: Sampling) -> str:
    different = {
        name: value for name, value in asdict(sampling).items() if value != _DEFAULTS[name]
    }
    return json.dumps(different, separators=(",", ":"))


def _sampling(text: str) -> Sampling:
    try:
        values = json.loads(text)
        known = {field.name for field in fields(Sampling)}
        if not isinstance(values, dict) or not known.issuperset(values):
            raise SnapshotCorrupt(f"sampling in snapshot is {text[:80]!r}")
    except json.JSONDecodeError as error:
        raise SnapshotCorrupt(f"sampling in snapshot is {text[:80]!r}") from error
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Sampling(**given)
