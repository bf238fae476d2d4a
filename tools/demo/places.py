"""Where things lie: the checkout, the cache, ports."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

CHECKOUT = Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """The folder for what is costly to make. TOKENWITNESS_CACHE or the user's cache."""
    if named := os.environ.get("TOKENWITNESS_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tokenwitness"


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """On disk, beside the cache: an image has some gigabytes. Removed afterwards."""
    parent = cache_folder() / "runs"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
