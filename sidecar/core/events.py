"""What sources report, as values: the mirror of the wire's records and attestations.

Columns are one-dimensional numpy arrays (uint32 unless said otherwise); None stands where the
wire says what an empty column means. Values are not changed after they were built; their arrays
may be views of a received message and must not be written to.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

NULL_BLOCK = 0


class Witness(enum.IntEnum):
    """How the record came to know something."""

    UNKNOWN = 0
    # Received before a restore was noticed.
    WITNESSED = 1
    # Received afterwards about a step before it: it comes from the memory in doubt.
    LATE = 2
    # Read from memory by an attestation, not seen being written.
    BASELINE = 3


class SourceKind(enum.IntEnum):
    SCHEDULER = 1
    RANK = 2


@dataclass(frozen=True, slots=True, order=True)
class SourceKey:
    """Which stream of a worker: its scheduler (rank 0) or one of its ranks."""

    kind: SourceKind
    rank: int = 0

    def __str__(self) -> str:
        return "scheduler" if self.kind is SourceKind.SCHEDULER else f"rank {self.rank}"


class SessionEndReason(enum.IntEnum):
    UNSPECIFIED = 0
    STOPPED = 1
    LENGTH = 2
    ABORTED = 3
    ERROR = 4


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a session's tokens are chosen, in the engine API's units. `seed` None: not known."""

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
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    unreplayable: tuple[str, ...] = ()
    seed_given: bool = False
    stop: tuple[str, ...] = ()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def reproducible(self) -> bool:
        """Whether the same logits give the same token again: greedy, or with a known seed."""
        return self.greedy or self.seed is not None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The environment as name to value. "unknown": the value could not be read."""

    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Where one kind of layer keeps its rows and how they are digested.

    `digest_layers[i]` says how many of `layers`, in order, digest i of a token folds.
    """

    group: int
    block_size: int
    blocks: int
    layers: tuple[int, ...]
    digest_layers: tuple[int, ...]
    row_bytes: int
    sliding_window: int = 0

    @property
    def digests(self) -> int:
        return len(self.digest_layers)

    @property
    def slots(self) -> int:
        return self.blocks * self.block_size

    def layers_of(self, digest: int) -> tuple[int, ...]:
        """Model layers that the given digest of a token folds."""
        first = sum(self.digest_layers[:digest])
        return self.layers[first : first + self.digest_layers[digest]]


@dataclass(frozen=True, slots=True, eq=False)
class SessionStart:
    row: int
    session_id: str
    prompt_tokens: U32
    sampling: Sampling
    cache_salt_digest: int
    output_tokens: U32


@dataclass(frozen=True, slots=True)
class SessionEnd:
    row: int
    reason: SessionEndReason


@dataclass(frozen=True, slots=True, eq=False)
class BlockUpdate:
    row: int
    kv_group: int
    offset: int
    blocks: U32


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A step is about to run. `counts` None: 1 each; `drafts` None: 0 each."""

    step: int
    rows: U32
    starts: U32
    counts: U32 | None = None
    drafts: U32 | None = None
    ended: tuple[SessionEnd, ...] = ()
    started: tuple[SessionStart, ...] = ()
    preempted_rows: tuple[int, ...] = ()
    blocks: tuple[BlockUpdate, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """The outcome of a step. `token_counts` None: 1 each; `rejected` None: 0 each."""

    step: int
    tokens: U32
    token_counts: U32 | None = None
    rejected: U32 | None = None
    ended: tuple[SessionEnd, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class KvRows:
    """`digests` is uint64[slots, digests per token of the group]."""

    kv_group: int
    slots: U32
    digests: U64


@dataclass(frozen=True, slots=True, eq=False)
class RankStep:
    step: int
    kv: tuple[KvRows, ...]
    sampler_rows: U32 | None = None
    sampler_digests: U64 | None = None


@dataclass(frozen=True, slots=True)
class Hole:
    """Records that were dropped."""

    count: int
    first_step: int
    last_step: int
    reason: str


@dataclass(frozen=True, slots=True)
class SamplerDigest:
    """A row's generator state before `step`."""

    step: int
    digest: int


@dataclass(frozen=True, slots=True)
class TensorDigest:
    digest: int
    size: int


@dataclass(frozen=True, slots=True)
class WeightDigests:
    """Parameters and buffers of a rank, by name."""

    tensors: Mapping[str, TensorDigest]


Event = Launch | Commit | RankStep | Hole | WeightDigests


@dataclass(frozen=True, slots=True, eq=False)
class LiveSession:
    """One session as the scheduler's memory has it now."""

    row: int
    session_id: str
    emitted: int
    computed: int
    in_flight: int
    prompt_length: int
    tokens: U32
    sampling: Sampling
    blocks: tuple[BlockUpdate, ...] = ()
    # Waiting for its first step or preempted: holds no KV.
    waiting: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SchedulerAttestation:
    """The scheduler's memory at the boundary (launched, committed)."""

    launched: int
    committed: int
    sessions: tuple[LiveSession, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SessionKv:
    """Digests of consecutive positions of one session: uint64[positions, digests]."""

    row: int
    session_id: str
    kv_group: int
    first_position: int
    digests: U64


@dataclass(frozen=True, slots=True, eq=False)
class RankAttestation:
    """A rank's memory: all of `step` and nothing of the next. `weights` None: not read."""

    step: int
    kv: tuple[SessionKv, ...]
    weights: WeightDigests | None = None
    sampler: Mapping[int, int] = field(default_factory=dict)
    kv_groups: tuple[KvGroup, ...] = ()
