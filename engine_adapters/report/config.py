"""Settings of an adapter: the engine's extra configuration over the environment over defaults."""

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

ENV_PREFIX = "TOKENWITNESS_"
_WORKER_NAME = re.compile(r"[A-Za-z0-9._/-]{1,128}")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


class ConfigError(ValueError):
    """A setting has a value that cannot be used. `key` and `value` say which."""

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(f"tokenwitness setting {key!r} has the value {value!r}: {remedy}")
        self.key = key
        self.value = value


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Every field can be given in the engine's extra configuration under its own name, or in
    the environment as TOKENWITNESS_ and its name in capitals. Sizes in bytes, times in ms.
    """

    # host:port of the sidecar.
    address: str = "127.0.0.1:9747"
    # Name of the worker. Empty: the host's name.
    worker: str = ""
    # Where the engine's HTTP API answers, for the shadow decode. Empty: not known.
    engine_url: str = ""
    # Bound of what waits for the sidecar, per source.
    queue_bytes: int = 64 * 1024 * 1024
    # Digests per token; 0: one per layer.
    layer_groups: int = 4
    # A process in which nothing ran for longer than this was perhaps frozen. Two seconds: a
    # loaded machine and Python's own lock delay threads by tens to hundreds of ms; a dump and
    # restore of an engine takes longer.
    suspect_after_ms: int = 2_000
    # What to do after a restore until the sidecar has told its policy.
    hold_mode: str = "verdict"
    hold_deadline_ms: int = 30_000
    hold_fail: str = "open"
    hold_closed_limit_ms: int = 300_000
    # An attestation that no step boundary served after this long is made by the reporter's
    # own thread.
    idle_after_ms: int = 250
    # When generator states are digested: "each_step" or "off".
    record_sampler: str = "each_step"
    # Faults may be injected into this worker.
    drill: bool = False

    @classmethod
    def load(cls, extra: Mapping[str, object], environ: Mapping[str, str]) -> "AdapterConfig":
        """Settings from the engine's extra configuration over the environment over defaults.

        Raises:
            ConfigError: an unknown key in `extra`, or a value that cannot be used. Unknown
                names in the environment are other programs' business.

        """
        known = {field.name for field in fields(cls)}
        for key in extra:
            if key not in known:
                raise ConfigError(key, extra[key], f"no such setting; known: {sorted(known)}")
        given: dict[str, Any] = {}
        for name in known:
            variable = ENV_PREFIX + name.upper()
            if name in extra:
                given[name] = _read(name, name, extra[name])
            elif environ.get(variable):
                given[name] = _read(variable, name, environ[variable])
        given.setdefault("worker", _host_name())
        return cls(**given)


def _read(key: str, name: str, value: object) -> object:
    return _READERS[name](key, value)


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._/-]", "-", socket.gethostname())[:128] or "worker"


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(key, value, "give a string")
    return value


def _worker(key: str, value: object) -> str:
    name = _text(key, value)
    if not _WORKER_NAME.fullmatch(name):
        raise ConfigError(key, value, "1 to 128 letters, digits, '.', '_', '-' or '/'")
    return name


def _address(key: str, value: object) -> str:
    address = _text(key, value)
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match.group(2)) <= 65_535:
        raise ConfigError(key, value, "give host:port, for example 127.0.0.1:9747")
    return address


def _url(key: str, value: object) -> str:
    url = _text(key, value)
    if url and not url.startswith(("http://", "https://")):
        raise ConfigError(key, value, "give an http:// or https:// address")
    return url


def _number(low: int, high: int) -> Callable[[str, object], int]:
    def read(key: str, value: object) -> int:
        # A truth value is an int to Python and never meant as one.
        text = "" if isinstance(value, bool) else str(value)
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise ConfigError(key, value, f"give a whole number, {low} to {high}")
        return int(text)

    return read


def _choice(*allowed: str) -> Callable[[str, object], str]:
    def read(key: str, value: object) -> str:
        if value not in allowed:
            raise ConfigError(key, value, f"give one of {', '.join(allowed)}")
        return str(value)

    return read


def _truth(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    try:
        return words[str(value).lower()]
    except KeyError:
        raise ConfigError(key, value, "give true or false") from None


_READERS: dict[str, Callable[[str, object], object]] = {
    "address": _address,
    "worker": _worker,
    "engine_url": _url,
    "queue_bytes": _number(64 * 1024, 16 * 1024**3),
    "layer_groups": _number(0, 1_024),
    "suspect_after_ms": _number(100, 3_600_000),
    "hold_mode": _choice("none", "verdict"),
    "hold_deadline_ms": _number(1, 3_600_000),
    "hold_fail": _choice("open", "closed"),
    "hold_closed_limit_ms": _number(1, 24 * 3_600_000),
    "idle_after_ms": _number(10, 60_000),
    "record_sampler": _choice("each_step", "off"),
    "drill": _truth,
}
