"""From the core's values to messages of the contract."""

from typing import Protocol

from tokenwitness.v1 import checkpoint_pb2, types_pb2, verifier_pb2

from sidecar.core.events import Fingerprint, KvGroup, Sampling, SourceKey
from sidecar.core.status import SessionOrigin, SessionStatus
from sidecar.core.verdicts import Compared, Finding, SessionVerdict, WorkerVerdict


def encode_finding(finding: Finding) -> types_pb2.Finding:
    return types_pb2.Finding(
        verdict=types_pb2.Verdict.Name(finding.verdict),
        session_id=finding.session_id,
        rank=finding.rank,
        layers=finding.layers,
        position_starts=[start for start, _ in finding.positions],
        position_ends=[end for _, end in finding.positions],
        expected=finding.expected,
        found=finding.found,
        first_differing_position=finding.first_differing_position,
        logprob_margin=finding.logprob_margin,
        reason=finding.reason,
        mismatches=finding.mismatches,
    )


def encode_compared(compared: Compared) -> types_pb2.Compared:
    return types_pb2.Compared(
        kv_rows=compared.kv_rows,
        kv_rows_late=compared.kv_rows_late,
        tokens=compared.tokens,
        tensors=compared.tensors,
        recorded_tokens=compared.recorded_tokens,
        shadow_tokens=compared.shadow_tokens,
    )


def encode_session_verdict(verdict: SessionVerdict) -> types_pb2.SessionVerdict:
    return types_pb2.SessionVerdict(
        session_id=verdict.session_id,
        verdict=types_pb2.Verdict.Name(verdict.verdict),
        findings=[encode_finding(each) for each in verdict.findings],
        compared=encode_compared(verdict.compared),
        emitted_found=verdict.emitted_found,
        emitted_expected=verdict.emitted_expected,
        continuation_modes=verdict.continuation_modes,
    )


def encode_verdict(verdict: WorkerVerdict) -> types_pb2.WorkerVerdict:
    return types_pb2.WorkerVerdict(
        verification_id=verdict.verification_id,
        worker=verdict.worker,
        incarnation=verdict.incarnation,
        generation=verdict.generation,
        trigger=verdict.trigger,
        mark=verdict.mark,
        verdict=types_pb2.Verdict.Name(verdict.verdict),
        state_verdict=types_pb2.Verdict.Name(verdict.state_verdict),
        final=verdict.final,
        sessions=[encode_session_verdict(each) for each in verdict.sessions],
        findings=[encode_finding(each) for each in verdict.findings],
        compared=encode_compared(verdict.compared),
        noticed_unix_ns=verdict.noticed_unix_ns,
        attested_unix_ns=verdict.attested_unix_ns,
        state_judged_unix_ns=verdict.state_judged_unix_ns,
        finished_unix_ns=verdict.finished_unix_ns,
        tokens_before_verdict=verdict.tokens_before_verdict,
        rolled_back_steps=verdict.rolled_back_steps,
        fingerprint_digest=verdict.fingerprint_digest,
    )


class Mark(Protocol):
    """A mark as whoever keeps it has it: fields as in the contract, `outcome` its number."""

    @property
    def name(self) -> str: ...
    @property
    def worker(self) -> str: ...
    @property
    def incarnation(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def last_step(self) -> int: ...
    @property
    def sessions(self) -> int: ...
    @property
    def made_unix_ns(self) -> int: ...
    @property
    def completed_unix_ns(self) -> int: ...
    @property
    def outcome(self) -> int: ...
    @property
    def image(self) -> str: ...


def encode_mark(mark: Mark) -> checkpoint_pb2.Mark:
    return checkpoint_pb2.Mark(
        name=mark.name,
        worker=mark.worker,
        incarnation=mark.incarnation,
        generation=mark.generation,
        step=mark.step,
        last_step=mark.last_step,
        sessions=mark.sessions,
        made_unix_ns=mark.made_unix_ns,
        completed_unix_ns=mark.completed_unix_ns,
        outcome=checkpoint_pb2.MarkOutcome.Name(mark.outcome),
        image=mark.image,
    )


def encode_sampling(sampling: Sampling) -> types_pb2.Sampling:
    return types_pb2.Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=sampling.seed,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        unreplayable=sampling.unreplayable,
        seed_given=sampling.seed_given,
        stop=sampling.stop,
    )


def encode_fingerprint(fingerprint: Fingerprint) -> types_pb2.Fingerprint:
    names = sorted(fingerprint.values)
    return types_pb2.Fingerprint(names=names, values=[fingerprint.values[each] for each in names])


def encode_source(key: SourceKey) -> types_pb2.Source:
    return types_pb2.Source(kind=types_pb2.SourceKind.Name(key.kind), rank=key.rank)


def encode_kv_group(group: KvGroup) -> types_pb2.KvGroup:
    return types_pb2.KvGroup(
        group=group.group,
        block_size=group.block_size,
        blocks=group.blocks,
        layers=group.layers,
        digest_layers=group.digest_layers,
        row_bytes=group.row_bytes,
        sliding_window=group.sliding_window,
    )


def encode_session_status(status: SessionStatus) -> verifier_pb2.SessionStatus:
    return verifier_pb2.SessionStatus(
        session_id=status.session_id,
        emitted=status.emitted,
        computed=status.computed,
        in_flight=status.in_flight,
        prompt_length=status.prompt_length,
        shadow=status.origin is SessionOrigin.SHADOW,
        last_step=status.last_step,
        sampling=encode_sampling(status.sampling),
    )
