"""Dump and restore of a whole process tree with CRIU."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tools.demo.errors import CriuUnavailableError, DemoError
from tools.demo.machine import SHARED_MEMORY
from tools.demo.places import CHECKOUT
from tools.demo.processes import ProcessTree, wait_gone

# What an engine's server needs: its clients' and the sidecar's connections, locks, deleted files.
COMMON = ["--tcp-established", "--file-locks", "--link-remap", "--ghost-limit", "100M"]
DUMP = ["--network-lock", "nftables"]
_KEEP_NAMES = f"""#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0
mkdir -p "{{kept}}"
for name in {SHARED_MEMORY}/link_remap.*; do
  [ -e "$name" ] && cp -p "$name" "{{kept}}/"
done
exit 0
"""
COMMAND_TIMEOUT_S = 300
GONE_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One image of a tree. `images` is its folder."""

    tree: ProcessTree
    images: Path
    seconds: float

    @property
    def size_bytes(self) -> int:
        return sum(entry.stat().st_size for entry in self.images.glob("*.img"))

    def discard(self) -> None:
        """Removes the image; nothing can be restored from it any more."""
        shutil.rmtree(self.images)


@dataclass(frozen=True, slots=True)
class Criu:
    binary: Path

    def dump(self, tree: ProcessTree, images: Path) -> Checkpoint:
        """Dumps the tree into `images`, which must be empty, and ends it.

        Returns when all its pids are free again. DemoError carries CRIU's own words.
        """
        pids = tree.pids()
        checkpoint = self._dump(tree, images, [])
        wait_gone(pids, GONE_TIMEOUT_S)
        return checkpoint

    def dump_and_leave_running(self, tree: ProcessTree, images: Path) -> Checkpoint:
        """Dumps the tree, which then goes on: the image will be older than what follows.

        CRIU makes names for files that are mapped and have lost theirs (semaphores), and takes
        them away again if the tree goes on; copies are kept for the restore.
        """
        images.mkdir(parents=True, exist_ok=True)
        script = images / "keep-names"
        script.write_text(_KEEP_NAMES.format(kept=images / "named"))
        script.chmod(0o700)
        return self._dump(tree, images, ["--leave-running", "--action-script", str(script)])

    def _dump(self, tree: ProcessTree, images: Path, more: list[str]) -> Checkpoint:
        images.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        self._run("dump", images, ["-t", str(tree.root), *COMMON, *DUMP, *more])
        return Checkpoint(tree, images, time.monotonic() - began)

    def restore(self, checkpoint: Checkpoint) -> float:
        """Restores; seconds that it took.

        Connections come back as they were. One whose other end has gone on or away since gets
        a reset at its first packet, and the program sees that it is gone.
        """
        for kept in (checkpoint.images / "named").glob("*"):
            shutil.copy2(kept, SHARED_MEMORY / kept.name)
        began = time.monotonic()
        self._run("restore", checkpoint.images, ["--restore-detached", *COMMON])
        return time.monotonic() - began

    def _run(self, verb: str, images: Path, flags: list[str]) -> None:
        log = f"{verb}.log"
        command = [str(self.binary), verb, "-D", str(images), "-o", log, "-v4", *flags]
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if ended.returncode != 0:
            raise DemoError(f"criu {verb} failed ({ended.returncode}):\n{_errors(images / log)}")


def _errors(log: Path) -> str:
    if not log.exists():
        return "no log"
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "Error" in line]
    return "\n".join((errors or lines)[-8:])


def find_criu() -> Criu:
    """A CRIU that works here, built if need be. CriuUnavailableError says why there is none."""
    if os.geteuid() != 0:
        raise CriuUnavailableError("CRIU needs root to dump another program")
    built = subprocess.run(
        [str(CHECKOUT / "tools" / "build_criu.sh")], capture_output=True, text=True, check=False
    )
    if built.returncode != 0:
        reason = built.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise CriuUnavailableError(reason[0])
    binary = Path(built.stdout.strip())
    if shutil.which("nft") is None:
        raise CriuUnavailableError("no nft program: install nftables, the network lock needs it")
    check = subprocess.run(
        [str(binary), "check"], capture_output=True, text=True, timeout=60, check=False
    )
    if check.returncode != 0:
        reason = (check.stderr or check.stdout).strip().splitlines()[-1:]
        raise CriuUnavailableError(f"criu check: {reason[0] if reason else 'failed'}")
    return Criu(binary)
