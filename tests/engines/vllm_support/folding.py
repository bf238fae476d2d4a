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
    for seq, record in enumerate(records, 1):
        message = record.encode(seq)
        yield decode_record(pb.Record.FromString(message.SerializeToString()))


def scheduler_state(engine):
    state = SchedulerState()
    for event in decoded(engine.scheduler.records):
        state.apply(event)
    assert state.broken is None
    return state


def attestation(reporter, attested):
    """An attestation as the sidecar decodes it."""
    outgoing = Outgoing(attested.due.attest_id, attested.step, attested.idle, attested.body)
    whole = pb.AttestationPart()
    for part in cut(outgoing, reporter.kv_groups):
        whole.MergeFrom(part)
    return decode_attestation(whole)


class Replay:
    """States that advance with the record, so that checking n boundaries costs one replay."""

    def __init__(self, engine):
        self.scheduler = SchedulerState()
        self.rank = RankState([decode_kv_group(g.encode()) for g in engine.rank.kv_groups])
        self._launches = decoded(engine.scheduler.records)
        self._steps = decoded(engine.rank.records)
        self._applied = 0
        self._next = None

    def scheduler_at(self, records):
        for _ in range(records - self._applied):
            self.scheduler.apply(next(self._launches))
        self._applied = records
        return self.scheduler

    def rank_at(self, step):
        while True:
            self._next = self._next or next(self._steps, None)
            if self._next is None or getattr(self._next, "step", 0) > step:
                return self.rank
            self.rank.apply(self._next)
            self._next = None


def check_attestations(engine):
    """Every attestation equals the record at its boundary. Gives the number of KV rows and of
    sessions that were compared.
    """
    replay = Replay(engine)
    by_id = {a.due.attest_id: a for a in engine.rank.attested}
    rows = sessions = 0
    for scheduler in engine.scheduler.attested:
        rank = by_id.get(scheduler.due.attest_id)
        expected = replay.scheduler_at(scheduler.after)
        found = attestation(engine.scheduler, scheduler)
        sessions += check_scheduler(expected, found)
        if rank is not None:
            rows += check_rank(engine, replay, found, rank)
    return rows, sessions


def check_scheduler(expected, found):
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
        assert session.doubt is None
    return len(found.sessions)


def check_rank(engine, replay, found, rank):
    assert isinstance(rank.body, RankBody)
    read = attestation(engine.rank, rank)
    assert not compare_rank_steps({0: read.step}, found.launched, found.committed).findings
    recorded = replay.rank_at(read.step)
    assert recorded.step == read.step
    kv = RankKv(0, recorded, index_attested(read))
    written = replay.scheduler.written(read.step)
    rows = 0
    for live in found.sessions:
        session = replay.scheduler.session(live.session_id)
        outcome = compare_session_kv(kv, session, live, written[session.row])
        assert not outcome.findings, outcome.findings
        rows += outcome.compared.kv_rows
    return rows
