"""The machine as a checkpoint needs it, put back afterwards as it was."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the system's folder for it
IO_URING = Path("/proc/sys/kernel/io_uring_disabled")


@contextmanager
def io_uring_off() -> Iterator[None]:
    """No process may open an io_uring meanwhile: CRIU cannot dump one, and the event loop of
    the engine's server opens one where it can. Kernels before 6.6 have no such switch.
    """
    if not IO_URING.exists():
        yield
        return
    before = IO_URING.read_text().strip()
    if before != "2":
        IO_URING.write_text("2")
    try:
        yield
    finally:
        if before != "2":
            IO_URING.write_text(before)


@contextmanager
def dumps_forgotten() -> Iterator[None]:
    """Removes what a dump that was never restored leaves behind: its network lock in nftables
    and the names that it gave to shared memory without one.
    """
    locks, names = _lock_tables(), _link_names()
    try:
        yield
    finally:
        for family, name in _lock_tables() - locks:
            subprocess.run(["nft", "delete", "table", family, name], check=False)
        for link in _link_names() - names:
            link.unlink(missing_ok=True)


def _link_names() -> set[Path]:
    return set(SHARED_MEMORY.glob("link_remap.*"))


def _lock_tables() -> set[tuple[str, str]]:
    if shutil.which("nft") is None:
        return set()
    listing = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False)
    tables = [line.split()[1:3] for line in listing.stdout.splitlines() if line.startswith("table")]
    return {(family, name) for family, name in tables if name.startswith("CRIU")}
