"""Metrics: what is counted, under which names, with which labels."""

import re

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sidecar.core.verdicts import Compared, Verdict
from sidecar.metrics import Metrics
from tests.unit.services.conftest import worker_verdict
from tests.unit.services.scripted import Script, first_steps, launch, rank_step
from tests.unit.services.test_gate import fetch
from tests.unit.services.waiting import eventually

LABELS = {"worker", "source", "verdict", "cause", "evidence", "kind", "le"}


async def samples(rig):
    _, text = await fetch(rig, "/metrics")
    families = list(text_string_to_metric_families(text))
    found = {}
    for family in families:
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.values()))] = sample.value
    return families, found


async def test_what_a_stream_does_is_counted(rig):
    scheduler, _ = await rig.workers.attach(Script())
    rank, _ = await rig.workers.attach(Script(rank=0))
    await scheduler.records(*first_steps(steps=2))
    await scheduler.records(*first_steps(steps=2))
    await rank.records(rank_step(1, 1))
    await scheduler.acked(4)
    await rank.acked(1)
    await scheduler.beat(dropped_records=3, errors=2, queued_bytes=10)
    await scheduler.sign(next_seq=5)
    await eventually(lambda: rig.verifier.signs)
    await rank.records(launch(2, 2))
    await rank.ended()
    await eventually(
        lambda: not rig.services.registry.alive(list(rig.worker().sources.values())[1])
    )
    _, found = await samples(rig)
    expected = {
        ("tokenwitness_records_total", ("scheduler", "w")): 4,
        ("tokenwitness_records_total", ("0", "w")): 1,
        ("tokenwitness_duplicate_records_total", ("scheduler", "w")): 4,
        ("tokenwitness_steps_total", ("scheduler", "w")): 2,
        ("tokenwitness_tokens_total", ("w",)): 2,
        ("tokenwitness_refused_streams_total", ("malformed",)): 1,
        ("tokenwitness_restore_signs_total", ("stood_still", "w")): 1,
        ("tokenwitness_attaches_total", ("new_worker", "w")): 1,
        ("tokenwitness_sessions", ("w",)): 1,
        ("tokenwitness_missing_sources", ("w",)): 1,
        ("tokenwitness_gate_open", ("w",)): 0,
        ("tokenwitness_generation", ("w",)): 1,
        ("tokenwitness_adapter_dropped_records", ("w",)): 3,
        ("tokenwitness_adapter_errors", ("w",)): 2,
        ("tokenwitness_adapter_queued_bytes", ("w",)): 10,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert found["tokenwitness_record_bytes_total", ("scheduler", "w")] > 0
    assert found["tokenwitness_ledger_bytes", ()] > 0


async def test_names_are_prefixed_and_labels_are_bounded(rig):
    scheduler, _ = await rig.workers.attach(Script())
    await scheduler.records(*first_steps("a-session-id"))
    await scheduler.acked(2)
    families, _ = await samples(rig)
    assert families
    for family in families:
        assert re.fullmatch(r"tokenwitness_[a-z_]+", family.name)
        for sample in family.samples:
            assert set(sample.labels) <= LABELS
            assert "a-session-id" not in sample.labels.values()
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


def test_verdicts_are_counted_with_their_times():
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.count_verdict(
        worker_verdict(
            verdict=Verdict.KV_MISMATCH,
            noticed_unix_ns=1_000_000_000,
            state_judged_unix_ns=1_500_000_000,
            finished_unix_ns=3_000_000_000,
            compared=Compared(shadow_tokens=64),
        )
    )
    # A real clock that was stepped back must not fail or count.
    metrics.count_verdict(worker_verdict(noticed_unix_ns=9, finished_unix_ns=5))
    value = registry.get_sample_value
    assert value("tokenwitness_verdicts_total", {"worker": "w", "verdict": "KV_MISMATCH"}) == 1
    assert value("tokenwitness_restore_to_state_verdict_seconds_sum", {"worker": "w"}) == 0.5
    assert value("tokenwitness_restore_to_verdict_seconds_sum", {"worker": "w"}) == 2.0
    assert value("tokenwitness_restore_to_verdict_seconds_count", {"worker": "w"}) == 1
    assert value("tokenwitness_shadow_tokens_total", {"worker": "w"}) == 64
    metrics.forget("w")
    assert value("tokenwitness_shadow_tokens_total", {"worker": "w"}) is None


@pytest.mark.parametrize("worker", ["w", "x"])
def test_forgetting_one_worker_leaves_the_others(worker):
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for name in ("w", "x"):
        metrics.tokens.labels(name).inc()
    metrics.forget(worker)
    left = {"w", "x"} - {worker}
    assert registry.get_sample_value("tokenwitness_tokens_total", {"worker": left.pop()}) == 1
    assert registry.get_sample_value("tokenwitness_tokens_total", {"worker": worker}) is None
