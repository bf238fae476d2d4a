"""The KV connector that observes: a thin dispatcher from vLLM's hooks to a role.

It never moves KV and never answers so that the engine acts differently: no external tokens,
no delayed frees, no transfer results. Whatever fails here leaves the engine unobserved, not
broken: metadata says `NotObserved` and ranks stop too.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)

from engine_adapters.report.log import never_raises, note_error
from engine_adapters.vllm.assembly import (
    SchedulerSide,
    WorkerSide,
    make_scheduler_side,
    make_worker_side,
)
from engine_adapters.vllm.errors import NotObservableError
from engine_adapters.vllm.metadata import NotObserved, StepDone, StepMetadata

logger = logging.getLogger("tokenwitness")
T = TypeVar("T")


class TokenwitnessConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc] # untyped here
    """vLLM 0.26 to 0.33; outside that range it is inert and says so once."""

    def __init__(
        self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None
    ) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = self._make(lambda: make_scheduler_side(vllm_config))
        else:
            self._worker = self._make(lambda: make_worker_side(vllm_config, kv_cache_config))

    def _make(self, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except NotObservableError as error:
            logger.warning("this engine is not observed: %s", error)
        except Exception as error:  # noqa: BLE001 - an adapter that fails leaves the engine be
            note_error("adapter start; this engine is not observed", error)
        return None

    def _on_scheduler(self, hook: Callable[[SchedulerSide], T], default: T) -> T:
        if self._scheduler is None:
            return default
        try:
            return hook(self._scheduler)
        except Exception as error:  # noqa: BLE001 - as above
            side, self._scheduler = self._scheduler, None
            _stop("scheduler role", side.close, error)
            return default

    def _on_worker(self, hook: Callable[[WorkerSide], T], default: T) -> T:
        if self._worker is None:
            return default
        try:
            return hook(self._worker)
        except NotObservableError as error:
            logger.warning("this rank is not observed: %s", error)
            side, self._worker = self._worker, None
            side.close()
        except Exception as error:  # noqa: BLE001 - as above
            side, self._worker = self._worker, None
            _stop("rank role", side.close, error)
        return default

    # What keeps the engine exactly as it is without a connector.

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:  # noqa: ARG003 - the engine's signature
        return False

    def get_num_new_matched_tokens(
        self,
        request: Any,  # noqa: ARG002 - the engine's signature, as below
        num_computed_tokens: int,  # noqa: ARG002
    ) -> tuple[int | None, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing is loaded."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing is loaded."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded. Skipped under full CUDA graphs anyway."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """All layers are read at once in `wait_for_save`."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, None]:  # noqa: ARG002 - the engine's signature
        return None, None

    # Scheduler.

    @never_raises(None)
    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """VLLM 0.30 and later."""
        self._on_scheduler(lambda side: side.access.bind(kv_cache_manager), None)

    @never_raises(None)
    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:  # noqa: ARG002 - as above
        """VLLM up to 0.29: the only sign of the cache manager."""
        self._on_scheduler(lambda side: side.access.find(), None)

    @never_raises(None)
    def on_new_request(self, request: Any) -> None:
        self._on_scheduler(lambda side: side.role.new_request(request), None)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return self._on_scheduler(lambda side: side.role.launch(scheduler_output), NotObserved())

    @never_raises(None)
    def update_connector_output(self, connector_output: Any) -> None:
        done = connector_output.kv_connector_worker_meta
        self._on_scheduler(lambda side: side.role.outcome(done), None)

    @never_raises((False, None))
    def request_finished(
        self,
        request: Any,
        block_ids: list[int],  # noqa: ARG002 - as above
    ) -> tuple[bool, dict[str, Any] | None]:
        self._on_scheduler(lambda side: side.role.finished(request), None)
        return False, None

    @never_raises((False, None))
    def request_finished_all_groups(
        self,
        request: Any,
        block_ids: tuple[list[int], ...],  # noqa: ARG002 - as above
    ) -> tuple[bool, dict[str, Any] | None]:
        self._on_scheduler(lambda side: side.role.finished(request), None)
        return False, None

    # Worker.

    @never_raises(None)
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._on_worker(lambda side: side.register(kv_caches), None)

    @never_raises(None)
    def register_cross_layers_kv_cache(self, kv_cache: Any, attn_backend: Any) -> None:  # noqa: ARG002
        """VLLM up to 0.28, only where a connector asks for it: this one does not."""
        self._on_worker(lambda side: side.refuse_cross_layers(), None)

    @never_raises(None)
    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        """The first hook of a step in all versions, before anything of it touches KV."""
        self._before_step(kv_connector_metadata)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._before_step(connector_metadata)

    def _before_step(self, metadata: KVConnectorMetadata) -> None:
        if isinstance(metadata, StepMetadata):
            self._on_worker(lambda side: side.before_step(metadata), None)

    @never_raises(None)
    def wait_for_save(self) -> None:
        self._after_step()

    def _after_step(self) -> None:
        metadata = self._connector_metadata
        if isinstance(metadata, StepMetadata):
            self._on_worker(lambda side: side.after_step(metadata), None)

    @never_raises(None)
    def build_connector_worker_meta(self) -> StepDone | None:
        metadata = self._connector_metadata
        if not isinstance(metadata, StepMetadata):
            return None
        if not len(metadata.rows):
            # Up to 0.30 steps without tokens are not saved, so this is their end.
            self._after_step()
        return StepDone(metadata.step)

    @never_raises(None)
    def shutdown(self) -> None:
        for side in (self._scheduler, self._worker):
            if side is not None:
                side.close()
        self._scheduler = self._worker = None


def _stop(what: str, close: Callable[[], None], error: Exception) -> None:
    note_error(f"{what}; nothing of it is observed from here on", error)
    try:
        close()
    except Exception as also:  # noqa: BLE001 - as above
        note_error(f"closing the {what}", also)
