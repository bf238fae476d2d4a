"""The kinds of values that settings have."""

import enum
import ipaddress
from typing import Annotated

from pydantic import BeforeValidator, Field


class HoldMode(enum.StrEnum):
    """What a source does at the first step after a restore."""

    NONE = "none"
    VERDICT = "verdict"


class HoldFail(enum.StrEnum):
    """What a held step does when no verdict came before the deadline."""

    OPEN = "open"
    CLOSED = "closed"


class Exactness(enum.StrEnum):
    """Whether two honest runs of the engine give the same tokens."""

    EXACT = "exact"
    NOISY = "noisy"


class LogFormat(enum.StrEnum):
    """How log lines are written."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(enum.StrEnum):
    """The least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[v6]:port``.

    Raises:
        ValueError: no port, or a port outside 0 to 65535.

    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port with a port from 0 to 65535")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_address(value: str) -> str:
    split_address(value)
    return value


def words(value: object) -> object:
    """Flags and variables give a list as words between commas."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


Address = Annotated[str, BeforeValidator(_check_address)]
Milliseconds = Annotated[int, Field(ge=1, le=24 * 3600 * 1000)]
