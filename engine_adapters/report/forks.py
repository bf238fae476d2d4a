"""What a forked child must not use: threads and streams are the parent's."""

import os
import weakref
from typing import Protocol


class Abandonable(Protocol):
    """Has to be given up in a child."""

    def abandon(self) -> None:
        """From now on do nothing, take no lock: its holder may not exist in the child."""


_living: weakref.WeakSet[Abandonable] = weakref.WeakSet()


def abandon_in_children(thing: Abandonable) -> None:
    """Calls `thing.abandon()` in every child that is forked from now on, while it lives."""
    _living.add(thing)


def _abandon_all() -> None:
    for thing in list(_living):
        thing.abandon()


os.register_at_fork(after_in_child=_abandon_all)
