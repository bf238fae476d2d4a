"""A rank's record folded into what every slot of its KV cache should hold."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sidecar.core.errors import BadColumns, BadKvRows, OutOfOrderStep, UnknownKvGroup
from sidecar.core.events import (
    NULL_BLOCK,
    U32,
    U64,
    Hole,
    KvGroup,
    KvRows,
    RankAttestation,
    RankStep,
    SamplerDigest,
    TensorDigest,
    WeightDigests,
    Witness,
)
from sidecar.core.rank_snapshot import pack_rank, unpack_rank

U8 = NDArray[np.uint8]
# Session id to block table by KV group.
Tables = Mapping[str, Mapping[int, Sequence[int]]]


class SlotRecord:
    """Newest digests of one KV group, by slot. Arrays grow to the highest slot seen."""

    def __init__(self, group: KvGroup) -> None:
        self.group = group
        self.digests: U64 = np.zeros((0, group.digests), np.uint64)
        self.step: U64 = np.zeros(0, np.uint64)
        self.witness: U8 = np.zeros(0, np.uint8)

    def write(self, slots: U32, digests: U64, step: int, witness: Witness) -> None:
        """Raises BadKvRows for a slot beyond the group or a wrong number of digests."""
        if digests.shape != (len(slots), self.group.digests):
            found = digests.shape[-1] if len(digests) == len(slots) else len(digests)
            raise BadKvRows(
                self.group.group,
                "number of digests",
                found,
                self.group.digests if len(digests) == len(slots) else len(slots),
            )
        if not len(slots):
            return
        highest = int(slots.max())
        if highest >= len(self.step):
            self._grow(highest)
        self.digests[slots] = digests
        self.step[slots] = step
        self.witness[slots] = witness

    def write_known(self, slots: U32, digests: U64, step: U64, witness: U8) -> None:
        """Writes back slots of a snapshot, each with its own step and witness."""
        self._grow(int(slots.max()))
        self.digests[slots] = digests
        self.step[slots] = step
        self.witness[slots] = witness

    def forget(self) -> None:
        self.witness[:] = Witness.UNKNOWN

    def lookup(self, slots: NDArray[np.int64]) -> tuple[U64, U8]:
        inside = (slots >= 0) & (slots < len(self.step))
        digests = np.zeros((len(slots), self.group.digests), np.uint64)
        witness = np.zeros(len(slots), np.uint8)
        digests[inside] = self.digests[slots[inside]]
        witness[inside] = self.witness[slots[inside]]
        return digests, witness

    def _grow(self, highest: int) -> None:
        limit = self.group.slots
        if highest >= limit:
            raise BadKvRows(self.group.group, "slot", highest, limit)
        have = len(self.step)
        size = min(max(highest + 1, 2 * have, 4096), limit)
        self.digests = np.concatenate(
            [self.digests, np.zeros((size - have, self.group.digests), np.uint64)]
        )
        self.step = np.concatenate([self.step, np.zeros(size - have, np.uint64)])
        self.witness = np.concatenate([self.witness, np.zeros(size - have, np.uint8)])


class RankState:
    """What a rank's memory should hold after `step`.

    After a Hole any slot may have been overwritten by a step that was not recorded, so every slot
    is UNKNOWN until it is written again or read by a baseline. Weights are recorded once and stay.
    """

    def __init__(self, kv_groups: Sequence[KvGroup]) -> None:
        self.step = 0
        # Newest step that was not recorded late.
        self.witnessed_step = 0
        # Steps applied that were recorded late.
        self.late_steps = 0
        self.broken: str | None = None
        self.weights: dict[str, TensorDigest] = {}
        self.weights_witness = Witness.UNKNOWN
        self.sampler: dict[int, SamplerDigest] = {}
        self.slots = {group.group: SlotRecord(group) for group in kv_groups}

    @classmethod
    def from_attestation(
        cls, kv_groups: Sequence[KvGroup], attestation: RankAttestation, tables: Tables
    ) -> "RankState":
        """A state that starts at what memory holds now. `tables` are the sessions' block tables
        at the attested boundary (SchedulerState.tables).
        """
        state = cls(kv_groups)
        state.rebase(attestation, tables)
        return state

    @property
    def kv_groups(self) -> tuple[KvGroup, ...]:
        return tuple(record.group for record in self.slots.values())

    def apply(
        self, event: RankStep | Hole | WeightDigests, witness: Witness = Witness.WITNESSED
    ) -> None:
        """Advances by one record.

        Raises OutOfOrderStep (nothing changed) for a step that is not newer, UnknownKvGroup,
        BadKvRows and BadColumns, after which the state is not to be used.
        """
        if isinstance(event, RankStep):
            self._apply_step(event, witness)
        elif isinstance(event, Hole):
            self._apply_hole(event)
        else:
            self.weights = dict(event.tensors)
            self.weights_witness = witness

    def lookup(self, kv_group: int, slots: NDArray[np.int64]) -> tuple[U64, U8]:
        """Recorded digests uint64[n, digests] and a Witness for each slot, UNKNOWN where nothing
        is recorded. Raises UnknownKvGroup.
        """
        return self._record(kv_group).lookup(slots)

    def rebase(self, attestation: RankAttestation, tables: Tables) -> None:
        """Takes what memory holds now as recorded, with Witness.BASELINE. What was not attested
        stays as it is. Raises UnknownKvGroup, BadKvRows.
        """
        for kv in attestation.kv:
            record = self._record(kv.kv_group)
            table = tables.get(kv.session_id, {}).get(kv.kv_group, ())
            positions = np.arange(kv.first_position, kv.first_position + len(kv.digests))
            slots = slots_of(positions, table, record.group.block_size)
            owned = slots >= 0
            record.write(
                slots[owned].astype(np.uint32),
                kv.digests[owned],
                attestation.step,
                Witness.BASELINE,
            )
        if attestation.weights is not None:
            self.weights = dict(attestation.weights.tensors)
            self.weights_witness = Witness.BASELINE
        self.step = self.witnessed_step = attestation.step

    def to_bytes(self) -> bytes:
        """A snapshot: only slots that are known."""
        return pack_rank(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "RankState":
        """Raises SnapshotCorrupt."""
        return unpack_rank(cls, data)

    def declare(self, group: KvGroup) -> SlotRecord:
        """Adds a KV group with nothing recorded and gives its record."""
        record = self.slots[group.group] = SlotRecord(group)
        return record

    def _record(self, kv_group: int) -> SlotRecord:
        record = self.slots.get(kv_group)
        if record is None:
            raise UnknownKvGroup(kv_group, tuple(self.slots))
        return record

    def _apply_step(self, event: RankStep, witness: Witness) -> None:
        if event.step <= self.step:
            raise OutOfOrderStep("rank step", event.step, self.step + 1)
        for kv in event.kv:
            self._write(kv, event.step, witness)
        if event.sampler_rows is not None and event.sampler_digests is not None:
            rows, digests = event.sampler_rows, event.sampler_digests
            if len(rows) != len(digests):
                raise BadColumns(event.step, "number of sampler digests", len(digests), len(rows))
            for row, digest in zip(rows.tolist(), digests.tolist(), strict=True):
                self.sampler[row] = SamplerDigest(event.step, digest)
        self.step = event.step
        if witness is Witness.LATE:
            self.late_steps += 1
        else:
            self.witnessed_step = event.step

    def _write(self, kv: KvRows, step: int, witness: Witness) -> None:
        self._record(kv.kv_group).write(kv.slots, kv.digests, step, witness)

    def _apply_hole(self, hole: Hole) -> None:
        self.broken = (
            f"{hole.count} records of steps {hole.first_step} to {hole.last_step} are missing: "
            f"{hole.reason}"
        )
        for record in self.slots.values():
            record.forget()
        self.sampler.clear()


def slots_of(
    positions: NDArray[np.int64], table: Sequence[int], block_size: int
) -> NDArray[np.int64]:
    """Slot of each position through a block table; -1 in the null block or beyond the table."""
    blocks = np.array(table, dtype=np.int64)
    index = positions // block_size
    slots = np.full(len(positions), -1, np.int64)
    inside = index < len(blocks)
    owned = blocks[index[inside]]
    slots[inside] = np.where(
        owned == NULL_BLOCK, -1, owned * block_size + positions[inside] % block_size
    )
    return slots
