"""A machine for the doctor to look at."""

from dataclasses import dataclass, field
from pathlib import Path

from sidecar.cli.probe import Ran

ALL_CAPABILITIES = "Name:\tx\nCapEff:\t000001ffffffffff\n"


@dataclass
class FakeMachine:
    """A machine on which all is well, until a test says otherwise."""

    release: str = "6.18.1-generic"
    user: int = 0
    files: dict = field(
        default_factory=lambda: {
            "/proc/self/status": ALL_CAPABILITIES,
            "/proc/sys/kernel/io_uring_disabled": "2\n",
        }
    )
    programs: dict = field(
        default_factory=lambda: {"criu": "/usr/sbin/criu", "nft": "/usr/sbin/nft"}
    )
    runs: dict = field(
        default_factory=lambda: {
            "criu --version": Ran(0, "Version: 4.2.1\n"),
            "criu check": Ran(0, "Looks good.\n"),
            "nft list": Ran(0, ""),
        }
    )
    busy: str | None = None
    unwritable: str | None = None
    listening: bool = True

    def run(self, command, *, timeout_s=20.0):
        return self.runs.get(" ".join([Path(command[0]).name, *command[1:2]]))

    def read(self, path):
        return self.files.get(path)

    def find(self, program):
        return self.programs.get(program)

    def kernel(self):
        return self.release

    def user_id(self):
        return self.user

    def accepts(self, host, port):
        return self.listening

    def may_listen(self, host, port):
        return self.busy

    def may_write(self, path):
        return self.unwritable
