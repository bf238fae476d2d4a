"""Two ways to take a worker out of the world and bring it back, behind one shape.

`CriuStopper` is the real thing: image on disk, processes gone, processes back. `InPlaceStopper`
is what is left where CRIU cannot work: the processes are stopped and go on in place. It proves
less and says so.
"""

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.demo.criu import Checkpoint, Criu
from tools.demo.images import open_process_image
from tools.demo.kv_map import Target
from tools.demo.memory import flip_bit_in_memory
from tools.demo.processes import ProcessTree

# Longer than any default after which an adapter suspects that its process was frozen.
STAND_STILL_S = 7.0


class Stopped(Protocol):
    """A worker that does not run now."""

    @property
    def seconds(self) -> float: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def image(self) -> str: ...

    def flip_bit(self, target: Target, bit: int) -> tuple[int, int]:
        """Changes one bit of what will run again; the byte before and after."""

    def resume(self) -> float:
        """Lets it run again; seconds that it took."""


class Stopper(Protocol):
    @property
    def name(self) -> str: ...

    def stop(self, tree: ProcessTree, folder: Path) -> Stopped:
        """Stops the whole tree; `folder` is where an image may go."""


@dataclass(frozen=True, slots=True)
class DumpedTree:
    criu: Criu
    checkpoint: Checkpoint

    @property
    def seconds(self) -> float:
        return self.checkpoint.seconds

    @property
    def size_bytes(self) -> int:
        return self.checkpoint.size_bytes

    @property
    def image(self) -> str:
        return str(self.checkpoint.images)

    def flip_bit(self, target: Target, bit: int) -> tuple[int, int]:
        image = open_process_image(self.checkpoint.images, target.pid)
        return image.flip_bit(target.address, bit)

    def resume(self) -> float:
        return self.criu.restore(self.checkpoint)


@dataclass(frozen=True, slots=True)
class CriuStopper:
    criu: Criu
    name: str = "CRIU dump and restore"

    def stop(self, tree: ProcessTree, folder: Path) -> Stopped:
        return DumpedTree(self.criu, self.criu.dump(tree, folder))


@dataclass(frozen=True, slots=True)
class StoppedTree:
    tree: ProcessTree
    stopped_at: float
    seconds: float
    size_bytes: int = 0
    image: str = ""

    def flip_bit(self, target: Target, bit: int) -> tuple[int, int]:
        return flip_bit_in_memory(target.pid, target.address, bit)

    def resume(self) -> float:
        time.sleep(max(0.0, self.stopped_at + STAND_STILL_S - time.monotonic()))
        began = time.monotonic()
        self.tree.signal(signal.SIGCONT)
        return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class InPlaceStopper:
    name: str = "stop in place (SIGSTOP, SIGCONT): no image, no restore"

    def stop(self, tree: ProcessTree, folder: Path) -> Stopped:  # noqa: ARG002 - no image here
        began = time.monotonic()
        tree.signal(signal.SIGSTOP)
        return StoppedTree(tree, began, time.monotonic() - began)
