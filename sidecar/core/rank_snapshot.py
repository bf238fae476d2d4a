"""Snapshots of a RankState as bytes.

Layout (little-endian; arrays with their u32 length first): magic "TWR1", u32 version; steps,
reason of a hole, weights, generator digests; then by KV group its declaration and its known slots.
"""

from typing import TYPE_CHECKING

import numpy as np

from sidecar.core.errors import SnapshotCorrupt
from sidecar.core.events import KvGroup, SamplerDigest, TensorDigest, Witness
from sidecar.core.packing import Packer, Unpacker

if TYPE_CHECKING:
    from sidecar.core.rank_state import RankState, SlotRecord

_MAGIC = b"TWR1"
_VERSION = 1


def pack_rank(state: "RankState") -> bytes:
    packer = Packer(_MAGIC, _VERSION)
    packer.u64(state.step)
    packer.u64(state.witnessed_step)
    packer.u64(state.late_steps)
    packer.optional_text(state.broken)
    packer.u32(state.weights_witness)
    packer.u32(len(state.weights))
    for name, tensor in state.weights.items():
        packer.text(name)
        packer.u64(tensor.digest)
        packer.u64(tensor.size)
    packer.u32(len(state.sampler))
    for row, sampler in state.sampler.items():
        packer.u32(row)
        packer.u64(sampler.step)
        packer.u64(sampler.digest)
    packer.u32(len(state.slots))
    for record in state.slots.values():
        _pack_group(packer, record.group)
        _pack_slots(packer, record)
    return packer.done()


def unpack_rank(cls: "type[RankState]", data: bytes) -> "RankState":
    """Raises SnapshotCorrupt."""
    unpacker = Unpacker(data, _MAGIC, _VERSION)
    state = cls(())
    state.step = unpacker.u64()
    state.witnessed_step = unpacker.u64()
    state.late_steps = unpacker.u64()
    state.broken = unpacker.optional_text()
    state.weights_witness = _witness(unpacker.u32())
    for _ in range(unpacker.u32()):
        name = unpacker.text()
        state.weights[name] = TensorDigest(digest=unpacker.u64(), size=unpacker.u64())
    for _ in range(unpacker.u32()):
        row = unpacker.u32()
        state.sampler[row] = SamplerDigest(step=unpacker.u64(), digest=unpacker.u64())
    for _ in range(unpacker.u32()):
        _unpack_slots(unpacker, state.declare(_unpack_group(unpacker)))
    unpacker.end()
    return state


def _witness(value: int) -> Witness:
    if value > max(Witness):
        raise SnapshotCorrupt(f"witness in snapshot is {value}, the most is {int(max(Witness))}")
    return Witness(value)


def _pack_group(packer: Packer, group: KvGroup) -> None:
    for number in (
        group.group,
        group.block_size,
        group.blocks,
        group.row_bytes,
        group.sliding_window,
    ):
        packer.u32(number)
    packer.u32s(np.array(group.layers, dtype=np.uint32))
    packer.u32s(np.array(group.digest_layers, dtype=np.uint32))


def _unpack_group(unpacker: Unpacker) -> KvGroup:
    number, block_size, blocks, row_bytes, sliding_window = (unpacker.u32() for _ in range(5))
    return KvGroup(
        group=number,
        block_size=block_size,
        blocks=blocks,
        row_bytes=row_bytes,
        sliding_window=sliding_window,
        layers=tuple(unpacker.u32s().tolist()),
        digest_layers=tuple(unpacker.u32s().tolist()),
    )


def _pack_slots(packer: Packer, record: "SlotRecord") -> None:
    known = np.flatnonzero(record.witness).astype(np.uint32)
    packer.u32s(known)
    packer.u64s(record.digests[known])
    packer.u64s(record.step[known])
    packer.u8s(record.witness[known])


def _unpack_slots(unpacker: Unpacker, record: "SlotRecord") -> None:
    slots = unpacker.u32s()
    digests = unpacker.u64s()
    step = unpacker.u64s()
    witness = unpacker.u8s()
    count = len(slots)
    width = record.group.digests
    if (len(digests), len(step), len(witness)) != (count * width, count, count):
        raise SnapshotCorrupt(
            f"KV group {record.group.group} in snapshot has {count} slots, but {len(digests)} "
            f"digests, {len(step)} steps and {len(witness)} witnesses"
        )
    if not count:
        return
    highest = int(slots.max())
    if highest >= record.group.slots:
        raise SnapshotCorrupt(
            f"slot {highest} in snapshot, KV group {record.group.group} has {record.group.slots}"
        )
    _witness(int(witness.max()))
    record.write_known(slots, digests.reshape(count, width), step, witness)
