"""Fixtures of the tests that dump and restore real processes."""

from collections.abc import Iterator

import pytest

from tools.demo import machine, processes
from tools.demo.criu import Criu, find_criu
from tools.demo.errors import CriuUnavailableError


@pytest.fixture(scope="session")
def criu() -> Iterator[Criu]:
    """A CRIU that works here, on a machine that is set for it; put back afterwards."""
    try:
        found = find_criu()
    except CriuUnavailableError as reason:
        pytest.skip(str(reason))
    processes.adopt_orphans()
    with machine.io_uring_off(), machine.dumps_forgotten():
        yield found
