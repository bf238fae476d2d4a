"""From the verdict on memory and the continuations to the final verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sidecar.core.continuation import (
    Continuation,
    ContinuationCheck,
    ContinuationResult,
    ContinuationSettings,
    Mode,
    Outcome,
    UnseededRule,
)
from sidecar.core.evidence import StateJudgement
from sidecar.core.verdicts import (
    Compared,
    Finding,
    SessionVerdict,
    Verdict,
    WorkerVerdict,
    worst_of,
)

_COMPARED = frozenset({Outcome.IDENTICAL, Outcome.NEAR_TIE, Outcome.UNMEASURED, Outcome.DIVERGED})


def judge_session(
    state: SessionVerdict,
    results: Sequence[ContinuationResult],
    settings: ContinuationSettings,
) -> SessionVerdict:
    """The session's final verdict.

    A state that does not pass stays the verdict; continuations are then further evidence only.
    DIVERGED in any mode is DIVERGED. Otherwise the recorded future, where enough of it (or all of
    it to the session's end) is identical, decides alone; else any near-tie, unmeasured difference
    or lack of a comparison is INCOMPARABLE. An unseeded session was scored, not compared:
    `settings.unseeded` says what a plausible score is worth. A session that was not chosen keeps
    its verdict on memory; the worker needs at least one that was.
    """
    findings = _findings(state, results)
    compared = state.compared
    modes = []
    for result in results:
        if result.continuation.outcome in _COMPARED:
            modes.append(result.mode.value)
            compared += _count(result)
        elif result.continuation.outcome in (Outcome.PLAUSIBLE, Outcome.IMPLAUSIBLE):
            modes.append("scored")
    verdict = state.verdict
    if verdict.passes and settings.check is ContinuationCheck.REQUIRED:
        verdict, lack = _decide(results, settings, verdict)
        if lack:
            findings.append(Finding(Verdict.INCOMPARABLE, lack, session_id=state.session_id))
    elif verdict.passes and any(finding.verdict is Verdict.DIVERGED for finding in findings):
        verdict = Verdict.DIVERGED
    return replace(
        state,
        verdict=verdict,
        findings=state.findings + tuple(findings),
        compared=compared,
        continuation_modes=tuple(dict.fromkeys(modes)),
    )


def _decide(
    results: Sequence[ContinuationResult], settings: ContinuationSettings, state: Verdict
) -> tuple[Verdict, str]:
    """The verdict of a session whose memory passed, and a reason that no finding gives yet.

    The first rule that holds decides.
    """
    outcomes = {result.continuation.outcome for result in results}
    recorded = [each.continuation for each in results if each.mode is Mode.RECORDED]
    same = [each for each in recorded if each.outcome is Outcome.IDENTICAL]
    replayed = any(
        each.continuation.outcome is Outcome.IDENTICAL and each.mode is not Mode.RECORDED
        for each in results
    )
    enough = any(
        each.ended_alike or each.compared >= settings.enough_recorded_tokens for each in same
    )
    scored = Outcome.PLAUSIBLE in outcomes
    trusted = scored and settings.unseeded is UnseededRule.SCORED_PASS
    reasons = [each.continuation.reason for each in results if each.continuation.reason]
    if same:
        reasons.append(
            f"only {max(each.compared for each in same)} recorded tokens, "
            f"{settings.enough_recorded_tokens} would be enough"
        )
    doubtful = outcomes & {Outcome.NEAR_TIE, Outcome.UNMEASURED, Outcome.IMPLAUSIBLE}
    rules = (
        (Outcome.DIVERGED in outcomes, Verdict.DIVERGED, ""),
        (enough, state, ""),
        (bool(doubtful), Verdict.INCOMPARABLE, ""),
        (replayed or trusted, state, ""),
        (scored, Verdict.INCOMPARABLE, "sampled without a known seed: scored, not compared"),
        (Outcome.NOT_CHOSEN in outcomes, state, ""),
    )
    lack = "its continuation was not compared: " + ("; ".join(reasons) or "none was given")
    return next(
        ((verdict, reason) for holds, verdict, reason in rules if holds),
        (Verdict.INCOMPARABLE, lack),
    )


def _count(result: ContinuationResult) -> Compared:
    if result.mode is Mode.RECORDED:
        return Compared(recorded_tokens=result.continuation.compared)
    return Compared(shadow_tokens=result.continuation.compared)


_VERDICT_OF = {
    Outcome.DIVERGED: Verdict.DIVERGED,
    Outcome.NEAR_TIE: Verdict.INCOMPARABLE,
    Outcome.UNMEASURED: Verdict.INCOMPARABLE,
    Outcome.IMPLAUSIBLE: Verdict.INCOMPARABLE,
}


def _findings(state: SessionVerdict, results: Sequence[ContinuationResult]) -> list[Finding]:
    return [
        _finding(state.session_id, result, _VERDICT_OF[result.continuation.outcome])
        for result in results
        if result.continuation.outcome in _VERDICT_OF
    ]


def _finding(session_id: str, result: ContinuationResult, verdict: Verdict) -> Finding:
    found = result.continuation
    first = found.first_difference
    return Finding(
        verdict,
        f"continuation against {result.mode.value}: {found.reason}",
        session_id=session_id,
        first_differing_position=None if first is None else result.first_position + first,
        logprob_margin=found.margin,
        expected=_token(found, found.expected),
        found=_token(found, found.found),
        mismatches=0 if first is None else 1,
    )


def _token(continuation: Continuation, token: int | None) -> str:
    if continuation.first_difference is None:
        return ""
    return "ended" if token is None else f"token {token}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What a worker's verdict says about its making. Times are unix nanoseconds, 0: not known."""

    verification_id: str
    worker: str
    incarnation: str
    generation: int
    trigger: str
    mark: str = ""
    noticed_unix_ns: int = 0
    attested_unix_ns: int = 0
    state_judged_unix_ns: int = 0
    finished_unix_ns: int = 0
    tokens_before_verdict: int = 0
    fingerprint_digest: str = ""


def judge_worker_state(verification: Verification, state: StateJudgement) -> WorkerVerdict:
    """The verdict while the continuation is still running: not final, so never a pass."""
    return _worker(verification, state, state.sessions, state.verdict, state.findings)


def judge_worker(
    verification: Verification,
    state: StateJudgement,
    continuations: Mapping[str, Sequence[ContinuationResult]],
    settings: ContinuationSettings,
) -> WorkerVerdict:
    """The final verdict: the worst of the worker's findings and of all sessions.

    With sessions in flight and their continuation required, at least one must have been compared
    with tokens of its own; otherwise the worker is INCOMPARABLE.
    """
    sessions = tuple(
        judge_session(each, continuations.get(each.session_id, ()), settings)
        for each in state.sessions
    )
    findings = state.findings
    verdicts = [each.verdict for each in sessions] + [each.verdict for each in findings]
    if not sessions and state.verdict.passes:
        verdicts.append(state.verdict)
    followed = any(each.continuation_modes for each in sessions)
    if sessions and not followed and settings.check is ContinuationCheck.REQUIRED:
        lack = Finding(Verdict.INCOMPARABLE, "no session's continuation was compared")
        findings = (*findings, lack)
        verdicts.append(lack.verdict)
    verdict = _worker(verification, state, sessions, worst_of(verdicts), findings)
    return replace(verdict, final=True)


def judge_timeout(verification: Verification, reason: str) -> WorkerVerdict:
    """The verdict of a verification that got no answer inside its deadline."""
    finding = Finding(Verdict.TIMEOUT, reason)
    none = StateJudgement(Verdict.TIMEOUT, (finding,), (), Compared())
    return replace(_worker(verification, none, (), Verdict.TIMEOUT, (finding,)), final=True)


def _worker(
    verification: Verification,
    state: StateJudgement,
    sessions: tuple[SessionVerdict, ...],
    verdict: Verdict,
    findings: tuple[Finding, ...],
) -> WorkerVerdict:
    compared = state.compared
    for before, after in zip(state.sessions, sessions, strict=True):
        compared += Compared(
            recorded_tokens=after.compared.recorded_tokens - before.compared.recorded_tokens,
            shadow_tokens=after.compared.shadow_tokens - before.compared.shadow_tokens,
        )
    return WorkerVerdict(
        verification_id=verification.verification_id,
        worker=verification.worker,
        incarnation=verification.incarnation,
        generation=verification.generation,
        trigger=verification.trigger,
        mark=verification.mark,
        verdict=verdict,
        state_verdict=state.verdict,
        final=False,
        sessions=sessions,
        findings=findings,
        compared=compared,
        noticed_unix_ns=verification.noticed_unix_ns,
        attested_unix_ns=verification.attested_unix_ns,
        state_judged_unix_ns=verification.state_judged_unix_ns,
        finished_unix_ns=verification.finished_unix_ns,
        tokens_before_verdict=verification.tokens_before_verdict,
        rolled_back_steps=state.rolled_back_steps,
        fingerprint_digest=verification.fingerprint_digest,
    )
