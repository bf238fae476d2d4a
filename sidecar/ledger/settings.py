"""Settings of a ledger. Units stand in the names."""

import enum
from dataclasses import dataclass, field

MIB = 1 << 20


class Durability(enum.Enum):
    """What an acknowledged record survives.

    PROCESS: a kill of the sidecar at any moment. After a power cut the newest records since
    the last control record (mark, verdict, generation) or checkpoint can be missing; that is
    noticed and reported, never silent.
    POWER: a power cut too, at the price of one fsync per batch.
    """

    PROCESS = "NORMAL"
    POWER = "FULL"


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits; None: no limit. Never removes what an open mark or a live session needs."""

    max_age_s: float | None = None
    max_bytes: int | None = None
    # Logs of earlier incarnations of a worker that are kept whole.
    max_finished_incarnations: int | None = 4
    # Newest marks of a worker, prepared or taken, whose window is kept.
    open_marks: int = 16


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    durability: Durability = Durability.PROCESS
    # Commit at the latest this long after a record came, or when so much waits.
    batch_interval_s: float = 0.02
    batch_bytes: int = 1 * MIB
    # Records that wait for the writer; beyond it `append` raises QueueFullError.
    queue_bytes: int = 64 * MIB
    # A snapshot is made when the replay since the last one exceeds
    # max(snapshot_bytes, snapshot_ratio x size of the last one).
    snapshot_bytes: int = 8 * MIB
    snapshot_ratio: int = 4
    snapshots_kept: int = 2
    # Limit of the file; None: only the disk's.
    max_file_bytes: int | None = None
    # How often a writer without room tries again.
    full_retry_s: float = 0.5
    # How long a reading call waits for what was appended before it.
    read_flush_s: float = 5.0
    readers: int = 4
    # How often retention runs by itself; None: only when called.
    retention_interval_s: float | None = 60.0
    retention: Retention = field(default_factory=Retention)
