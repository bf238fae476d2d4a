"""Checks that decoding a message is made of. Each raises MalformedMessage."""

import math
import re
from collections.abc import Sequence

import numpy as np

from sidecar.core.events import U32, U64
from sidecar.wire import limits
from sidecar.wire.errors import MalformedMessage

_NAME = re.compile(r"[A-Za-z0-9._/-]+")


def at_most(field: str, value: int, limit: int) -> int:
    if value > limit:
        raise MalformedMessage(field, value, f"the most is {limit}")
    return value


def step_number(field: str, value: int) -> int:
    if not 1 <= value <= limits.MAX_STEP:
        raise MalformedMessage(field, value, "steps count from 1")
    return value


def equal_length(field: str, found: int, expected: int) -> None:
    if found != expected:
        raise MalformedMessage(field, found, f"number of entries must be {expected}")


def name(field: str, value: str) -> str:
    """Names of workers and marks: letters, digits, '.', '_', '-', '/'; 1 to 128."""
    if not 1 <= len(value) <= limits.MAX_NAME or _NAME.fullmatch(value) is None:
        raise MalformedMessage(
            field, value, "1 to 128 letters, digits, '.', '_', '-' or '/' are allowed"
        )
    return value


def session_id(field: str, value: str) -> str:
    """The engine's own request id, which users may choose: anything printable, 1 to 256."""
    if not 1 <= len(value) <= limits.MAX_SESSION_ID or not value.isprintable():
        raise MalformedMessage(field, value, "1 to 256 printable characters are allowed")
    return value


def text(field: str, value: str, limit: int = limits.MAX_TEXT) -> str:
    if len(value) > limit:
        raise MalformedMessage(field, value, f"longer than {limit} characters")
    return value


def finite(field: str, value: float) -> float:
    if not math.isfinite(value):
        raise MalformedMessage(field, value, "must be a finite number")
    return value


def row(field: str, value: int) -> int:
    return at_most(field, value, limits.MAX_ROW)


def u32s(values: Sequence[int]) -> U32:
    return np.fromiter(values, np.uint32, len(values))


def optional_u32s(field: str, values: Sequence[int], length: int) -> U32 | None:
    """A column that may be left out."""
    if not values:
        return None
    equal_length(field, len(values), length)
    return np.fromiter(values, np.uint32, length)


def rows(field: str, values: Sequence[int]) -> U32:
    column = u32s(values)
    if len(column):
        at_most(field, int(column.max()), limits.MAX_ROW)
    return column


def u64s(values: Sequence[int]) -> U64:
    return np.fromiter(values, np.uint64, len(values))


def digests(field: str, data: bytes, tokens: int) -> U64:
    """Packed digests as uint64[tokens, digests per token]. `tokens` is at least 1."""
    width, left = divmod(len(data), 8 * tokens)
    if left or not width:
        raise MalformedMessage(
            field, len(data), f"number of bytes must be a multiple of 8 x {tokens} tokens, not 0"
        )
    return np.frombuffer(data, dtype="<u8").reshape(tokens, width)


def packed(data: bytes, tokens: int, width: int) -> U64:
    return np.frombuffer(data, dtype="<u8").reshape(tokens, width)
