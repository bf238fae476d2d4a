"""What is judged about a worker as a whole: environment, incarnation, ranks, boundary."""

from sidecar.core.compare import compare_fingerprints, compare_rank_steps
from sidecar.core.events import RankAttestation, SchedulerAttestation
from sidecar.core.evidence import (
    Lack,
    Missing,
    Outcome,
    RankEvidence,
    StateEvidence,
    incomparable,
)
from sidecar.core.scheduler_state import SchedulerState
from sidecar.core.verdicts import Finding, Verdict


def environment(evidence: StateEvidence) -> Outcome:
    if not evidence.sources:
        return incomparable("no source's environment was compared")
    outcome = Outcome()
    for source in evidence.sources:
        outcome += compare_fingerprints(
            source.key, source.recorded_fingerprint, source.found_fingerprint
        )
    return outcome


def incarnation(evidence: StateEvidence) -> Outcome:
    """Another incarnation, or the same with another nonce, is not the memory of the record."""
    recorded, found = evidence.incarnation_recorded, evidence.incarnation_found
    if recorded != found:
        anew = Finding(
            Verdict.RESTARTED,
            "the worker was started anew under the same name: what was in flight is gone",
            expected=f"incarnation {recorded}",
            found=f"incarnation {found}",
        )
        return Outcome((anew,))
    outcome = Outcome()
    for source in evidence.sources:
        before, now = source.recorded_nonce, source.found_nonce
        if before is not None and now is not None and before != now:
            anew = Finding(
                Verdict.RESTARTED,
                f"the {source.key} was started anew inside the same worker",
                expected=f"nonce {before:016x}",
                found=f"nonce {now:016x}",
            )
            outcome += Outcome((anew,))
    return outcome


def presence(evidence: StateEvidence) -> Outcome:
    outcome = Outcome()
    ranks = {rank.rank: rank for rank in evidence.ranks}
    for number in range(evidence.ranks_expected):
        rank = ranks.get(number)
        if rank is None:
            lack: Missing | None = Missing(Lack.NOT_ATTESTED, "it is not attached")
        else:
            lack = rank_lack(evidence, rank)
        if lack is not None:
            reason = f"rank {number} was not compared, {lack.why.value}: {lack.reason}"
            outcome += incomparable(reason, rank=number)
    if not evidence.ranks_expected:
        outcome += incomparable("the worker has no ranks")
    return outcome


def rank_lack(evidence: StateEvidence, rank: RankEvidence) -> Missing | None:
    """Why nothing of this rank can be compared; None if it can."""
    if isinstance(rank.attested, Missing):
        return rank.attested
    if isinstance(rank.expected, Missing):
        return rank.expected
    late = rank.expected.late_steps
    if late > evidence.late_steps_allowed:
        return Missing(Lack.NOT_RECORDED, _too_late(late, evidence.late_steps_allowed))
    declared = rank.attested.kv_groups
    if declared and sorted(declared, key=lambda g: g.group) != sorted(
        rank.expected.kv_groups, key=lambda g: g.group
    ):
        return Missing(Lack.NOT_RECORDED, "its KV groups are not those of the record")
    return None


def _too_late(late: int, allowed: int) -> str:
    return (
        f"{late} steps before this boundary were recorded only after the restore, at most "
        f"{allowed} are believed"
    )


def agreement(evidence: StateEvidence, attested: SchedulerAttestation) -> Outcome:
    steps = {
        rank.rank: rank.attested.step
        for rank in evidence.ranks
        if isinstance(rank.attested, RankAttestation)
    }
    return compare_rank_steps(steps, attested.launched, attested.committed)


def window(evidence: StateEvidence, attested: SchedulerAttestation) -> Finding | None:
    """The image of a mark holds a step between the mark and the newest step that was recorded
    when it was completed; those in progress then were not recorded yet.
    """
    steps = evidence.window
    if steps is None:
        return None
    last = steps.last + evidence.late_steps_allowed
    if steps.first <= attested.launched <= last:
        return None
    return Finding(
        Verdict.POSITION_MISMATCH,
        f"the worker stands at step {attested.launched}, the mark's image can hold only steps "
        f"{steps.first} to {last}: another image was restored",
        expected=f"step {steps.first} to {last}",
        found=f"step {attested.launched}",
    )


def record_at(evidence: StateEvidence, attested: SchedulerAttestation) -> SchedulerState | Finding:
    """The record at the attested boundary, or why it says nothing of it."""
    allowed = evidence.late_steps_allowed
    boundary = f"launched {attested.launched}, committed {attested.committed}"
    expected = evidence.expected
    if isinstance(expected, Missing):
        if expected.why is Lack.NEVER_PASSED:
            reason = f"the computation never stood at {boundary}: {expected.reason}"
            return Finding(Verdict.POSITION_MISMATCH, reason, found=boundary)
        reason = f"no record of {boundary}, {expected.why.value}: {expected.reason}"
    elif attested.launched > evidence.newest_step + allowed:
        reason = (
            f"not recorded: the worker stands at {boundary}, the record ends at step "
            f"{evidence.newest_step} and at most {allowed} later steps are believed"
        )
    elif expected.broken is not None:
        reason = f"no record of {boundary}: {expected.broken}"
    elif expected.late_steps > allowed:
        reason = _too_late(expected.late_steps, allowed)
    elif expected.boundary != (attested.launched, attested.committed):
        reason = (
            f"the record was made for launched {expected.launched}, committed "
            f"{expected.committed}, the worker stands at {boundary}"
        )
    else:
        return expected
    return Finding(Verdict.INCOMPARABLE, reason)
