"""One check of the doctor."""

from dataclasses import asdict, dataclass
from enum import Enum

from sidecar.cli.documents import Document


class State(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """`seen`: what was found. `remedy`: what to do about it; empty if nothing."""

    name: str
    state: State
    seen: str
    remedy: str = ""

    def document(self) -> Document:
        return asdict(self) | {"state": self.state.value}


def ok(name: str, seen: str) -> Check:
    return Check(name, State.OK, seen)


def warn(name: str, seen: str, remedy: str) -> Check:
    return Check(name, State.WARN, seen, remedy)


def fail(name: str, seen: str, remedy: str) -> Check:
    return Check(name, State.FAIL, seen, remedy)


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "nothing")[:200]
