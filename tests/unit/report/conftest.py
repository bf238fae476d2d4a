import logging
from collections.abc import Callable, Iterator

import pytest
from report_fakes import FakeSidecar, Script

from engine_adapters.report import log
from engine_adapters.report.attestations import DueAttestation, RankBody
from engine_adapters.report.config import AdapterConfig
from engine_adapters.report.identity import KvGroupSpec, SourceIdentity, SourceKind
from engine_adapters.report.reporter import SourceReporter


@pytest.fixture(autouse=True)
def fresh_tally(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said in one test is news in the next."""
    monkeypatch.setattr(log, "_tally", log._Tally())
    logging.getLogger("tokenwitness").setLevel(logging.DEBUG)


@pytest.fixture
def sidecar() -> Iterator[FakeSidecar]:
    fake = FakeSidecar()
    yield fake
    fake.stop()
    assert fake.faults == []


@pytest.fixture
def start_sidecar() -> Iterator[Callable[..., FakeSidecar]]:
    started: list[FakeSidecar] = []

    def start(script: Script | None = None, port: int = 0) -> FakeSidecar:
        fake = FakeSidecar(script, port)
        started.append(fake)
        return fake

    yield start
    for fake in started:
        fake.stop()
        assert fake.faults == []


GROUP = KvGroupSpec(
    group=0, block_size=16, blocks=100, layers=(0, 1), digest_layers=(1, 1), row_bytes=64
)


def empty_body(due: DueAttestation) -> RankBody:
    return RankBody(kv=())


@pytest.fixture
def make_reporter() -> Iterator[Callable[..., SourceReporter]]:
    """Reporters that are started, and closed with the test."""
    made: list[SourceReporter] = []

    def make(address: str, *, kind=SourceKind.RANK, idle=empty_body, **settings) -> SourceReporter:
        settings.setdefault("idle_after_ms", 60_000)
        reporter = SourceReporter(
            AdapterConfig(address=address, worker="w", **settings),
            SourceIdentity(worker="w", incarnation="life-1", kind=kind),
            fingerprint=lambda: {"engine": "fake", "kernel": "k"},
            kv_groups=(GROUP,),
            on_idle_attest=idle,
        )
        made.append(reporter)
        reporter.start()
        return reporter

    yield make
    for reporter in made:
        reporter.close(0.2)
