"""The real verifier, made from the settings."""

from contextlib import AbstractAsyncContextManager

from sidecar.config import Settings
from sidecar.config_types import Exactness as ConfiguredExactness
from sidecar.config_types import HoldFail
from sidecar.core.continuation import ContinuationSettings, Exactness
from sidecar.ports import VerificationHost
from sidecar.registry import WorkerRuntime
from sidecar.shadow.engine import ShadowEngine
from sidecar.shadow.request_ids import ShadowIds
from sidecar.shadow.settings import ShadowSettings
from sidecar.shadow.vllm_http import VllmHttpEngine, VllmHttpSettings
from sidecar.verify.continuation import ContinuationPlan
from sidecar.verify.runner import RunSettings
from sidecar.verify.service import VerificationService


def make_verifier(host: VerificationHost, settings: Settings) -> VerificationService:
    """Verifications as the settings want them. Called inside the event loop that runs them."""
    return VerificationService(
        host,
        RunSettings(
            attestation_deadline_s=settings.attestation_deadline_ms / 1000,
            late_steps_allowed=settings.late_steps_allowed,
            release_on_fault=settings.hold_fail is HoldFail.OPEN,
        ),
        continuation_plan(settings),
        default_deadline_s=settings.verification_deadline_ms / 1000,
    )


def continuation_plan(settings: Settings) -> ContinuationPlan:
    """How continuations are checked."""

    def open_engine(worker: WorkerRuntime) -> AbstractAsyncContextManager[ShadowEngine] | None:
        url = settings.shadow_engine_url or worker.engine_url
        return VllmHttpEngine(VllmHttpSettings(base_url=url)) if url else None

    exact = settings.shadow_exactness is ConfiguredExactness.EXACT
    return ContinuationPlan(
        rules=ContinuationSettings(
            exactness=Exactness.BATCH_INVARIANT if exact else Exactness.NOT_INVARIANT,
            near_tie_margin=settings.shadow_near_tie_margin,
        ),
        shadow=_shadow(settings),
        ids=ShadowIds(),
        open_engine=open_engine,
    )


def _shadow(settings: Settings) -> ShadowSettings | None:
    """None: replays are switched off."""
    if not settings.shadow_modes or not settings.shadow_max_sessions:
        return None
    if not settings.shadow_token_budget:
        return None
    return ShadowSettings(
        modes=tuple(settings.shadow_modes),
        k=settings.shadow_k,
        seeded_replay=settings.shadow_seeded_replay,
        max_sessions=settings.shadow_max_sessions,
        token_budget=settings.shadow_token_budget,
        concurrency=settings.shadow_concurrency,
        deadline_s=settings.verification_deadline_ms / 1000,
    )
