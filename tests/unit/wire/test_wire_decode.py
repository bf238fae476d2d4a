"""Records and attestations over the wire: the same states, and every malformed message refused."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from engine_simulator import GROUP
from hypothesis import given
from schedules import ENGINES, LAW, SCHEDULES, busy_engine, evidence_of, folded, folded_rank, play
from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import types_pb2
from wire_messages import encode, kv_group, rank_part, scheduler_part

from sidecar.core.events import Fingerprint, Hole, Launch, SessionEndReason, SourceKey, SourceKind
from sidecar.core.judge import judge_state
from sidecar.core.verdicts import Verdict
from sidecar.wire import limits
from sidecar.wire.codec import (
    MalformedMessage,
    decode_attestation,
    decode_fingerprint,
    decode_kv_group,
    decode_kv_groups,
    decode_payload,
    decode_record,
    decode_source,
    encode_kv_group,
    encode_source,
)


def through_the_wire(event):
    return decode_payload(encode(event).SerializeToString())


@LAW
@given(ENGINES, SCHEDULES)
def test_records_give_the_same_states_after_the_wire(shape, schedule):
    engine = play(shape, schedule)
    sent = [through_the_wire(event) for event in engine.scheduler_log]
    assert folded(sent).to_bytes() == folded(engine.scheduler_log).to_bytes()
    for log in engine.rank_logs:
        sent = [through_the_wire(event) for event in log]
        assert folded_rank(sent).to_bytes() == folded_rank(log).to_bytes()


def test_an_attestation_gives_the_same_judgement_after_the_wire():
    evidence = evidence_of(busy_engine(ranks=2, depth=1))
    ranks = tuple(
        replace(rank, attested=decode_attestation(rank_part(rank.attested)))
        for rank in evidence.ranks
    )
    attested = decode_attestation(scheduler_part(evidence.attested))
    sent = judge_state(replace(evidence, attested=attested, ranks=ranks))
    assert sent == judge_state(evidence)
    assert sent.verdict is Verdict.RESUMED_EXACT


def test_merged_parts_are_one_attestation():
    whole = rank_part(busy_engine().attest()[1][0])
    merged = pb.AttestationPart()
    for kv in whole.rank.kv:
        part = pb.AttestationPart(attest_id=9, step=whole.step, rank=pb.RankAttestation(kv=[kv]))
        merged.MergeFrom(part)
    rest = pb.AttestationPart()
    rest.CopyFrom(whole)
    del rest.rank.kv[:]
    merged.MergeFrom(rest)
    found, expected = decode_attestation(merged), decode_attestation(whole)
    assert [k.digests.tolist() for k in found.kv] == [k.digests.tolist() for k in expected.kv]
    assert found.weights == expected.weights
    assert found.kv_groups == expected.kv_groups == (GROUP,)


def test_weights_that_were_not_read_are_not_the_same_as_none():
    part = rank_part(busy_engine().attest()[1][0])
    part.rank.ClearField("weights")
    assert decode_attestation(part).weights is None
    part.rank.weights.SetInParent()
    assert decode_attestation(part).weights.tensors == {}


def test_empty_columns_are_none():
    launch = decode_record(encode(Launch(3, *([np.zeros(0, np.uint32)] * 2))))
    assert (launch.counts, launch.drafts, len(launch.rows)) == (None, None, 0)


def test_a_hole_keeps_its_reason():
    hole = Hole(3, 7, 9, "queue was full")
    assert through_the_wire(hole) == hole


def test_a_reason_of_a_newer_contract_is_unspecified():
    record = pb.Record(commit=pb.Commit(step=1, ended=[pb.SessionEnd(row=1, reason=99)]))
    assert decode_record(record).ended[0].reason is SessionEndReason.UNSPECIFIED


def launch(**fields):
    return pb.Record(launch=pb.Launch(**{"step": 1, "rows": [1, 2], "starts": [0, 0], **fields}))


def start(**fields):
    sampling = fields.pop("sampling", {})
    message = pb.SessionStart(
        **{"row": 1, "session_id": "a", "sampling": types_pb2.Sampling(**sampling), **fields}
    )
    return launch(started=[message])


def rank_step(slots, digests, **fields):
    kv = [pb.KvRows(kv_group=0, slots=slots, digests=digests)]
    return pb.Record(rank_step=pb.RankStep(**{"step": 1, "kv": kv, **fields}))


EIGHT = struct.pack("<Q", 5)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (pb.Record(seq=1), "record"),
        (launch(step=0), "launch.step"),
        (launch(step=1 << 63), "launch.step"),
        (launch(starts=[0]), "launch.starts"),
        (launch(counts=[1]), "launch.counts"),
        (launch(drafts=[1, 1, 1]), "launch.drafts"),
        (launch(rows=[1, limits.MAX_ROW + 1]), "launch.rows"),
        (launch(preempted_rows=[limits.MAX_ROW + 1]), "launch.preempted_rows"),
        (launch(ended=[pb.SessionEnd(row=limits.MAX_ROW + 1)]), "launch.ended.row"),
        (launch(blocks=[pb.BlockUpdate(row=limits.MAX_ROW + 1)]), "launch.blocks.row"),
        (start(row=limits.MAX_ROW + 1), "session_start.row"),
        (start(session_id=""), "session_start.session_id"),
        (start(session_id="a" * 257), "session_start.session_id"),
        (start(session_id="a\nb"), "session_start.session_id"),
        (start(sampling={"temperature": float("nan")}), "sampling.temperature"),
        (start(sampling={"top_p": float("inf")}), "sampling.top_p"),
        (start(sampling={"unreplayable": ["x" * 200]}), "sampling.unreplayable"),
        (pb.Record(commit=pb.Commit(step=0)), "commit.step"),
        (pb.Record(commit=pb.Commit(step=1, tokens=[1], token_counts=[2])), "commit.tokens"),
        (
            pb.Record(commit=pb.Commit(step=1, tokens=[1], token_counts=[1], rejected=[0, 0])),
            "commit.rejected",
        ),
        (rank_step([1], EIGHT, step=0), "rank_step.step"),
        (rank_step([1, 2, 3], EIGHT), "rank_step.kv.digests"),
        (rank_step([1], b""), "rank_step.kv.digests"),
        (rank_step([1], EIGHT + b"\0"), "rank_step.kv.digests"),
        (rank_step([], EIGHT), "rank_step.kv.digests"),
        (rank_step([1], EIGHT, sampler_rows=[1]), "rank_step.sampler_digests"),
        (
            rank_step([1], EIGHT, sampler_rows=[limits.MAX_ROW + 1], sampler_digests=[1]),
            "rank_step.sampler_rows",
        ),
        (pb.Record(hole=pb.Hole(first_step=1, last_step=2)), "hole.count"),
        (pb.Record(hole=pb.Hole(count=1, first_step=3, last_step=2)), "hole.last_step"),
        (pb.Record(hole=pb.Hole(count=1, reason="x" * 5000)), "hole.reason"),
        (pb.Record(weights=pb.WeightDigests(names=["a"], digests=[1])), "weights.sizes"),
        (pb.Record(weights=pb.WeightDigests(names=["a"], sizes=[1])), "weights.digests"),
        (
            pb.Record(weights=pb.WeightDigests(names=["a"] * 2, digests=[1, 2], sizes=[1, 2])),
            "weights.names",
        ),
    ],
)
def test_a_malformed_record_is_refused_by_its_field(record, field):
    with pytest.raises(MalformedMessage) as caught:
        decode_record(record)
    assert caught.value.field == field
    assert field in str(caught.value)


def test_bytes_that_are_no_message_are_refused():
    with pytest.raises(MalformedMessage):
        decode_payload(b"\xff\xff\xff")


def test_a_refusal_shows_only_the_beginning_of_a_value():
    with pytest.raises(MalformedMessage) as caught:
        decode_record(start(session_id="z" * 10_000))
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "changes",
    [
        {"block_size": 0},
        {"block_size": 1 << 20},
        {"blocks": 0},
        {"blocks": 1 << 30},
        {"layers": []},
        {"layers": [0, 2, 1, 3, 4]},
        {"layers": [0, 1, 1, 3, 4]},
        {"digest_layers": [5, 1]},
        {"digest_layers": [5, 0]},
        {"digest_layers": []},
    ],
)
def test_a_kv_group_out_of_bounds_is_refused(changes):
    with pytest.raises(MalformedMessage, match="kv_groups"):
        decode_kv_group(kv_group(GROUP, **changes))


def test_kv_groups_and_sources_come_back_as_they_went():
    assert decode_kv_groups([encode_kv_group(GROUP)]) == (GROUP,)
    with pytest.raises(MalformedMessage, match="twice"):
        decode_kv_groups([encode_kv_group(GROUP)] * 2)
    for key in (SourceKey(SourceKind.SCHEDULER), SourceKey(SourceKind.RANK, 3)):
        assert decode_source(encode_source(key)) == key
    for source in (types_pb2.Source(), types_pb2.Source(kind=1, rank=2)):
        with pytest.raises(MalformedMessage):
            decode_source(source)


def test_fingerprints():
    message = types_pb2.Fingerprint(names=["driver", "x_a"], values=["1", "2"])
    assert decode_fingerprint(message) == Fingerprint({"driver": "1", "x_a": "2"})
    for names, values in ((["a"], []), (["a", "a"], ["1", "1"]), (["a b"], ["1"])):
        with pytest.raises(MalformedMessage):
            decode_fingerprint(types_pb2.Fingerprint(names=names, values=values))


def damaged(part, change):
    copy = pb.AttestationPart()
    copy.CopyFrom(part)
    change(copy)
    return copy


def duplicate_session(part):
    part.scheduler.sessions.append(part.scheduler.sessions[0])


def gap_in_a_table(part):
    part.scheduler.sessions[0].blocks[0].offset = 1


def too_late_commit(part):
    part.scheduler.committed_step = 1 << 63


@pytest.mark.parametrize("change", [duplicate_session, gap_in_a_table, too_late_commit])
def test_a_malformed_scheduler_attestation_is_refused(change):
    part = scheduler_part(busy_engine().attest()[0])
    with pytest.raises(MalformedMessage):
        decode_attestation(damaged(part, change))


def undeclared_group(part):
    part.rank.kv[0].kv_group = 4


def cut_digests(part):
    part.rank.kv[0].digests = part.rank.kv[0].digests[:-8]


def sampler_without_digest(part):
    part.rank.sampler_rows.append(1)


def no_body(part):
    part.ClearField("rank")


def undeclared_groups(part):
    del part.rank.kv_groups[:]


@pytest.mark.parametrize(
    "change", [undeclared_group, cut_digests, sampler_without_digest, no_body, undeclared_groups]
)
def test_a_malformed_rank_attestation_is_refused(change):
    part = rank_part(busy_engine().attest()[1][0])
    with pytest.raises(MalformedMessage):
        decode_attestation(damaged(part, change))


def test_positions_that_contradict_each_other_are_judged_not_refused():
    part = scheduler_part(busy_engine().attest()[0])
    part.scheduler.sessions[0].computed = 9999
    part.scheduler.sessions[0].emitted = 3
    assert decode_attestation(part).sessions[0].computed == 9999
