"""From stored verdict and mark messages back to the core's values. Raises MalformedMessage."""

from typing import TypeVar

from tokenwitness.v1 import checkpoint_pb2, types_pb2

from sidecar.core.status import Mark, MarkOutcome
from sidecar.core.verdicts import Compared, Finding, SessionVerdict, Verdict, WorkerVerdict
from sidecar.wire import checks
from sidecar.wire.checks import MalformedMessage

_Enum = TypeVar("_Enum", Verdict, MarkOutcome)


def _known(field: str, kind: type[_Enum], value: int) -> _Enum:
    try:
        return kind(value)
    except ValueError as error:
        raise MalformedMessage(field, value, "is of a newer contract") from error


def decode_finding(message: types_pb2.Finding) -> Finding:
    checks.equal_length(
        "finding.position_ends", len(message.position_ends), len(message.position_starts)
    )
    first = message.first_differing_position
    return Finding(
        verdict=_known("finding.verdict", Verdict, message.verdict),
        reason=message.reason,
        session_id=message.session_id,
        rank=message.rank if message.HasField("rank") else None,
        layers=tuple(message.layers),
        positions=tuple(zip(message.position_starts, message.position_ends, strict=True)),
        expected=message.expected,
        found=message.found,
        first_differing_position=first if message.HasField("first_differing_position") else None,
        logprob_margin=message.logprob_margin if message.HasField("logprob_margin") else None,
        mismatches=message.mismatches,
    )


def decode_compared(message: types_pb2.Compared) -> Compared:
    return Compared(
        kv_rows=message.kv_rows,
        kv_rows_late=message.kv_rows_late,
        tokens=message.tokens,
        tensors=message.tensors,
        recorded_tokens=message.recorded_tokens,
        shadow_tokens=message.shadow_tokens,
    )


def decode_session_verdict(message: types_pb2.SessionVerdict) -> SessionVerdict:
    return SessionVerdict(
        session_id=message.session_id,
        verdict=_known("session_verdict.verdict", Verdict, message.verdict),
        findings=tuple(decode_finding(each) for each in message.findings),
        compared=decode_compared(message.compared),
        emitted_found=message.emitted_found,
        emitted_expected=message.emitted_expected,
        continuation_modes=tuple(message.continuation_modes),
    )


def decode_worker_verdict(message: types_pb2.WorkerVerdict) -> WorkerVerdict:
    return WorkerVerdict(
        verification_id=message.verification_id,
        worker=message.worker,
        incarnation=message.incarnation,
        generation=message.generation,
        trigger=message.trigger,
        mark=message.mark,
        verdict=_known("worker_verdict.verdict", Verdict, message.verdict),
        state_verdict=_known("worker_verdict.state_verdict", Verdict, message.state_verdict),
        final=message.final,
        sessions=tuple(decode_session_verdict(each) for each in message.sessions),
        findings=tuple(decode_finding(each) for each in message.findings),
        compared=decode_compared(message.compared),
        noticed_unix_ns=message.noticed_unix_ns,
        attested_unix_ns=message.attested_unix_ns,
        state_judged_unix_ns=message.state_judged_unix_ns,
        finished_unix_ns=message.finished_unix_ns,
        tokens_before_verdict=message.tokens_before_verdict,
        rolled_back_steps=message.rolled_back_steps,
        fingerprint_digest=message.fingerprint_digest,
    )


def decode_mark(message: checkpoint_pb2.Mark) -> Mark:
    return Mark(
        name=checks.name("mark.name", message.name),
        worker=checks.name("mark.worker", message.worker),
        incarnation=message.incarnation,
        generation=message.generation,
        step=message.step,
        last_step=message.last_step,
        sessions=message.sessions,
        made_unix_ns=message.made_unix_ns,
        completed_unix_ns=message.completed_unix_ns,
        outcome=_known("mark.outcome", MarkOutcome, message.outcome),
        image=message.image,
    )
