"""Verdicts over the wire: no field is lost."""

from dataclasses import dataclass

import pytest
from schedules import GREEDY
from tokenwitness.v1 import checkpoint_pb2, types_pb2

from sidecar.core.events import Fingerprint, Sampling
from sidecar.core.status import SessionOrigin, SessionStatus
from sidecar.core.verdicts import Compared, Finding, SessionVerdict, Verdict, WorkerVerdict
from sidecar.wire.codec import (
    decode_fingerprint,
    decode_sampling,
    encode_finding,
    encode_fingerprint,
    encode_mark,
    encode_sampling,
    encode_session_status,
    encode_verdict,
)

FINDING = Finding(
    Verdict.KV_MISMATCH,
    "why",
    session_id="a",
    rank=0,
    layers=(3, 4),
    positions=((1, 2), (5, 9)),
    expected="x",
    found="y",
    first_differing_position=0,
    logprob_margin=0.0,
    mismatches=1 << 40,
)


def test_a_finding_keeps_all_fields_and_zeros_are_not_absent():
    message = encode_finding(FINDING)
    assert message.verdict == types_pb2.VERDICT_KV_MISMATCH
    assert (list(message.position_starts), list(message.position_ends)) == ([1, 5], [2, 9])
    assert list(message.layers) == [3, 4]
    for name in ("rank", "first_differing_position", "logprob_margin"):
        assert message.HasField(name)
    assert (message.reason, message.expected, message.found) == ("why", "x", "y")
    assert (message.session_id, message.mismatches) == ("a", 1 << 40)


def test_what_does_not_apply_is_absent():
    message = encode_finding(Finding(Verdict.LOST, "gone"))
    for name in ("rank", "first_differing_position", "logprob_margin"):
        assert not message.HasField(name)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_numbers_and_names_of_verdicts_are_the_contracts(verdict):
    assert types_pb2.Verdict.Name(verdict) == f"VERDICT_{verdict.name}"
    assert len(Verdict) == len(types_pb2.Verdict.values())


def test_a_workers_verdict_keeps_all_fields():
    compared = Compared(1, 2, 3, 4, 5, 6)
    session = SessionVerdict(
        "a", Verdict.KV_MISMATCH, (FINDING,), compared, 7, 8, ("recorded", "independent")
    )
    verdict = WorkerVerdict(
        verification_id="v",
        worker="w",
        incarnation="i",
        generation=3,
        trigger="hook",
        mark="m",
        verdict=Verdict.KV_MISMATCH,
        state_verdict=Verdict.RESUMED_EXACT,
        final=True,
        sessions=(session,),
        findings=(FINDING,),
        compared=compared,
        noticed_unix_ns=10,
        attested_unix_ns=11,
        state_judged_unix_ns=12,
        finished_unix_ns=13,
        tokens_before_verdict=14,
        rolled_back_steps=15,
        fingerprint_digest="f",
    )
    message = encode_verdict(verdict)
    for field in types_pb2.WorkerVerdict.DESCRIPTOR.fields:
        assert field.name in {each.name for each, _ in message.ListFields()}, field.name
    assert message.sessions[0].compared.shadow_tokens == 6
    assert message.compared.kv_rows_late == 2
    assert (message.sessions[0].emitted_found, message.sessions[0].emitted_expected) == (7, 8)
    assert list(message.sessions[0].continuation_modes) == ["recorded", "independent"]
    assert message.state_verdict == types_pb2.VERDICT_RESUMED_EXACT


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        Sampling(seed=0),
        Sampling(
            temperature=0.5,
            top_p=0.25,
            top_k=-1,
            min_p=0.125,
            seed=-(1 << 63),
            presence_penalty=-2.0,
            frequency_penalty=1.5,
            repetition_penalty=1.25,
            max_tokens=9,
            min_tokens=2,
            stop_token_ids=(1, 2),
            ignore_eos=True,
            unreplayable=("lora:x",),
            seed_given=True,
            stop=("end", "."),
        ),
    ],
)
def test_sampling_comes_back_as_it_went(sampling):
    assert decode_sampling(encode_sampling(sampling)) == sampling


def test_a_fingerprint_comes_back_as_it_went():
    fingerprint = Fingerprint({"driver": "1", "engine": "2"})
    assert decode_fingerprint(encode_fingerprint(fingerprint)) == fingerprint


def test_a_session_status_keeps_all_fields():
    status = SessionStatus("a", 9, 8, 1, 4, 77, Sampling(seed=5), SessionOrigin.SHADOW)
    message = encode_session_status(status)
    assert len(message.ListFields()) == len(message.DESCRIPTOR.fields)
    assert message.sampling.seed == 5


@dataclass(frozen=True)
class KeptMark:
    name: str = "m"
    worker: str = "w"
    incarnation: str = "i"
    generation: int = 1
    step: int = 2
    last_step: int = 3
    sessions: int = 4
    made_unix_ns: int = 5
    completed_unix_ns: int = 6
    outcome: int = 2
    image: str = "img"


def test_a_mark_keeps_all_fields():
    message = encode_mark(KeptMark())
    assert len(message.ListFields()) == len(message.DESCRIPTOR.fields)
    assert message.outcome == checkpoint_pb2.MARK_OUTCOME_TAKEN
