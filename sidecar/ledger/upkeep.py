"""The background thread: snapshots when a replay would get long, retention now and then."""

import threading
import time
from collections.abc import Callable
from functools import partial

import structlog

from .errors import LedgerError

_log = structlog.get_logger(__name__)
_PAUSE_AFTER_ERROR_S = 1.0


class Upkeep:
    """Runs `snapshot(source_id)` for sources that are due, and `retention()` by interval.

    Errors of either are logged and do not end the thread: recording goes on without them.
    """

    def __init__(
        self,
        snapshot: Callable[[int], None],
        retention: Callable[[], object],
        retention_interval_s: float | None,
    ) -> None:
        self._snapshot = snapshot
        self._retention = retention
        self._interval_s = retention_interval_s
        self._changed = threading.Condition()
        self._due: dict[int, None] = {}
        self._closing = False
        self._next_retention = self._later()
        self._thread = threading.Thread(target=self._run, name="ledger-upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def want_snapshot(self, source_id: int) -> None:
        """Asks for a snapshot soon; asking twice is asking once."""
        with self._changed:
            self._due[source_id] = None
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _later(self) -> float:
        return float("inf") if self._interval_s is None else time.monotonic() + self._interval_s

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closing or self._due or time.monotonic() >= self._next_retention):
                    left = self._next_retention - time.monotonic()
                    self._changed.wait(None if left == float("inf") else max(0.0, left))
                if self._closing:
                    return
                source_id = next(iter(self._due), None)
                if source_id is not None:
                    del self._due[source_id]
            if source_id is not None:
                self._guarded("snapshot", partial(self._snapshot, source_id))
            else:
                self._next_retention = self._later()
                self._guarded("retention", self._retention)

    def _guarded(self, what: str, run: Callable[[], object]) -> None:
        try:
            run()
        except LedgerError as error:
            _log.warning("ledger_upkeep_failed", what=what, error=str(error))
        except Exception:  # noqa: BLE001 - logged; recording goes on without upkeep
            _log.exception("ledger_upkeep_failed", what=what)
        else:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._closing, _PAUSE_AFTER_ERROR_S)
