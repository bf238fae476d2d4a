"""What a source puts in its queue: one value per step, columns inside.

A record is handed over on the engine's thread and encoded on the sender's, so nothing in it
may change after `put`. Fields mirror the wire contract (recorder.proto); None stands for the
column that the contract calls empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import types_pb2

from engine_adapters.report.columns import (
    Array,
    Column,
    DeferredColumn,
    digest_bytes,
    ints,
    size_of,
    u64,
)

# Python objects around the columns: a record never weighs nothing.
BASE_WEIGHT = 256


class SourceRecord(Protocol):
    """What the outbox needs of a record."""

    @property
    def step(self) -> int:
        """The step that it tells of; 0 for none."""

    @property
    def weight(self) -> int:
        """About how many bytes it keeps in memory. O(number of sessions that started) at most."""

    def encode(self, seq: int) -> pb.Record:
        """The message. Runs on the sender's thread, once per sending; may wait for a device."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of one session are chosen (types.proto). Seed None: unknown."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = 0
    min_tokens: int = 0
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    unreplayable: Sequence[str] = ()
    seed_given: bool = False
    stop: Sequence[str] = ()

    def encode(self) -> types_pb2.Sampling:
        message = types_pb2.Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
            unreplayable=self.unreplayable,
            seed_given=self.seed_given,
            stop=self.stop,
        )
        if self.seed is not None:
            message.seed = self.seed
        return message


@dataclass(frozen=True, slots=True)
class SessionStart:
    row: int
    session_id: str
    prompt_tokens: Column
    sampling: Sampling
    cache_salt_digest: int = 0
    output_tokens: Column = ()

    def encode(self) -> pb.SessionStart:
        return pb.SessionStart(
            row=self.row,
            session_id=self.session_id,
            prompt_tokens=ints(self.prompt_tokens),
            sampling=self.sampling.encode(),
            cache_salt_digest=self.cache_salt_digest,
            output_tokens=ints(self.output_tokens),
        )


@dataclass(frozen=True, slots=True)
class SessionEnd:
    row: int
    # A value of pb.SessionEndReason.
    reason: int

    def encode(self) -> pb.SessionEnd:
        return pb.SessionEnd(row=self.row, reason=pb.SessionEndReason.Name(self.reason))


@dataclass(frozen=True, slots=True)
class BlockUpdate:
    row: int
    kv_group: int
    offset: int
    blocks: Column

    def encode(self) -> pb.BlockUpdate:
        return pb.BlockUpdate(
            row=self.row, kv_group=self.kv_group, offset=self.offset, blocks=ints(self.blocks)
        )


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """Scheduler: a step is about to run. `counts` None: 1 each; `drafts` None: 0 each."""

    step: int
    rows: Column = ()
    starts: Column = ()
    counts: Column | None = None
    drafts: Column | None = None
    started: Sequence[SessionStart] = ()
    ended: Sequence[SessionEnd] = ()
    preempted_rows: Column = ()
    blocks: Sequence[BlockUpdate] = ()

    @property
    def weight(self) -> int:
        weight = BASE_WEIGHT + 128 * (len(self.blocks) + len(self.ended))
        weight += size_of(self.rows) + size_of(self.starts)
        weight += size_of(self.counts) + size_of(self.drafts)
        for start in self.started:
            weight += 512 + size_of(start.prompt_tokens) + size_of(start.output_tokens)
        return weight

    def encode(self, seq: int) -> pb.Record:
        return pb.Record(
            seq=seq,
            launch=pb.Launch(
                step=self.step,
                ended=[end.encode() for end in self.ended],
                started=[start.encode() for start in self.started],
                preempted_rows=ints(self.preempted_rows),
                blocks=[update.encode() for update in self.blocks],
                rows=ints(self.rows),
                starts=ints(self.starts),
                counts=ints(self.counts),
                drafts=ints(self.drafts),
            ),
        )


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """Scheduler: the outcome of a launched step. `token_counts` None: 1 each."""

    step: int
    tokens: Column = ()
    token_counts: Column | None = None
    rejected: Column | None = None
    ended: Sequence[SessionEnd] = ()

    @property
    def weight(self) -> int:
        return (
            BASE_WEIGHT
            + size_of(self.tokens)
            + size_of(self.token_counts)
            + size_of(self.rejected)
            + 128 * len(self.ended)
        )

    def encode(self, seq: int) -> pb.Record:
        return pb.Record(
            seq=seq,
            commit=pb.Commit(
                step=self.step,
                token_counts=ints(self.token_counts),
                tokens=ints(self.tokens),
                rejected=ints(self.rejected),
                ended=[end.encode() for end in self.ended],
            ),
        )


@dataclass(frozen=True, slots=True)
class KvRows:
    """Digests of the rows that a step wrote: `slots` [n], `digests` [n][digests per token]."""

    kv_group: int
    slots: Column | DeferredColumn
    digests: Array | DeferredColumn

    def encode(self) -> pb.KvRows:
        return pb.KvRows(
            kv_group=self.kv_group, slots=ints(self.slots), digests=digest_bytes(self.digests)
        )


@dataclass(frozen=True, slots=True)
class RankStepRecord:
    """Rank: rows that the step wrote, and the generators' state before it."""

    step: int
    kv: Sequence[KvRows] = ()
    sampler_rows: Column = ()
    sampler_digests: Column = ()

    @property
    def weight(self) -> int:
        weight = BASE_WEIGHT + size_of(self.sampler_rows) + size_of(self.sampler_digests)
        for rows in self.kv:
            weight += 128 + size_of(rows.slots) + size_of(rows.digests)
        return weight

    def encode(self, seq: int) -> pb.Record:
        return pb.Record(
            seq=seq,
            rank_step=pb.RankStep(
                step=self.step,
                kv=[rows.encode() for rows in self.kv],
                sampler_rows=ints(self.sampler_rows),
                sampler_digests=u64(self.sampler_digests),
            ),
        )


@dataclass(frozen=True, slots=True)
class WeightsRecord:
    """Rank: parameters and buffers by name; `sizes` in bytes."""

    names: Sequence[str]
    digests: Column
    sizes: Column
    # The record belongs to no step.
    step: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return BASE_WEIGHT + 160 * len(self.names)

    def encode_body(self) -> pb.WeightDigests:
        return pb.WeightDigests(names=self.names, digests=u64(self.digests), sizes=ints(self.sizes))

    def encode(self, seq: int) -> pb.Record:
        return pb.Record(seq=seq, weights=self.encode_body())


@dataclass(frozen=True, slots=True)
class HoleRecord:
    """Records that were dropped, in their place."""

    count: int
    first_step: int
    last_step: int
    reason: str
    weight: int = field(default=BASE_WEIGHT, init=False)

    @property
    def step(self) -> int:
        return self.first_step

    def encode(self, seq: int) -> pb.Record:
        return pb.Record(
            seq=seq,
            hole=pb.Hole(
                count=self.count,
                first_step=self.first_step,
                last_step=self.last_step,
                reason=self.reason,
            ),
        )
