"""Puts the roles together with their reporters, for one process's part of a worker."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_adapters.report.config import AdapterConfig, ConfigError
from engine_adapters.report.reporter import SourceReporter
from engine_adapters.vllm.drill import kv_map_writer
from engine_adapters.vllm.errors import UnsupportedLayoutError, UnsupportedSettingError
from engine_adapters.vllm.fingerprint import engine_fingerprint
from engine_adapters.vllm.identity import rank_identity, rank_numbers, scheduler_identity
from engine_adapters.vllm.kv_groups import observe_groups
from engine_adapters.vllm.live_sessions import LiveReader
from engine_adapters.vllm.metadata import StepMetadata
from engine_adapters.vllm.model_access import ModelAccess, find_runner
from engine_adapters.vllm.rank_role import RankRole
from engine_adapters.vllm.scheduler_access import SchedulerAccess
from engine_adapters.vllm.scheduler_role import SchedulerRole
from engine_adapters.vllm.stall_watch import StallWatch
from engine_adapters.vllm.versions import check_version

# Seconds that a reporter gets to send what is left when the engine shuts down.
_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class SchedulerSide:
    """The scheduler's role, its reporter, and how it sees block tables."""

    role: SchedulerRole
    access: SchedulerAccess
    reporter: SourceReporter

    def close(self) -> None:
        self.reporter.close(_CLOSE_S)


class WorkerSide:
    """One rank. Observes from the moment that its KV cache is registered."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, config: AdapterConfig) -> None:
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._config = config
        self._role: RankRole | None = None
        self._reporter: SourceReporter | None = None

    def register(self, kv_caches: Mapping[str, Any]) -> None:
        """Raises UnsupportedLayoutError or UnsupportedSettingError: the rank stays unobserved."""
        groups = observe_groups(
            self._vllm_config, self._kv_cache_config, kv_caches, self._config.layer_groups
        )
        role = RankRole(
            groups,
            ModelAccess(find_runner()),
            record_sampler=self._config.record_sampler == "each_step",
        )
        numbers = rank_numbers()
        reporter = SourceReporter(
            self._config,
            rank_identity(self._config, self._vllm_config, numbers),
            fingerprint=lambda: fingerprint_of(self._vllm_config),
            kv_groups=[group.spec for group in groups],
            on_idle_attest=role.idle_attestation,
        )
        role.reporter = reporter
        if self._config.drill:
            role.kv_map = kv_map_writer(numbers.rank, self._kv_cache_config, kv_caches, os.environ)
        reporter.start()
        role.start()
        self._role, self._reporter = role, reporter

    def refuse_cross_layers(self) -> None:
        """Raises UnsupportedLayoutError."""
        raise UnsupportedLayoutError("all", "one cross-layer tensor", "do not ask for one")

    def before_step(self, step: StepMetadata) -> None:
        if self._role is not None:
            self._role.before_step(step)

    def after_step(self, step: StepMetadata) -> None:
        if self._role is not None:
            self._role.after_step(step)

    def close(self) -> None:
        if self._role is not None:
            self._role.give_up()
        if self._reporter is not None:
            self._reporter.close(_CLOSE_S)


def make_scheduler_side(vllm_config: Any) -> SchedulerSide:
    """Raises UnsupportedEngineError, UnsupportedSettingError: the engine stays unobserved."""
    config = read_config(vllm_config)
    access = SchedulerAccess()
    role = SchedulerRole(LiveReader(access.table_of), stall_watch_for(vllm_config))
    reporter = SourceReporter(
        config,
        scheduler_identity(config, vllm_config),
        fingerprint=lambda: fingerprint_of(vllm_config),
        on_idle_attest=role.idle_attestation,
    )
    role.reporter = reporter
    reporter.start()
    return SchedulerSide(role, access, reporter)


def stall_watch_for(vllm_config: Any) -> StallWatch | None:
    """None on a CPU, and where the device is not known: a slow step is normal there."""
    device = getattr(getattr(vllm_config, "device_config", None), "device_type", None)
    return StallWatch() if device and device != "cpu" else None


def make_worker_side(vllm_config: Any, kv_cache_config: Any) -> WorkerSide:
    """Raises UnsupportedEngineError, UnsupportedSettingError: the rank stays unobserved."""
    config = read_config(vllm_config)
    if kv_cache_config is None:
        raise UnsupportedSettingError("kv_cache_config", None, "this vLLM does not hand it over")
    return WorkerSide(vllm_config, kv_cache_config, config)


def read_config(vllm_config: Any) -> AdapterConfig:
    """The adapter's settings, once the engine's version is known to fit."""
    check_version(engine_version())
    extra = vllm_config.kv_transfer_config.kv_connector_extra_config
    try:
        return AdapterConfig.load(extra, os.environ)
    except ConfigError as error:
        raise UnsupportedSettingError(error.key, error.value, str(error)) from error


def engine_version() -> str:
    """The version of the installed engine."""
    import vllm  # noqa: PLC0415 - engine

    return str(vllm.__version__)


def fingerprint_of(vllm_config: Any) -> dict[str, str]:
    """The environment of this process: host, engine, model."""
    from engine_adapters.fingerprint import host_fingerprint  # noqa: PLC0415 - read once, late

    return {
        **host_fingerprint(),
        **engine_fingerprint(vllm_config, engine_version()),
    }
