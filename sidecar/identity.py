"""Who speaks: what a source says of itself when it attaches and when it sees a restore."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.core.events import KvGroup, SourceKey

PROTOCOL = 1
NAME_PATTERN = re.compile(r"[A-Za-z0-9._/-]{1,128}")


def is_name(text: str) -> bool:
    """Whether `text` may name a worker or a mark."""
    return NAME_PATTERN.fullmatch(text) is not None


class SignKind(enum.IntEnum):
    """How a source noticed that it may have been restored."""

    UNSPECIFIED = 0
    PROCESS_RECREATED = 1
    STOOD_STILL = 2


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """What changes when a process is re-created. Zero or empty: not known."""

    pid: int
    start_ticks: int
    boot_id: str
    host: str
    clock_distance_ns: int = 0

    def same_process(self, other: "ProcessIdentity") -> bool:
        """Whether both name one process of one boot.

        The clocks are left out: the real clock is stepped in a process that nobody touched.
        What a frozen virtual machine changes is only the clocks; that is the adapter's to see.
        """
        return (self.pid, self.start_ticks, self.boot_id, self.host) == (
            other.pid,
            other.start_ticks,
            other.boot_id,
            other.host,
        )


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a source stands in its group."""

    key: SourceKey
    tensor_rank: int = 0
    pipeline_rank: int = 0
    data_rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """A validated Hello. `step` 0: no step yet. Seqs count from 1."""

    worker: str
    incarnation: str
    nonce: int
    place: SourcePlace
    ranks: int
    next_seq: int
    oldest_seq: int
    fingerprint: Mapping[str, str]
    process: ProcessIdentity
    kv_groups: tuple[KvGroup, ...] = ()
    step: int = 0
    engine_url: str = ""
    adapter_version: str = ""
    drill: bool = False
    signs_seen: int = 0
    # The last generation that this memory was told; 0: none.
    generation: int = 0

    @property
    def key(self) -> SourceKey:
        """The source that greets."""
        return self.place.key


@dataclass(frozen=True, slots=True, kw_only=True)
class SignSeen:
    """A source saw that its process was re-created or stood still.

    `gap_ns` 0: not known how long it stood still. `held_attest_id` 0: it does not wait.
    `generation`: the last one that this memory was told; 0: none.
    """

    kind: SignKind
    process: ProcessIdentity
    gap_ns: int
    next_seq: int
    step: int
    fingerprint: Mapping[str, str]
    signs_seen: int
    held_attest_id: int
    generation: int = 0


class RestoreEvidence(enum.StrEnum):
    """What made the sidecar believe that a worker was restored; a verdict's `trigger`."""

    HOOK = "hook"
    REATTACH = "reattach"
    PROCESS_RECREATED = "process_recreated"
    STOOD_STILL = "stood_still"
    OPERATOR = "operator"
    RESTARTED = "restarted"
