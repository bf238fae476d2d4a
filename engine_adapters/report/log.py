"""Logging that cannot flood, and the guard that keeps faults of the adapter out of the engine."""

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

logger = logging.getLogger("tokenwitness")


class _Tally:
    """What was said already, and how many errors were kept from the engine."""

    # Keys are literals in the code and exception types; the bound is for what nobody foresaw.
    MOST_KEYS = 1_000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, int] = {}
        self.errors = 0

    def first_time(self, key: str) -> bool:
        with self._lock:
            if key not in self._said and len(self._said) >= self.MOST_KEYS:
                return False
            self._said[key] = self._said.get(key, 0) + 1
            return self._said[key] == 1

    def forget(self, keys: Sequence[str]) -> None:
        with self._lock:
            for key in keys:
                self._said.pop(key, None)

    def count_error(self) -> None:
        with self._lock:
            self.errors += 1


_tally = _Tally()


def log_once(key: str, message: str, *, level: int = logging.WARNING) -> None:
    """Logs `message` the first time that `key` is seen in this process."""
    if _tally.first_time(key):
        logger.log(level, "%s", message)


def forget(*keys: str) -> None:
    """Lets `log_once` say `keys` again: the condition ended and a new one is news."""
    _tally.forget(keys)


def count_error() -> None:
    """Counts an error that was kept from the engine; heartbeats carry the number."""
    _tally.count_error()


def error_count() -> int:
    """Errors of the adapter in this process so far."""
    return _tally.errors


def never_raises(default: D) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Guards a hook that the engine calls: any error is counted, logged once per hook and kind,
    and `default` is returned. KeyboardInterrupt and SystemExit pass: they are the engine's.
    """

    def decorate(hook: Callable[P, R]) -> Callable[P, R | D]:
        @functools.wraps(hook)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | D:
            try:
                return hook(*args, **kwargs)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - nothing of the adapter may fail the engine
                note_error(hook.__qualname__, error)
                return default

        return guarded

    return decorate


def note_error(where: str, error: BaseException) -> None:
    """Counts the error and logs it, with its traceback, once per place and kind."""
    count_error()
    if _tally.first_time(f"{where}:{type(error).__name__}"):
        logger.error("%s failed; the engine goes on unobserved there", where, exc_info=error)
