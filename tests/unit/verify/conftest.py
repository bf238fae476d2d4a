from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from sidecar.config import Settings
from sidecar.server import Sidecar
from tests.unit.services.conftest import Clock, Rig


@pytest.fixture
async def start_verifying(tmp_path: Path) -> AsyncIterator[Any]:
    """Starts a sidecar with a verifier of the test's choice."""
    rigs: list[Rig] = []

    async def start(make_verifier: Any, **changes: Any) -> Rig:
        settings = Settings(
            grpc_address="127.0.0.1:0",
            http_address="127.0.0.1:0",
            ledger_path=tmp_path / "ledger",
            drain_grace_ms=2000,
            **changes,
        )
        sidecar = Sidecar(settings, make_verifier)
        bound = await sidecar.start()
        channel = grpc.aio.insecure_channel(bound.grpc_address)
        rig = Rig(sidecar, bound, channel, sidecar.services.verifier, Clock())
        rigs.append(rig)
        return rig

    yield start
    for rig in rigs:
        await rig.close()
