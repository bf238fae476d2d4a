"""Live sessions as the record has them."""

from array import array
from dataclasses import dataclass, field

import numpy as np

from sidecar.core.events import U32, Sampling
from sidecar.core.positions import PositionColumns


@dataclass(slots=True, eq=False)
class Session:
    """A live session. Owned by its SchedulerState: read it, do not change it, and read it before
    the state moves on. `doubt` says why its positions cannot be relied on, None if they can.
    """

    row: int
    session_id: str
    prompt_length: int
    sampling: Sampling
    cache_salt_digest: int
    started_step: int
    tokens: "array[int]"
    columns: PositionColumns = field(repr=False)
    tables: dict[int, list[int]] = field(default_factory=dict)
    doubt: str | None = None

    @property
    def emitted(self) -> int:
        return len(self.tokens)

    @property
    def computed(self) -> int:
        return int(self.columns.computed[self.row])

    @property
    def in_flight(self) -> int:
        return int(self.columns.in_flight[self.row])

    @property
    def last_step(self) -> int:
        """Newest step that was launched with this session; 0: none since it started."""
        return int(self.columns.last_step[self.row])

    def token_array(self) -> U32:
        return np.array(self.tokens, dtype=np.uint32)


def token_buffer(tokens: U32) -> "array[int]":
    """A growing buffer of u32 token ids that begins with a copy of `tokens`."""
    buffer = array("I")
    buffer.frombytes(tokens.astype(np.uint32).tobytes())
    return buffer
