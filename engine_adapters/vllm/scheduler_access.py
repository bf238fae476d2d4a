"""The one narrow place that finds vLLM's KV cache manager, for live block tables.

- 0.30 to 0.32: `bind_kv_cache_manager(manager)` hands it over.
- 0.26 to 0.29: only its block pool is handed over (`bind_gpu_block_pool`), by
`Scheduler.__init__`; the manager is found there in the caller.
"""

import inspect
from collections.abc import Sequence
from types import FrameType
from typing import Any

from engine_adapters.vllm.errors import OutOfStepError

_MOST_FRAMES = 8


class SchedulerAccess:
    """Live block tables by request id."""

    def __init__(self) -> None:
        self._manager: Any = None

    def bind(self, manager: Any) -> None:
        self._manager = manager

    def find(self) -> None:
        """Looks for a scheduler among the callers, if no manager was handed over."""
        frame: FrameType | None = inspect.currentframe()
        for _ in range(_MOST_FRAMES):
            frame = frame.f_back if frame is not None and self._manager is None else None
            if frame is None:
                return
            self._manager = getattr(frame.f_locals.get("self"), "kv_cache_manager", None)

    def table_of(self, request_id: str) -> Sequence[Sequence[int]]:
        """Block ids per KV group.

        Raises:
            OutOfStepError: no manager was found, so nothing live can be said of block tables.

        """
        if self._manager is None:
            raise OutOfStepError("KV cache manager", None, "one, from the scheduler")
        tables: Sequence[Sequence[int]] = self._manager.get_block_ids(request_id)
        return tables
