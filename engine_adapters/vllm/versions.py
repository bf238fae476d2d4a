"""Which vLLM versions the adapter was checked against (docs/vllm.md has the matrix)."""

import re
from typing import TypeAlias

from engine_adapters.vllm.errors import UnsupportedEngineError

Version: TypeAlias = tuple[int, int]

OLDEST: Version = (0, 26)
# 0.33 is announced; its hooks were not read by us, see docs/vllm.md.
NEWEST: Version = (0, 33)


def check_version(text: str) -> Version:
    """The (major, minor) of a supported version.

    Raises:
        UnsupportedEngineError: outside 0.26 to 0.33, or not a version.

    """
    match = re.match(r"(\d+)\.(\d+)", text)
    version = (int(match.group(1)), int(match.group(2))) if match else None
    if version is None or not OLDEST <= version <= NEWEST:
        raise UnsupportedEngineError(text, f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}")
    return version
