"""Whatever fails in the adapter, the engine's output stays as it is."""

import logging

import pytest

from engine_adapters.report.attestations import Origin
from engine_adapters.vllm import assembly
from engine_adapters.vllm.metadata import NotObserved
from engine_adapters.vllm.rank_role import RankRole
from engine_adapters.vllm.scheduler_role import SchedulerRole
from tests.engines.vllm_support import folding
from tests.engines.vllm_support.engine import MARKS, MODULE, NAME, running

pytestmark = MARKS

EXAMPLE = {
    "kv_connector": "ExampleConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"shared_storage_path": ""},
}
PROMPTS = [[200 + n] * (9 + 5 * n) for n in range(3)]
SCHEDULER_HOOKS = ["new_request", "launch", "outcome", "finished"]
RANK_HOOKS = ["before_step", "after_step"]


class BrokenError(RuntimeError):
    pass


def greedy(tokens=8):
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The adapter beside another connector, as a child of MultiConnector."""
    other = {
        **EXAMPLE,
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path_factory.mktemp("other"))},
    }
    child = {"kv_connector": NAME, "kv_connector_module_path": MODULE, "kv_role": "kv_producer"}
    transfer = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [child, other]},
    }
    with running(transfer=transfer) as engine:
        engine.expected = engine.generate(PROMPTS, greedy())
        yield engine


@pytest.fixture
def armed(engine):
    """The engine with new roles, as if just started."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    scheduler = engine.core.scheduler.connector._connectors[0]
    worker = get_kv_transfer_group()._connectors[0]
    config = scheduler._vllm_config
    scheduler._scheduler = assembly.make_scheduler_side(config)
    scheduler.bind_kv_cache_manager(engine.core.scheduler.kv_cache_manager)
    worker._worker = assembly.make_worker_side(config, worker._kv_cache_config)
    runner = engine.llm.llm_engine.model_executor.driver_worker.worker.model_runner
    layers = config.compilation_config.static_forward_context
    worker.register_kv_caches({name: layer.kv_cache for name, layer in layers.items()})
    assert runner.kv_caches
    return scheduler, worker


def test_a_child_of_multiconnector_observes_as_always(engine, armed):
    engine.scheduler.every = 2
    assert engine.generate(PROMPTS, greedy()) == engine.expected
    rows, sessions = folding.check_attestations(engine)
    assert rows > 50
    assert sessions > 5


@pytest.mark.parametrize("hook", SCHEDULER_HOOKS)
@pytest.mark.parametrize("after", [0, 3])
def test_a_scheduler_hook_that_fails_leaves_the_output(engine, armed, monkeypatch, hook, after):
    fail(monkeypatch, SchedulerRole, hook, after)
    assert engine.generate(PROMPTS, greedy()) == engine.expected
    scheduler, _ = armed
    if after == 0:
        assert scheduler._scheduler is None
        assert engine.scheduler.closed


@pytest.mark.parametrize("hook", RANK_HOOKS)
@pytest.mark.parametrize("after", [0, 3])
def test_a_rank_hook_that_fails_leaves_the_output(engine, armed, monkeypatch, hook, after):
    fail(monkeypatch, RankRole, hook, after)
    assert engine.generate(PROMPTS, greedy()) == engine.expected
    _, worker = armed
    assert worker._worker is None
    assert engine.rank.closed


def test_an_attestation_that_fails_is_told_and_leaves_the_output(engine, armed, monkeypatch):
    def broken(*_):
        raise BrokenError("no such memory")

    monkeypatch.setattr("engine_adapters.vllm.rank_role.read_live", broken)
    engine.rank.owe(5, hold=True, origin=Origin.SIGN)
    assert engine.generate(PROMPTS, greedy()) == engine.expected
    assert [(due.attest_id, error) for due, error in engine.rank.failed] == [
        (5, "BrokenError: no such memory")
    ]


@pytest.mark.parametrize("version", ["0.25.1", "0.34.0", "1.0", "unreleased"])
def test_a_version_out_of_range_is_not_observed_and_said_once(
    engine, armed, monkeypatch, caplog, version
):
    monkeypatch.setattr(assembly, "engine_version", lambda: version)
    scheduler, _ = armed
    kind = type(scheduler)
    with caplog.at_level(logging.WARNING, logger="tokenwitness"):
        inert = kind(scheduler._vllm_config, scheduler.role, scheduler._kv_cache_config)
    assert [r.message for r in caplog.records if version in r.message] == [
        f"this engine is not observed: vLLM {version} is not supported: use 0.26 to 0.33"
    ]
    monkeypatch.setattr(scheduler, "_scheduler", inert._scheduler)
    assert inert._scheduler is None
    assert engine.generate(PROMPTS, greedy()) == engine.expected
    assert isinstance(scheduler.build_connector_meta(None), NotObserved)


def test_a_bad_setting_is_not_observed(engine, armed, monkeypatch, caplog):
    monkeypatch.setenv("TOKENWITNESS_QUEUE_BYTES", "much")
    scheduler, _ = armed
    with caplog.at_level(logging.WARNING, logger="tokenwitness"):
        inert = type(scheduler)(scheduler._vllm_config, scheduler.role, scheduler._kv_cache_config)
    assert inert._scheduler is None
    assert any("TOKENWITNESS_QUEUE_BYTES" in r.message for r in caplog.records)


def fail(monkeypatch, role, hook, after):
    whole, calls = getattr(role, hook), []

    def broken(self, *args):
        calls.append(args)
        if len(calls) > after:
            raise BrokenError(hook)
        return whole(self, *args)

    monkeypatch.setattr(role, hook, broken)
