"""Process trees by pid: started apart from this one, watched, ended and reaped.

A dump kills its tree, and a restore needs the same pids again. So whoever was orphaned has to
be reaped: this process makes itself the one that inherits orphans (`adopt_orphans`).
"""

import ctypes
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.demo.errors import DeadlineError, DemoError
from tools.demo.machine import SHARED_MEMORY
from tools.demo.waiting import wait_for

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants' orphans, so that it can reap them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise DemoError(f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(ctypes.get_errno())}")


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """A program with all that it started, known by the pid of its root.

    The pid outlives a dump: the restored tree has the same one.
    """

    root: int
    log: Path

    def pids(self) -> list[int]:
        """The root and its descendants that exist now, root first."""
        children = defaultdict(list)
        for pid, parent in _parents().items():
            children[parent].append(pid)
        found: list[int] = [self.root] if exists(self.root) else []
        for pid in found:
            found += children[pid]
        return found

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to every process of the tree, leaves first."""
        for pid in reversed(self.pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self, timeout_s: float = 20) -> None:
        """Asks the root to end, which ends the rest; kills what is left after `timeout_s`.

        Returns when all are gone and nothing is left of them. Does nothing where they are gone.
        """
        pids = self.pids()
        names = self._shared_memory()
        with suppress(ProcessLookupError):
            os.kill(self.root, signal.SIGCONT)
            os.kill(self.root, signal.SIGTERM)
        with suppress(DeadlineError):
            wait_gone(pids, timeout_s)
        self.kill()
        _remove(names)

    def destroy(self) -> None:
        """Kills the tree as a crash would, and removes what it leaves behind."""
        names = self._shared_memory()
        self.kill()
        _remove(names)

    def kill(self, timeout_s: float = 10) -> None:
        """Kills the tree and waits until it is gone. Its named shared memory stays: an image
        of the tree refers to it.
        """
        pids = self.pids()
        self.signal(signal.SIGKILL)
        wait_gone(pids, timeout_s)

    def _shared_memory(self) -> set[Path]:
        return {name for pid in self.pids() for name in _mapped_shared_memory(pid)}

    def log_tail(self, lines: int = 20) -> str:
        with suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def start(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> ProcessTree:
    """Starts a program in a session of its own, without a terminal, output appended to `log`.

    The log is opened for appending only: a checkpoint then does not insist on its size.
    """
    with log.open("ab") as output:
        # Whoever is started here outlives this object on purpose: it is ended by its pid.
        process = subprocess.Popen(
            list(arguments),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # Reaped by wait_gone; Popen must not warn that nobody waited.
    process.returncode = 0
    return ProcessTree(process.pid, log)


def exists(pid: int) -> bool:
    """Whether a process runs. One that has ended and was not reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def wait_gone(pids: Sequence[int], timeout_s: float) -> None:
    """Waits until no process has one of these pids, reaping those that are ours."""
    wait_for(lambda: not any(_reap(pid) for pid in pids), f"end of processes {pids}", timeout_s)


def _reap(pid: int) -> bool:
    """Reaps the process if it is an ended child of ours; whether its pid is still taken."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return Path(f"/proc/{pid}").exists()


def _mapped_shared_memory(pid: int) -> Iterator[Path]:
    """Named shared memory that the process has mapped; its name outlives a killed process."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            path = line.partition(f"{SHARED_MEMORY}/")[2]
            if path and not path.endswith("(deleted)"):
                yield SHARED_MEMORY / path


def _remove(names: set[Path]) -> None:
    for name in names:
        name.unlink(missing_ok=True)


def _parents() -> dict[int, int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    return parents
