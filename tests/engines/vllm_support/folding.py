"""Folds an adapter's records by the sidecar's own core and holds them against attestations."""

from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.attestations import RankBody
from engine_adapters.report.parts import Attested as Outgoing
from engine_adapters.report.parts import cut
from sidecar.core.compare import compare_rank_steps
from sidecar.core.compare_kv import RankKv, compare_session_kv, index_attested
from sidecar.core.rank_state import RankState
from sidecar.core.scheduler_state import SchedulerState
from sidecar.wire.attestation import decode_attestation
from sidecar.wire.decode import decode_kv_group, decode_record


def decoded(records):
    """Through the wire and back, so that what is tested is what the sidecar gets."""
    events = []
    for seq, record in enumerate(records, 1):
        message = record.encode(seq)
        events.append(decode_record(pb.Record.FromString(message.SerializeToString())))
    return events


def scheduler_state(engine, upto=None):
    state = SchedulerState()
    for event in decoded(engine.scheduler.records[:upto]):
        state.apply(event)
    assert state.broken is None
    return state


def rank_state(engine, step):
    state = RankState([decode_kv_group(group.encode()) for group in engine.rank.kv_groups])
    for event in decoded(r for r in engine.rank.records if r.step <= step):
        state.apply(event)
    return state


def attestation(reporter, attested):
    """An attestation as the sidecar decodes it."""
    outgoing = Outgoing(attested.due.attest_id, attested.step, attested.idle, attested.body)
    whole = pb.AttestationPart()
    for part in cut(outgoing, reporter.kv_groups):
        whole.MergeFrom(part)
    return decode_attestation(whole)


def pairs(engine):
    """(scheduler's, rank's) attestations of one id."""
    by_id = {a.due.attest_id: a for a in engine.rank.attested}
    return [(a, by_id.get(a.due.attest_id)) for a in engine.scheduler.attested]


def check_attestations(engine):
    """Every attestation equals the record at its boundary. Gives the number of KV rows and of
    sessions that were compared.
    """
    rows = sessions = 0
    for scheduler, rank in pairs(engine):
        expected = scheduler_state(engine, scheduler.after)
        found = attestation(engine.scheduler, scheduler)
        assert expected.boundary == (found.launched, found.committed)
        assert {s.session_id for s in found.sessions} == {
            s.session_id for s in expected.sessions.values()
        }
        for live in found.sessions:
            session = expected.session(live.session_id)
            assert list(live.tokens) == list(session.tokens)
            assert live.emitted == session.emitted
            assert (live.computed, live.in_flight) == (session.computed, session.in_flight)
            assert live.prompt_length == session.prompt_length
            assert live.sampling == session.sampling
            sessions += 1
        if rank is not None:
            rows += check_rank(engine, expected, found, rank)
    return rows, sessions


def check_rank(engine, expected, found, rank):
    assert isinstance(rank.body, RankBody)
    read = attestation(engine.rank, rank)
    assert not compare_rank_steps({0: read.step}, found.launched, found.committed).findings
    recorded = rank_state(engine, read.step)
    assert recorded.step == read.step
    kv = RankKv(0, recorded, index_attested(read))
    written = expected.written(read.step)
    rows = 0
    for live in found.sessions:
        session = expected.session(live.session_id)
        outcome = compare_session_kv(kv, session, live, written[session.row])
        assert not outcome.findings, outcome.findings
        rows += outcome.compared.kv_rows
    return rows
