"""What is judged about each session: position, tokens, KV, sampler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sidecar.core.compare import (
    compare_generator,
    compare_positions,
    compare_sampling,
    compare_tokens,
)
from sidecar.core.compare_kv import RankKv, compare_session_kv, index_attested
from sidecar.core.events import LiveSession, RankAttestation, SchedulerAttestation
from sidecar.core.evidence import Missing, Outcome, StateEvidence, incomparable
from sidecar.core.judge_worker_state import rank_lack
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState
from sidecar.core.sessions import Session
from sidecar.core.verdicts import Finding, SessionVerdict, Verdict


def judge_sessions(
    evidence: StateEvidence,
    expected: SchedulerState,
    attested: SchedulerAttestation,
    absent: Outcome,
) -> tuple[SessionVerdict, ...]:
    """Every session that the record or the worker has at the attested boundary. `absent` says of
    which ranks nothing can be compared: no session passes without them.
    """
    live = {each.session_id: each for each in attested.sessions}
    recorded = {each.session_id: each for each in expected.sessions.values()}
    ranks = _comparable_ranks(evidence, expected)
    verdicts = []
    for session_id, session in recorded.items():
        if session_id in evidence.ignored_sessions:
            continue
        if session_id in live:
            verdicts.append(_session(session, live[session_id], ranks, absent))
        elif session_id in evidence.ended_meanwhile:
            verdicts.append(_gone(session, Verdict.INCOMPARABLE, "ended before it was compared"))
        else:
            verdicts.append(_gone(session, Verdict.LOST, "was in flight, the worker lost it"))
    for session_id, found in live.items():
        if session_id not in recorded and _in_doubt(evidence, found):
            verdicts.append(_unknown(found))
    return tuple(verdicts)


def _in_doubt(evidence: StateEvidence, found: LiveSession) -> bool:
    """Whether a session that is not recorded must have been: not a shadow, and not a request
    that has just come in and waits for its first step.
    """
    arrived = (
        found.waiting
        and not found.computed
        and not found.in_flight
        and found.emitted == found.prompt_length
    )
    return found.session_id not in evidence.ignored_sessions and not arrived


@dataclass(frozen=True, slots=True, eq=False)
class _Rank:
    """A rank whose KV can be judged; `written` counts the tokens that it wrote, by row."""

    kv: RankKv
    attested: RankAttestation
    generators: Mapping[str, int]
    written: Mapping[int, int]


def _comparable_ranks(evidence: StateEvidence, expected: SchedulerState) -> list[_Rank]:
    ranks = []
    for rank in evidence.ranks:
        if (
            isinstance(rank.attested, RankAttestation)
            and isinstance(rank.expected, RankState)
            and rank_lack(evidence, rank) is None
        ):
            kv = RankKv(rank.rank, rank.expected, index_attested(rank.attested))
            written = expected.written(rank.attested.step)
            ranks.append(_Rank(kv, rank.attested, rank.generators, written))
    return ranks


def _session(
    session: Session, found: LiveSession, ranks: Sequence[_Rank], absent: Outcome
) -> SessionVerdict:
    session_id = session.session_id
    if session.doubt is not None:
        reason = f"the record of this session contradicts itself: {session.doubt}"
        outcome = incomparable(reason, session_id=session_id)
    else:
        outcome = compare_positions(session, found)
    if not outcome.findings:
        outcome += Outcome(
            tuple(replace(finding, session_id=session_id) for finding in absent.findings)
        )
        outcome += compare_tokens(session_id, session.token_array(), found.tokens)
        for rank in ranks:
            outcome += compare_session_kv(rank.kv, session, found, rank.written[session.row])
            outcome += _generator(rank, session, found)
        outcome += compare_sampling(session_id, session.sampling, found.sampling)
    return SessionVerdict(
        session_id=session_id,
        verdict=max(
            (finding.verdict for finding in outcome.findings), default=Verdict.RESUMED_EXACT
        ),
        findings=outcome.findings,
        compared=outcome.compared,
        emitted_found=found.emitted,
        emitted_expected=session.emitted,
    )


def _generator(rank: _Rank, session: Session, found: LiveSession) -> Outcome:
    """An attestation without any generator has not read them."""
    if not rank.attested.sampler:
        return Outcome()
    return compare_generator(
        session.session_id,
        rank.kv.rank,
        rank.generators.get(session.session_id),
        rank.attested.sampler.get(found.row),
    )


def _gone(session: Session, verdict: Verdict, what: str) -> SessionVerdict:
    return SessionVerdict(
        session.session_id,
        verdict,
        (Finding(verdict, f"the session {what}", session_id=session.session_id),),
        emitted_expected=session.emitted,
    )


def _unknown(found: LiveSession) -> SessionVerdict:
    reason = "the worker runs a session that the record does not have at this boundary"
    findings = (Finding(Verdict.UNKNOWN, reason, session_id=found.session_id),)
    return SessionVerdict(found.session_id, Verdict.UNKNOWN, findings, emitted_found=found.emitted)


def recorded_sessions(evidence: StateEvidence) -> dict[str, tuple[int, int]]:
    """Recorded sessions: emitted expected and found (0)."""
    if isinstance(evidence.expected, Missing):
        return {}
    return {
        each.session_id: (each.emitted, 0)
        for each in evidence.expected.sessions.values()
        if each.session_id not in evidence.ignored_sessions
    }


def named_sessions(
    evidence: StateEvidence, attested: SchedulerAttestation
) -> dict[str, tuple[int, int]]:
    """Sessions that either side names: emitted expected and found."""
    named = recorded_sessions(evidence)
    for live in attested.sessions:
        if live.session_id in named or _in_doubt(evidence, live):
            named[live.session_id] = (named.get(live.session_id, (0, 0))[0], live.emitted)
    return named


def unjudged(
    sessions: Mapping[str, tuple[int, int]],
    reason: str,
    verdict: Verdict = Verdict.INCOMPARABLE,
) -> tuple[SessionVerdict, ...]:
    return tuple(
        SessionVerdict(
            session_id,
            verdict,
            (Finding(verdict, reason, session_id=session_id),),
            emitted_expected=expected,
            emitted_found=found,
        )
        for session_id, (expected, found) in sessions.items()
    )
