"""Runs a plan: a few replays at once, users first, every wait bounded."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from sidecar.shadow.engine import Completion, ShadowEngine, TokenScore
from sidecar.shadow.errors import (
    CacheIsolationBroken,
    EngineFrozen,
    EngineRefused,
    EngineUnreachable,
    MalformedReply,
    NothingRead,
    ShadowError,
)
from sidecar.shadow.plan import LeftOut, PlannedReplay, ShadowRequest, plan_shadow
from sidecar.shadow.request_ids import ShadowIds
from sidecar.shadow.results import FailureKind, ShadowFailure, ShadowResult
from sidecar.shadow.settings import ShadowMode, ShadowSettings
from sidecar.shadow.traffic import TrafficGate

_LOG = structlog.get_logger(__name__)

_KINDS: dict[type[ShadowError], FailureKind] = {
    EngineUnreachable: FailureKind.UNREACHABLE,
    EngineRefused: FailureKind.REFUSED,
    EngineFrozen: FailureKind.FROZEN,
    MalformedReply: FailureKind.MALFORMED,
    CacheIsolationBroken: FailureKind.NOT_ISOLATED,
    NothingRead: FailureKind.NOTHING_READ,
}

_UNTOLD = (
    "the engine does not tell how many tokens came from its cache"
    " (vLLM: --enable-prompt-tokens-details), so perhaps nothing restored was read"
)


@dataclass(frozen=True, slots=True)
class ShadowProgress:
    """`done` of `total` replays have a result, `last` being the newest."""

    done: int
    total: int
    last: ShadowResult


async def run_shadow(
    engine: ShadowEngine,
    requests: Sequence[ShadowRequest],
    settings: ShadowSettings,
    on_progress: Callable[[ShadowProgress], None] | None = None,
    *,
    ids: ShadowIds | None = None,
) -> list[ShadowResult]:
    """One result per session and mode, errors and what was left out included.

    Never raises for an engine's fault, returns within `settings.deadline_s` (and the moment
    that it takes to close connections). `ids` names the requests; the recorder needs the same.
    What `on_progress` raises ends the run.
    """
    if not requests:
        return []
    run = _Run(engine, settings, ids or ShadowIds())
    try:
        description = await engine.describe(
            timeout_s=min(settings.request_timeout_s, settings.deadline_s)
        )
    except ShadowError as error:
        return [_failed_session(request.session_id, error) for request in requests]
    plan = plan_shadow(requests, settings, max_context=description.max_context)
    results = [_left_out(left) for left in plan.left_out]
    done = 0

    async def one(replay: PlannedReplay) -> ShadowResult:
        nonlocal done
        result = await run.replay(replay)
        done += 1
        if on_progress is not None:
            on_progress(ShadowProgress(done, len(plan.replays), result))
        return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(replay)) for replay in plan.replays]
    return [task.result() for task in tasks] + results


class _Run:
    """What the replays of one round share."""

    def __init__(self, engine: ShadowEngine, settings: ShadowSettings, ids: ShadowIds) -> None:
        self._engine = engine
        self._settings = settings
        self._ids = ids
        self._end = asyncio.get_running_loop().time() + settings.deadline_s
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._gate = TrafficGate(engine, max_waiting=settings.max_waiting, poll_s=settings.poll_s)

    async def replay(self, replay: PlannedReplay) -> ShadowResult:
        stage = "waiting for a free slot"
        try:
            async with asyncio.timeout_at(self._end), self._slots:
                stage = "waiting for users' requests to go first"
                await self._gate.passed(timeout_s=self._settings.request_timeout_s)
                stage = "running"
                return await self._call(replay)
        except ShadowError as error:
            return _failed(replay, _KINDS[type(error)], str(error))
        except TimeoutError:
            load = self._gate.last
            seen = "" if load is None else f"; engine had {load.waiting} waiting requests"
            return _failed(
                replay,
                FailureKind.DEADLINE,
                f"deadline of {self._settings.deadline_s:g} s ended while {stage}{seen}",
            )

    async def _call(self, replay: PlannedReplay) -> ShadowResult:
        request_id = self._ids.new()
        log = _LOG.bind(session_id=replay.session_id, mode=replay.mode.value, request_id=request_id)
        log.debug("shadow_replay_started", prompt=len(replay.tokens), k=replay.max_tokens)
        if replay.mode is ShadowMode.FORCED:
            scores = await self._engine.score(
                replay.tokens,
                first_position=replay.first_position,
                cache_salt=request_id,
                request_id=request_id,
                logprobs=self._settings.logprobs,
                timeout_s=self._settings.request_timeout_s,
            )
            result = _scored(replay, scores)
        else:
            independent = replay.mode is ShadowMode.INDEPENDENT
            completion = await self._engine.complete(
                replay.tokens,
                sampling=replay.sampling,
                max_tokens=replay.max_tokens,
                # The request id is unique, so as a salt it shares KV with nobody.
                cache_salt=request_id if independent else replay.cache_salt,
                request_id=request_id,
                logprobs=self._settings.logprobs,
                timeout_s=self._settings.request_timeout_s,
            )
            _check_cache(completion, replay.mode)
            result = _completed(replay, completion)
            if replay.mode is ShadowMode.CACHED and completion.cached_tokens is None:
                result = replace(result, note=f"{result.note}; {_UNTOLD}".lstrip("; "))
        log.debug("shadow_replay_finished", tokens=len(result.tokens))
        return result


def _check_cache(completion: Completion, mode: ShadowMode) -> None:
    """Whether the cache was used as the mode says, where the engine tells."""
    cached = completion.cached_tokens
    if mode is ShadowMode.INDEPENDENT and cached:
        raise CacheIsolationBroken(cached)
    if mode is ShadowMode.CACHED and cached == 0:
        raise NothingRead


def _completed(replay: PlannedReplay, completion: Completion) -> ShadowResult:
    return ShadowResult(
        session_id=replay.session_id,
        mode=replay.mode,
        first_position=replay.first_position,
        tokens=completion.tokens,
        top=completion.top,
        plain_greedy=replay.plain_greedy,
        finish=completion.finish,
        cached_tokens=completion.cached_tokens,
        note=replay.note,
    )


def _scored(replay: PlannedReplay, scores: tuple[TokenScore, ...]) -> ShadowResult:
    return ShadowResult(
        session_id=replay.session_id,
        mode=replay.mode,
        first_position=replay.first_position,
        tokens=tuple(score.best_token for score in scores) if replay.plain_greedy else (),
        top=tuple(score.top for score in scores),
        scores=scores,
        plain_greedy=replay.plain_greedy,
        note=replay.note,
    )


def _failed(replay: PlannedReplay, kind: FailureKind, reason: str) -> ShadowResult:
    return ShadowResult(
        session_id=replay.session_id,
        mode=replay.mode,
        first_position=replay.first_position,
        note=replay.note,
        error=ShadowFailure(kind, reason),
    )


def _failed_session(session_id: str, error: ShadowError) -> ShadowResult:
    return ShadowResult(
        session_id=session_id, mode=None, error=ShadowFailure(_KINDS[type(error)], str(error))
    )


def _left_out(left: LeftOut) -> ShadowResult:
    return ShadowResult(
        session_id=left.session_id, mode=left.mode, error=ShadowFailure(left.kind, left.reason)
    )
