"""Judges a worker's memory against its record, the worst kinds of fault first."""

from sidecar.core.compare import compare_weights
from sidecar.core.events import RankAttestation
from sidecar.core.evidence import Missing, Outcome, StateEvidence, StateJudgement, incomparable
from sidecar.core.judge_sessions import judge_sessions, named_sessions, recorded_sessions, unjudged
from sidecar.core.judge_worker_state import (
    agreement,
    environment,
    incarnation,
    presence,
    record_at,
    window,
)
from sidecar.core.rank_state import RankState
from sidecar.core.verdicts import Finding, SessionVerdict, Verdict, worst_of


def judge_state(evidence: StateEvidence) -> StateJudgement:
    """Environment, incarnation, rank agreement, position, tokens, KV, weights, sampler.

    A changed environment and a restart end the judgement; disagreeing ranks and another mark's
    image leave sessions unjudged; a wrong position leaves the rest of its session unjudged.
    Whatever could not be compared is INCOMPARABLE with its reason. Takes no time, asks nobody.
    """
    worker = environment(evidence) + incarnation(evidence)
    verdicts = {finding.verdict for finding in worker.findings}
    if Verdict.RESTARTED in verdicts:
        gone = unjudged(
            recorded_sessions(evidence), "the worker was started anew", Verdict.RESTARTED
        )
        return _judgement(worker, gone)
    if Verdict.ENVIRONMENT_CHANGED in verdicts:
        reason = "not judged: the environment is not that of the record"
        return _judgement(worker, unjudged(recorded_sessions(evidence), reason))
    absent = presence(evidence)
    worker += absent + _weights(evidence)
    attested = evidence.attested
    if isinstance(attested, Missing):
        reason = f"the scheduler did not attest: {attested.reason}"
        worker += incomparable(reason)
        return _judgement(worker, unjudged(recorded_sessions(evidence), reason))
    behind = max(0, evidence.newest_step - attested.launched)
    disagreement = agreement(evidence, attested)
    if disagreement.findings:
        reason = "ranks and scheduler do not stand at one boundary"
        sessions = unjudged(named_sessions(evidence, attested), reason)
        return _judgement(worker + disagreement, sessions, behind)
    expected = window(evidence, attested) or record_at(evidence, attested)
    if isinstance(expected, Finding):
        fault = expected
        sessions = unjudged(named_sessions(evidence, attested), fault.reason, fault.verdict)
        return _judgement(worker + Outcome((fault,)), sessions, behind)
    return _judgement(worker, judge_sessions(evidence, expected, attested, absent), behind)


def _weights(evidence: StateEvidence) -> Outcome:
    outcome = Outcome()
    for rank in evidence.ranks:
        if isinstance(rank.attested, RankAttestation) and isinstance(rank.expected, RankState):
            outcome += compare_weights(
                rank.rank, rank.expected, rank.attested.weights, evidence.weights
            )
    return outcome


def _judgement(
    worker: Outcome, sessions: tuple[SessionVerdict, ...], rolled_back: int = 0
) -> StateJudgement:
    verdicts = [each.verdict for each in sessions]
    verdicts += [each.verdict for each in worker.findings]
    if not verdicts:
        # What compares weights and environment leaves a finding where it could not, except for
        # weights that nobody asked for.
        if worker.compared.tensors and worker.compared.names:
            verdicts = [Verdict.NOTHING_IN_FLIGHT]
        else:
            worker += incomparable("nothing was in flight and no weights were compared")
            verdicts = [Verdict.INCOMPARABLE]
    compared = worker.compared
    for session in sessions:
        compared += session.compared
    return StateJudgement(
        verdict=worst_of(verdicts),
        findings=worker.findings,
        sessions=sessions,
        compared=compared,
        rolled_back_steps=rolled_back,
    )
