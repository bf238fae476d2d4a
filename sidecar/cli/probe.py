"""What the doctor may look at. One object, so that tests can show it another machine."""

import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended. `output` has both its streams; status 124: it took too long."""

    status: int
    output: str


class Probe(Protocol):
    def run(self, command: list[str], *, timeout_s: float = 20.0) -> Ran | None:
        """None: there is no such program."""
        ...

    def read(self, path: str) -> str | None:
        """None: it is not there, or not for us."""
        ...

    def find(self, program: str) -> str | None:
        """Where a program lies: itself if it is a path, else by PATH and the sbin folders."""
        ...

    def kernel(self) -> str: ...

    def user_id(self) -> int: ...

    def accepts(self, host: str, port: int) -> bool:
        """Whether something listens there."""
        ...

    def may_listen(self, host: str, port: int) -> str | None:
        """None: it can be listened on. Else why not."""
        ...

    def may_write(self, path: Path) -> str | None:
        """None: the file can be written or created there. Else why not. Creates nothing."""
        ...


class Machine:
    """The machine we are on."""

    def run(self, command: list[str], *, timeout_s: float = 20.0) -> Ran | None:
        try:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return Ran(124, f"took longer than {timeout_s:g} s")
        except OSError:
            return None
        return Ran(done.returncode, done.stdout.decode(errors="replace"))

    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def find(self, program: str) -> str | None:
        path = os.environ.get("PATH", os.defpath)
        # Ordinary users often lack the sbin folders, where nft and criu lie.
        return shutil.which(program, path=os.pathsep.join([path, "/usr/local/sbin", "/usr/sbin"]))

    def kernel(self) -> str:
        return os.uname().release

    def user_id(self) -> int:
        return os.geteuid()

    def accepts(self, host: str, port: int) -> bool:
        try:
            with socket.create_connection((host, port), timeout=2.0):
                return True
        except OSError:
            return False

    def may_listen(self, host: str, port: int) -> str | None:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )[0]
            with socket.socket(family, kind, protocol) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
        except OSError as error:
            return str(error)
        return None

    def may_write(self, path: Path) -> str | None:
        if path.is_dir():
            return f"{path} is a folder"
        if path.exists():
            return None if os.access(path, os.W_OK) else f"{path} is read-only for this user"
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"folder {folder} is read-only for this user"
        return None
