"""The continuation of restored sessions: against the future that was, and against replays."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from sidecar.core.continuation import (
    Continuation,
    ContinuationResult,
    ContinuationSettings,
    Mode,
    StreamEnd,
    compare_continuation,
    not_chosen,
    not_compared,
    score_continuation,
)
from sidecar.core.events import LiveSession
from sidecar.ledger.errors import LedgerError
from sidecar.ledger.values import FutureTokens
from sidecar.ports import VerificationHost
from sidecar.registry import WorkerRuntime
from sidecar.shadow.engine import ShadowEngine
from sidecar.shadow.plan import ShadowRequest, is_greedy
from sidecar.shadow.request_ids import ShadowIds
from sidecar.shadow.results import FailureKind, ShadowResult
from sidecar.shadow.runner import run_shadow
from sidecar.shadow.settings import ShadowSettings
from sidecar.verify.evidence import SCHEDULER, Snapshot
from sidecar.verify.follow import Followed, Follower

Results = Mapping[str, tuple[ContinuationResult, ...]]
# Opens a client of the worker's engine; None: nobody said where the engine is.
EngineOpener = Callable[[WorkerRuntime], AbstractAsyncContextManager[ShadowEngine] | None]
# What the configuration left out, as opposed to what failed.
_LEFT_OUT = frozenset({FailureKind.NOT_CHOSEN, FailureKind.OVER_BUDGET})


@dataclass(frozen=True, slots=True)
class ContinuationPlan:
    """How continuations are checked. `shadow` None: no replays are configured."""

    rules: ContinuationSettings
    shadow: ShadowSettings | None
    ids: ShadowIds
    open_engine: EngineOpener


async def check_continuations(
    host: VerificationHost,
    worker: WorkerRuntime,
    seen: Snapshot,
    sessions: Sequence[LiveSession],
    plan: ContinuationPlan,
    *,
    salted: frozenset[str],
    timeout_s: float,
) -> Results:
    """Follows `sessions` from where they were attested; one entry for each. `salted`: those whose
    prefix cache has a salt of their own, which the record does not tell.

    Waits until each has `k` tokens more or has ended, then compares. Returns within `timeout_s`
    and what a replay may take beyond; raises nothing for the engine's or the ledger's faults.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    k = plan.shadow.k if plan.shadow else plan.rules.enough_recorded_tokens
    follower = Follower(session.session_id for session in sessions)
    wanted = {session.session_id: session.emitted + k for session in sessions}
    await host.wait_progress(
        worker, lambda now: follower.progressed(now, wanted), timeout_s * 2 / 3
    )
    futures = await _futures(host, seen, sessions)
    replays = await _replays(
        worker, sessions, follower, plan, salted=salted, left_s=deadline - loop.time()
    )
    results: dict[str, tuple[ContinuationResult, ...]] = {}
    for session in sessions:
        found = follower.emitted(session.session_id)
        results[session.session_id] = (
            *_against_futures(found, futures.get(session.session_id, ()), plan.rules),
            *_against_replays(session, found, replays.get(session.session_id, ()), plan.rules),
        )
    return results


async def _futures(
    host: VerificationHost, seen: Snapshot, sessions: Sequence[LiveSession]
) -> dict[str, list[FutureTokens]]:
    at = seen.coordinates.get(SCHEDULER)
    found: dict[str, list[FutureTokens]] = {}
    if at is None or at.before == at.generation:
        return found
    ids = frozenset(session.session_id for session in sessions)
    try:
        futures = await asyncio.to_thread(
            host.ledger.future_tokens, at.source_id, at.generation, ids
        )
    except LedgerError:
        # The shadow decode still decides; it is no pass without one.
        return found
    for future in futures:
        found.setdefault(future.session_id, []).append(future)
    return found


async def _replays(
    worker: WorkerRuntime,
    sessions: Sequence[LiveSession],
    follower: Follower,
    plan: ContinuationPlan,
    *,
    salted: frozenset[str],
    left_s: float,
) -> dict[str, list[ShadowResult]]:
    found: dict[str, list[ShadowResult]] = {}
    if plan.shadow is None:
        return found
    requests = [
        request
        for session in sessions
        if (request := _request(session, follower, plan.shadow, salted)) is not None
    ]
    opened = plan.open_engine(worker)
    if opened is None:
        return found
    settings = replace(plan.shadow, deadline_s=max(min(plan.shadow.deadline_s, left_s), 1.0))
    async with opened as engine:
        results = await run_shadow(engine, requests, settings, ids=plan.ids)
    for result in results:
        found.setdefault(result.session_id, []).append(result)
    return found


def _request(
    session: LiveSession, follower: Follower, settings: ShadowSettings, salted: frozenset[str]
) -> ShadowRequest | None:
    followed = follower.emitted(session.session_id)
    if followed is None or len(followed.tokens) <= session.emitted:
        return None
    length = session.prompt_length
    return ShadowRequest(
        session_id=session.session_id,
        prompt_tokens=followed.tokens[:length],
        output_tokens=followed.tokens[length:],
        restored_at=session.emitted,
        sampling=session.sampling,
        k=settings.k,
        cache_salted=session.session_id in salted,
    )


def _against_futures(
    found: Followed | None,
    futures: Sequence[FutureTokens],
    rules: ContinuationSettings,
) -> list[ContinuationResult]:
    if found is None:
        return []
    results = []
    for future in futures:
        continued = found.tokens[future.first_position :]
        if not continued:
            continue
        compared = compare_continuation(
            future.tokens,
            continued,
            (),
            rules,
            reference_end=StreamEnd.ENDED if future.ended else StreamEnd.CUT,
            found_end=StreamEnd.CUT,
        )
        results.append(ContinuationResult(Mode.RECORDED, compared, future.first_position))
    return results


def _against_replays(
    session: LiveSession,
    found: Followed | None,
    replays: Sequence[ShadowResult],
    rules: ContinuationSettings,
) -> list[ContinuationResult]:
    if found is None:
        reason = "the session ended, or its record broke off, before it could be followed"
        return [ContinuationResult(Mode.INDEPENDENT, not_compared(reason))]
    if len(found.tokens) <= session.emitted:
        reason = "the session emitted no token after the restore"
        return [ContinuationResult(Mode.INDEPENDENT, not_compared(reason))]
    if not replays:
        reason = "no engine address is known for a shadow decode (set shadow_engine_url)"
        return [ContinuationResult(Mode.INDEPENDENT, not_compared(reason))]
    return [_against_replay(session, found.tokens, replay, rules) for replay in replays]


def _against_replay(
    session: LiveSession, found: tuple[int, ...], replay: ShadowResult, rules: ContinuationSettings
) -> ContinuationResult:
    mode = Mode(replay.mode.value) if replay.mode else Mode.INDEPENDENT
    if replay.error is not None:
        reason = f"shadow decode: {replay.error.reason}"
        left_out = replay.error.kind in _LEFT_OUT
        return ContinuationResult(mode, not_chosen(reason) if left_out else not_compared(reason))
    if replay.scores and not (is_greedy(session.sampling) and replay.plain_greedy):
        logprobs = [score.logprob for score in replay.scores]
        return ContinuationResult(
            mode, score_continuation(logprobs, rules), replay.scores[0].position
        )
    return ContinuationResult(mode, _compared(session, found, replay, rules), replay.first_position)


def _compared(
    session: LiveSession, found: tuple[int, ...], replay: ShadowResult, rules: ContinuationSettings
) -> Continuation:
    """A replay from the prompt repeats the history too: a difference there means that the worker
    no longer computes what it did, and counts like one after the restore.
    """
    ours = found[replay.first_position :]
    if replay.first_position + len(replay.tokens) <= session.emitted:
        return not_compared("the replay ended before the restored position")
    ended = replay.finish == "stop" and not session.sampling.stop
    return compare_continuation(
        replay.tokens,
        ours,
        replay.margins_against(ours),
        rules,
        reference_end=StreamEnd.ENDED if ended else StreamEnd.CUT,
        found_end=StreamEnd.CUT,
    )
