"""The roles without vLLM: of it they need two base classes."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

_BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"


@pytest.fixture
def vllm_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stands in for the package while a test runs; what was imported with it is forgotten."""
    before = set(sys.modules)
    parts = _BASE.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    base = sys.modules[_BASE]
    for each in ("KVConnectorMetadata", "KVConnectorWorkerMetadata"):
        setattr(base, each, type(each, (), {}))
    yield
    for name in set(sys.modules) - before:
        if name.startswith("engine_adapters.vllm"):
            del sys.modules[name]
