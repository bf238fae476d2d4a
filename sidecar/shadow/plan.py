"""Which sessions are replayed, from where, and how far. Pure: the same input, the same plan."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sidecar.core.events import Sampling
from sidecar.shadow.results import FailureKind
from sidecar.shadow.settings import SeededReplay, ShadowMode, ShadowSettings

# Below this temperature vLLM decodes greedily.
GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRequest:
    """One session to replay.

    `restored_at`: tokens emitted when the worker came back, prompt included; the position of
    the first token to replay. `output_tokens` may go beyond it: what was emitted since, which
    mode `forced` scores. `k`: tokens to replay from there on.
    `cache_salted`: the session's own requests used a cache salt; `cache_salt` is that salt, if
    the sidecar knows it.
    """

    session_id: str
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    restored_at: int
    sampling: Sampling
    k: int
    cache_salted: bool = False
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A replay that was asked for and will not run. `mode` None: the session in every mode."""

    session_id: str
    mode: ShadowMode | None
    kind: FailureKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReplay:
    """One call of the engine.

    Independent and cached: `tokens` is the prompt, `max_tokens` follow. Forced: `tokens` is
    all, and those from `first_position` on are scored. `first_position` is the position of the
    first token that comes back. `plain_greedy`: the best token of the model is the token chosen.
    """

    session_id: str
    mode: ShadowMode
    tokens: tuple[int, ...]
    first_position: int
    max_tokens: int
    sampling: Sampling
    plain_greedy: bool
    cache_salt: str | None = None
    note: str = ""

    @property
    def cost(self) -> int:
        """Tokens that the engine computes, prompt and output."""
        return len(self.tokens) + self.max_tokens


@dataclass(frozen=True, slots=True)
class ShadowPlan:
    """In the order in which to run. Every request stands in `replays` or in `left_out`."""

    replays: tuple[PlannedReplay, ...]
    left_out: tuple[LeftOut, ...]


def plan_shadow(
    requests: Sequence[ShadowRequest],
    settings: ShadowSettings,
    *,
    max_context: int | None = None,
) -> ShadowPlan:
    """Chooses and lays out replays. `max_context`: the engine's limit of tokens per request."""
    left: list[LeftOut] = []
    sound: list[ShadowRequest] = []
    seen: set[str] = set()
    for request in requests:
        fault = _fault(request, seen)
        seen.add(request.session_id)
        if fault is None:
            sound.append(request)
        else:
            left.append(LeftOut(request.session_id, None, *fault))

    ordered = sorted(sound, key=lambda r: _rank(settings.sample_key, r.session_id))
    limit = len(ordered) if settings.max_sessions is None else settings.max_sessions
    left.extend(
        LeftOut(
            request.session_id,
            None,
            FailureKind.NOT_CHOSEN,
            f"sample of {limit} out of {len(ordered)} sessions",
        )
        for request in ordered[limit:]
    )

    replays: list[PlannedReplay] = []
    budget = settings.token_budget
    for request in ordered[:limit]:
        for mode in _modes(request.sampling, settings.modes):
            planned = _plan_one(request, mode, settings, max_context)
            if isinstance(planned, PlannedReplay) and planned.cost > budget:
                planned = LeftOut(
                    request.session_id,
                    mode,
                    FailureKind.OVER_BUDGET,
                    f"needs {planned.cost} tokens, {budget} of the budget of"
                    f" {settings.token_budget} are left",
                )
            if isinstance(planned, LeftOut):
                left.append(planned)
            else:
                budget -= planned.cost
                replays.append(planned)
    return ShadowPlan(tuple(replays), tuple(left))


def is_greedy(sampling: Sampling) -> bool:
    return sampling.temperature < GREEDY_BELOW


def is_plain_greedy(sampling: Sampling) -> bool:
    """Whether each token is simply the model's best one."""
    return is_greedy(sampling) and not _has_penalties(sampling) and sampling.min_tokens == 0


def _fault(request: ShadowRequest, seen: set[str]) -> tuple[FailureKind, str] | None:
    if request.session_id in seen:
        return FailureKind.INVALID, "session was given twice"
    known = len(request.prompt_tokens) + len(request.output_tokens)
    if not request.prompt_tokens:
        return FailureKind.INVALID, "session has no prompt tokens (perhaps recorded as digests)"
    if not len(request.prompt_tokens) <= request.restored_at <= known:
        return (
            FailureKind.INVALID,
            f"restored at {request.restored_at}, not in {len(request.prompt_tokens)} to {known}",
        )
    if request.sampling.unreplayable:
        return (
            FailureKind.UNREPLAYABLE,
            "engine's API cannot reproduce: " + ", ".join(request.sampling.unreplayable),
        )
    return None


def _rank(key: str, session_id: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{session_id}".encode(), digest_size=16).digest()


def _modes(sampling: Sampling, modes: tuple[ShadowMode, ...]) -> tuple[ShadowMode, ...]:
    return (ShadowMode.FORCED,) if _unseeded(sampling) else modes


def _unseeded(sampling: Sampling) -> bool:
    return not is_greedy(sampling) and sampling.seed is None


def _has_penalties(sampling: Sampling) -> bool:
    # 0 stands for "not told" in the contract; 1 is the engine's own "off".
    return (
        sampling.presence_penalty != 0
        or sampling.frequency_penalty != 0
        or sampling.repetition_penalty not in (0.0, 1.0)
    )


def _from_prompt(request: ShadowRequest, settings: ShadowSettings) -> bool:
    """Whether output must stay output: it then counts for penalties, stops and the generator."""
    sampling = request.sampling
    done = request.restored_at - len(request.prompt_tokens)
    return (
        _has_penalties(sampling)
        or sampling.min_tokens > done
        or bool(sampling.stop)
        or (not is_greedy(sampling) and settings.seeded_replay is SeededReplay.FROM_PROMPT)
    )


def _plan_one(
    request: ShadowRequest,
    mode: ShadowMode,
    settings: ShadowSettings,
    max_context: int | None,
) -> PlannedReplay | LeftOut:
    k = min(request.k, settings.k)
    done = request.restored_at - len(request.prompt_tokens)
    if request.sampling.max_tokens:
        k = min(k, request.sampling.max_tokens - done)
    if max_context is not None:
        k = min(k, max_context - request.restored_at)
    if k <= 0:
        return LeftOut(
            request.session_id,
            mode,
            FailureKind.NOTHING_TO_REPLAY,
            f"{done} output tokens reached the session's or the engine's limit, or k is 0",
        )
    if mode is ShadowMode.FORCED:
        return _plan_forced(request, k, max_context)
    if mode is ShadowMode.CACHED and request.cache_salted and request.cache_salt is None:
        return LeftOut(
            request.session_id,
            mode,
            FailureKind.SALT_UNKNOWN,
            "session has a cache salt of its own that is not known here,"
            " so its restored KV cannot be read through the prefix cache",
        )
    return _plan_decode(request, mode, k, settings)


def _plan_decode(
    request: ShadowRequest, mode: ShadowMode, k: int, settings: ShadowSettings
) -> PlannedReplay:
    history = (*request.prompt_tokens, *request.output_tokens)
    start = len(request.prompt_tokens) if _from_prompt(request, settings) else request.restored_at
    max_tokens = request.restored_at - start + k
    # Output that became prompt has used up its share of the minimum. The engine refuses a
    # minimum above the maximum; inside the window both mean the same.
    minimum = request.sampling.min_tokens - (start - len(request.prompt_tokens))
    note = ""
    if mode is ShadowMode.CACHED and start < request.restored_at:
        note = "replayed from the prompt: only the prompt's KV can be read through the cache"
    return PlannedReplay(
        session_id=request.session_id,
        mode=mode,
        tokens=history[:start],
        first_position=start,
        max_tokens=max_tokens,
        sampling=replace(request.sampling, min_tokens=min(max(minimum, 0), max_tokens)),
        plain_greedy=is_plain_greedy(request.sampling),
        cache_salt=request.cache_salt if mode is ShadowMode.CACHED else None,
        note=note,
    )


def _plan_forced(
    request: ShadowRequest, k: int, max_context: int | None
) -> PlannedReplay | LeftOut:
    end = request.restored_at + k
    if max_context is not None:
        # The engine insists on one new token, and it needs a place too.
        end = min(end, max_context - 1)
    history = (*request.prompt_tokens, *request.output_tokens)[:end]
    if len(history) <= request.restored_at:
        return LeftOut(
            request.session_id,
            ShadowMode.FORCED,
            FailureKind.NOTHING_TO_REPLAY,
            f"no token after the restored position {request.restored_at} is known yet",
        )
    note = ""
    if _unseeded(request.sampling):
        note = "sampled without a known seed: scored, not replayed"
    return PlannedReplay(
        session_id=request.session_id,
        mode=ShadowMode.FORCED,
        tokens=history,
        first_position=request.restored_at,
        max_tokens=1,
        sampling=request.sampling,
        plain_greedy=is_plain_greedy(request.sampling),
        note=note,
    )
