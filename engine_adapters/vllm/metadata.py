"""What scheduler and ranks tell each other inside the engine's own messages.

Both travel by pickle between processes of one engine, so they are plain values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from engine_adapters.report.records import BlockUpdate

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AttestNote:
    """The scheduler has attested: the ranks do it at the same boundary.

    `launched` is the last step that it had launched then. `attest_id` 0: the scheduler noticed
    a restore by itself; a rank that noticed it too answers its own sign.
    """

    attest_id: int
    weights: bool
    launched: int


@dataclass(slots=True)
class StepMetadata(KVConnectorMetadata):  # type: ignore[misc] # the engine's class is untyped here
    """One step, scheduler to ranks. Columns `rows`, `starts`, `counts` are parallel.

    `starts` and `counts` are the positions whose rows the rank digests after the step. They are
    those that the step writes, except where accepted drafts are not known yet (asynchronous
    scheduling with speculation): there they begin at the lowest position that may be written.
    """

    step: int
    rows: Rows
    starts: Rows
    # None: 1 each.
    counts: Rows | None = None
    started: Sequence[tuple[int, str]] = ()
    ended: Sequence[int] = ()
    preempted: Sequence[int] = ()
    tables: Sequence[BlockUpdate] = ()
    attest: AttestNote | None = None


@dataclass(slots=True)
class NotObserved(KVConnectorMetadata):  # type: ignore[misc] # the engine's class is untyped here
    """The engine insists on metadata from a connector that observes nothing."""


@dataclass(slots=True)
class StepDone(KVConnectorWorkerMetadata):  # type: ignore[misc] # untyped here
    """Which step the ranks' outcome belongs to, ranks to scheduler. `skewed` if they differ."""

    step: int
    skewed: bool = field(default=False)

    def aggregate(self, other: Any) -> "StepDone":
        """Of all ranks: the least advanced."""
        if not isinstance(other, StepDone):
            return self
        return StepDone(
            step=min(self.step, other.step),
            skewed=self.skewed or other.skewed or self.step != other.step,
        )
