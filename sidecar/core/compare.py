"""Comparisons of one kind each: record against memory. None of them knows of the others."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

import numpy as np

from sidecar.core.events import (
    U32,
    Fingerprint,
    LiveSession,
    Sampling,
    SourceKey,
    SourceKind,
    TensorDigest,
    WeightDigests,
    Witness,
)
from sidecar.core.evidence import Outcome, WeightsCheck
from sidecar.core.rank_state import RankState
from sidecar.core.sessions import Session
from sidecar.core.verdicts import Compared, Finding, Verdict

# Names of the environment whose change cannot matter to a resumed session. None is known; what
# changes with every process (its id, its start) is not part of the fingerprint.
HARMLESS_NAMES: frozenset[str] = frozenset()
UNKNOWN_VALUE = "unknown"
_ABSENT = "(absent)"
# So many names stand in a reason; the count says how many there are.
_NAMES_SHOWN = 8


def compare_fingerprints(
    key: SourceKey, recorded: Fingerprint | None, found: Fingerprint | None
) -> Outcome:
    """Name by name. A value that one side could not read makes its name incomparable, and one
    that neither could read is not counted.
    """
    rank = key.rank if key.kind is SourceKind.RANK else None
    if recorded is None or found is None:
        side = "record" if recorded is None else "worker"
        reason = f"the {side} has no environment of the {key}; check that its adapter is attached"
        return Outcome((Finding(Verdict.INCOMPARABLE, reason, rank=rank),))
    findings = []
    compared = 0
    for name in sorted({*recorded.values, *found.values} - HARMLESS_NAMES):
        before, now = recorded.values.get(name, _ABSENT), found.values.get(name, _ABSENT)
        if before == now:
            compared += before != UNKNOWN_VALUE
        elif UNKNOWN_VALUE in (before, now):
            findings.append(
                Finding(
                    Verdict.INCOMPARABLE,
                    f"{name} of the {key} could be read only on one side",
                    rank=rank,
                    expected=before,
                    found=now,
                )
            )
        else:
            compared += 1
            findings.append(
                Finding(
                    Verdict.ENVIRONMENT_CHANGED,
                    f"{name} of the {key} is not that of the record: start cold instead of "
                    "resuming, or restore where the checkpoint was taken",
                    rank=rank,
                    expected=before,
                    found=now,
                    mismatches=1,
                )
            )
    if not compared:
        findings.append(
            Finding(
                Verdict.INCOMPARABLE, f"no name of the {key}'s environment was compared", rank=rank
            )
        )
    return Outcome(tuple(findings), Compared(names=compared))


def compare_rank_steps(steps: Mapping[int, int], launched: int, committed: int) -> Outcome:
    """Whether ranks and scheduler stand at one boundary.

    All ranks must stand at the same step: they attest at one step boundary, and a step is one
    collective. That step must not be behind `committed` (its outcome came from the ranks) nor
    beyond `launched` (nobody asked for it); between them lie the steps in flight.

    The step of a strict majority of ranks is the reference; without one it is the newest launched
    step. Can miss: all ranks and the scheduler moved alike (that is a position, judged later).
    """
    if not steps:
        return Outcome()
    step, holders = Counter(steps.values()).most_common(1)[0]
    if holders * 2 > len(steps):
        reference, how = step, "the step of most ranks"
    else:
        reference, how = launched, "the newest launched step, no majority of ranks agrees"
    findings = []
    if len(set(steps.values())) > 1:
        for rank, at in sorted(steps.items()):
            if at != reference:
                findings.append(
                    _skew(rank, at, f"step {reference} ({how})", f"stands at step {at}")
                )
        return Outcome(tuple(findings))
    if not committed <= step <= launched:
        for rank, at in sorted(steps.items()):
            findings.append(
                _skew(
                    rank,
                    at,
                    f"step {committed} to {launched} (committed to launched)",
                    f"stands at step {at}, where the scheduler committed {committed} and launched "
                    f"{launched}",
                )
            )
    return Outcome(tuple(findings))


def _skew(rank: int, at: int, expected: str, how: str) -> Finding:
    return Finding(
        Verdict.RANK_SKEW,
        f"rank {rank} {how}: one side has run a step that the other has not; restart the worker",
        rank=rank,
        expected=expected,
        found=f"step {at}",
        mismatches=1,
    )


def compare_positions(recorded: Session, found: LiveSession) -> Outcome:
    """Emitted, computed and in-flight tokens and the prompt's length, each exactly."""
    names = ("emitted", "computed", "in_flight", "prompt_length")
    before = [int(getattr(recorded, name)) for name in names]
    now = [int(getattr(found, name)) for name in names]
    different = [name for name, a, b in zip(names, before, now, strict=True) if a != b]
    if not different:
        return Outcome()
    return Outcome(
        (
            Finding(
                Verdict.POSITION_MISMATCH,
                f"{', '.join(different)} of the session is not what the record has at this "
                "boundary",
                session_id=recorded.session_id,
                expected=_numbers(names, before),
                found=_numbers(names, now),
                mismatches=len(different),
            ),
        )
    )


def _numbers(names: Sequence[str], values: Sequence[int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))


def compare_tokens(session_id: str, recorded: U32, found: U32) -> Outcome:
    """Token by token. Lengths are equal where positions are; a longer side differs at the end."""
    common = min(len(recorded), len(found))
    different = np.flatnonzero(recorded[:common] != found[:common])
    surplus = max(len(recorded), len(found)) - common
    compared = Compared(tokens=common)
    if not len(different) and not surplus:
        return Outcome((), compared)
    first = int(different[0]) if len(different) else common
    return Outcome(
        (
            Finding(
                Verdict.TOKENS_MISMATCH,
                f"token history differs from the record first at position {first}",
                session_id=session_id,
                first_differing_position=first,
                positions=((first, first + 1),),
                expected=_token(recorded, first),
                found=_token(found, first),
                mismatches=len(different) + surplus,
            ),
        ),
        compared,
    )


def _token(tokens: U32, position: int) -> str:
    return f"token {tokens[position]}" if position < len(tokens) else "no token"


def compare_sampling(session_id: str, recorded: Sampling, found: Sampling) -> Outcome:
    """Every field. Both sides come from the same memory, so equal means equal bits."""
    different = [
        field.name
        for field in fields(Sampling)
        if getattr(recorded, field.name) != getattr(found, field.name)
    ]
    if not different:
        return Outcome()
    return Outcome(
        (
            Finding(
                Verdict.SAMPLER_MISMATCH,
                f"{', '.join(different)} of the session's sampling is not that of the record",
                session_id=session_id,
                expected=", ".join(f"{name} {getattr(recorded, name)}" for name in different),
                found=", ".join(f"{name} {getattr(found, name)}" for name in different),
                mismatches=len(different),
            ),
        )
    )


def compare_generator(
    session_id: str, rank: int, recorded: int | None, found: int | None
) -> Outcome:
    """Generator state before the same step. Nothing recorded: nothing is said; the continuation
    of a seeded session shows then whether its generator is right.
    """
    if recorded is None or recorded == found:
        return Outcome()
    return Outcome(
        (
            Finding(
                Verdict.SAMPLER_MISMATCH,
                "generator state is not the one that the record has before this step",
                session_id=session_id,
                rank=rank,
                expected=f"{recorded:016x}",
                found="none" if found is None else f"{found:016x}",
                mismatches=1,
            ),
        )
    )


def compare_weights(
    rank: int, expected: RankState, found: WeightDigests | None, check: WeightsCheck
) -> Outcome:
    """Parameters and buffers name by name; missing and additional names are mismatches."""
    recorded = expected.weights
    trusted = expected.weights_witness in (Witness.WITNESSED, Witness.BASELINE)
    if found is None or not recorded or not trusted:
        if found is None and check is WeightsCheck.WHERE_READ:
            return Outcome()
        side = "the rank did not read them" if found is None else "none were recorded in time"
        reason = f"weights of rank {rank} were not compared: {side}"
        return Outcome((Finding(Verdict.INCOMPARABLE, reason, rank=rank),))
    now = found.tensors
    common = recorded.keys() & now.keys()
    different = sorted(name for name in common if recorded[name] != now[name])
    missing, additional = sorted(recorded.keys() - now.keys()), sorted(now.keys() - recorded.keys())
    compared = Compared(tensors=len(common))
    count = len(different) + len(missing) + len(additional)
    if not count:
        return Outcome((), compared)
    parts = [
        f"{what} {_some(names)}"
        for what, names in (
            ("changed:", different),
            ("missing:", missing),
            ("not in the record:", additional),
        )
        if names
    ]
    first = (different + missing + additional)[0]
    return Outcome(
        (
            Finding(
                Verdict.WEIGHTS_MISMATCH,
                f"parameters or buffers of rank {rank} are other ones; {'; '.join(parts)}",
                rank=rank,
                expected=_tensor(first, recorded.get(first)),
                found=_tensor(first, now.get(first)),
                mismatches=count,
            ),
        ),
        compared,
    )


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(listed[:_NAMES_SHOWN])
    more = len(listed) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _tensor(name: str, tensor: TensorDigest | None) -> str:
    return f"{name} {_ABSENT}" if tensor is None else f"{name} {tensor.digest:016x}"
