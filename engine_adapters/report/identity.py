"""Who a reporter speaks for, and how its KV is digested."""

import enum
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenwitness.v1 import types_pb2


class SourceKind(enum.Enum):
    """Which part of the worker a source is."""

    SCHEDULER = "scheduler"
    RANK = "rank"

    def encode(self) -> types_pb2.SourceKind:
        if self is SourceKind.RANK:
            return types_pb2.SOURCE_KIND_RANK
        return types_pb2.SOURCE_KIND_SCHEDULER


def new_nonce() -> int:
    """A number that another life of the same source will not have. Never 0."""
    return secrets.randbits(64) | 1


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """One source of one life of a worker.

    `incarnation` is shared by all sources of the worker; `nonce` is this source's own. Both
    live in memory on purpose: a restore keeps them, a restart does not.
    """

    worker: str
    incarnation: str
    kind: SourceKind
    ranks: int = 1
    rank: int = 0
    tensor_rank: int = 0
    pipeline_rank: int = 0
    data_rank: int = 0
    nonce: int = field(default_factory=new_nonce)

    def encode(self) -> types_pb2.Source:
        return types_pb2.Source(
            kind=self.kind.encode(),
            rank=self.rank,
            tensor_rank=self.tensor_rank,
            pipeline_rank=self.pipeline_rank,
            data_rank=self.data_rank,
        )


@dataclass(frozen=True, slots=True)
class KvGroupSpec:
    """One kind of layer and how its rows are digested (types.proto, KvGroup)."""

    group: int
    block_size: int
    blocks: int
    layers: Sequence[int]
    digest_layers: Sequence[int]
    row_bytes: int
    sliding_window: int = 0

    def encode(self) -> types_pb2.KvGroup:
        return types_pb2.KvGroup(
            group=self.group,
            block_size=self.block_size,
            blocks=self.blocks,
            layers=self.layers,
            digest_layers=self.digest_layers,
            row_bytes=self.row_bytes,
            sliding_window=self.sliding_window,
        )
