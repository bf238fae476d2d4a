"""What a source reads from live memory, and how it is cut into parts for the wire."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from engine_adapters.report.columns import Array, Column
from engine_adapters.report.records import BlockUpdate, Sampling, WeightsRecord


class Origin(enum.Enum):
    """Why an attestation is due."""

    SIGN = "sign"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class DueAttestation:
    """An attestation that this source owes.

    `weights`: digest parameters and buffers too. `hold`: after attesting call
    `SourceReporter.hold` before the step runs. `attested`: it was already read while the engine
    ran no step (idle); only the hold is left.
    """

    attest_id: int
    weights: bool
    hold: bool
    origin: Origin
    attested: bool = False


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session as the scheduler's memory has it now; `tokens` are all, prompt and output."""

    row: int
    session_id: str
    emitted: int
    computed: int
    in_flight: int
    prompt_length: int
    tokens: Column
    sampling: Sampling
    blocks: Sequence[BlockUpdate] = ()
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class SchedulerBody:
    committed_step: int
    sessions: Sequence[LiveSession]


@dataclass(frozen=True, slots=True)
class SessionKv:
    """Digests [positions][digests per token] of one session in one group, int64 or uint64."""

    row: int
    session_id: str
    kv_group: int
    first_position: int
    digests: Array


@dataclass(frozen=True, slots=True)
class RankBody:
    """`weights` None when they were not asked for."""

    kv: Sequence[SessionKv]
    weights: WeightsRecord | None = None
    sampler_rows: Column = ()
    sampler_digests: Column = ()


AttestationBody = SchedulerBody | RankBody
