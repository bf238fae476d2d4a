from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from sidecar.config import Settings
from sidecar.core.verdicts import Verdict, WorkerVerdict
from sidecar.ports import UnknownVerificationError, VerificationHost
from sidecar.recorder.clocks import Clocks
from sidecar.server import Bound, Sidecar
from tests.unit.services.scripted import ScriptedWorker


@dataclass
class RecordingVerifier:
    """Writes down what it is told; gives the verdicts that a test puts in."""

    host: VerificationHost
    signs: list[Any] = field(default_factory=list)
    restarts: list[tuple[str, str, str]] = field(default_factory=list)
    started: list[dict[str, Any]] = field(default_factory=list)
    verdicts: dict[str, WorkerVerdict | None] = field(default_factory=dict)

    def on_sign(self, worker: Any, generation: int, source: Any, notice: Any) -> None:
        self.signs.append((worker.name, generation, str(source), notice))

    def on_restart(self, worker: Any, old: str, new: str) -> None:
        self.restarts.append((worker.name, old, new))

    def start(self, worker: Any, trigger: Any, **rest: Any) -> str:
        self.started.append({"worker": worker.name, "trigger": trigger, **rest})
        self.verdicts.setdefault(f"v{len(self.started)}", None)
        return f"v{len(self.started)}"

    async def wait(self, worker: str, verification_id: str | None, **rest: Any) -> Any:
        known = verification_id or next(reversed(self.verdicts), None)
        if known not in self.verdicts:
            raise UnknownVerificationError(worker, verification_id)
        return self.verdicts[known]

    def tend(self, worker: Any) -> None:
        pass

    async def close(self) -> None:
        pass


@dataclass
class Clock:
    """A monotonic clock that a test can set forward."""

    ahead: float = 0.0
    real: Clocks = field(default_factory=Clocks)

    def monotonic(self) -> float:
        return self.real.monotonic() + self.ahead


@dataclass
class Rig:
    """A running sidecar and the way to it."""

    sidecar: Sidecar
    bound: Bound
    channel: grpc.aio.Channel
    verifier: RecordingVerifier
    clock: Clock

    @property
    def workers(self) -> ScriptedWorker:
        return ScriptedWorker(self.channel)

    @property
    def services(self) -> Any:
        return self.sidecar.services

    def worker(self, name: str = "w") -> Any:
        return self.services.registry.get(name)

    async def close(self) -> None:
        await self.channel.close()
        await self.sidecar.stop()


StartRig = Callable[..., Any]


@pytest.fixture
async def start_rig(tmp_path: Path) -> AsyncIterator[StartRig]:
    rigs: list[Rig] = []

    async def start(**changes: Any) -> Rig:
        given = {
            "grpc_address": "127.0.0.1:0",
            "http_address": "127.0.0.1:0",
            "ledger_path": tmp_path / "ledger",
            "drain_grace_ms": 2000,
            **changes,
        }
        settings = Settings(**given)
        made: list[RecordingVerifier] = []

        def make(host: VerificationHost, settings: Settings) -> RecordingVerifier:
            made.append(RecordingVerifier(host))
            return made[-1]

        clock = Clock()
        sidecar = Sidecar(settings, make, clocks=Clocks(monotonic=clock.monotonic))
        bound = await sidecar.start()
        rig = Rig(sidecar, bound, grpc.aio.insecure_channel(bound.grpc_address), made[0], clock)
        rigs.append(rig)
        return rig

    yield start
    for rig in rigs:
        await rig.close()


@pytest.fixture
async def rig(start_rig: StartRig) -> Rig:
    return await start_rig()


def worker_verdict(verification_id: str = "v1", **changes: Any) -> WorkerVerdict:
    given = {
        "verification_id": verification_id,
        "worker": "w",
        "incarnation": "life-1",
        "generation": 1,
        "trigger": "hook",
        "mark": "",
        "verdict": Verdict.RESUMED_EXACT,
        "state_verdict": Verdict.RESUMED_EXACT,
        "final": True,
        **changes,
    }
    return WorkerVerdict(**given)
