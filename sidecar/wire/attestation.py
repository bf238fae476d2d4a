"""What a source read from live memory: a whole attestation, its parts merged."""

from tokenwitness.v1 import recorder_pb2

from sidecar.core.events import (
    KvGroup,
    LiveSession,
    RankAttestation,
    SchedulerAttestation,
    SessionKv,
)
from sidecar.wire import checks, limits
from sidecar.wire.decode import decode_blocks, decode_kv_groups, decode_sampling, decode_weights
from sidecar.wire.errors import MalformedMessage


def decode_attestation(
    whole: recorder_pb2.AttestationPart,
) -> SchedulerAttestation | RankAttestation:
    """The body of an attestation whose parts were merged in order (protobuf's MergeFrom).

    Raises MalformedMessage: no body, columns that do not fit, a row or session that stands there
    twice, KV of a group that the attestation does not declare.
    """
    kind = whole.WhichOneof("body")
    step = checks.at_most("attestation.step", whole.step, limits.MAX_STEP)
    if kind == "scheduler":
        return _scheduler(step, whole.scheduler)
    if kind == "rank":
        return _rank(step, whole.rank)
    raise MalformedMessage("attestation.body", kind, "must say what was read")


def _scheduler(step: int, message: recorder_pb2.SchedulerAttestation) -> SchedulerAttestation:
    sessions = []
    ids: set[str] = set()
    rows: set[int] = set()
    for each in message.sessions:
        live = _live_session(each)
        if live.session_id in ids or live.row in rows:
            raise MalformedMessage(
                "attestation.scheduler.sessions",
                (live.row, live.session_id),
                "row or session stands there twice",
            )
        ids.add(live.session_id)
        rows.add(live.row)
        sessions.append(live)
    committed = checks.at_most(
        "attestation.scheduler.committed_step", message.committed_step, limits.MAX_STEP
    )
    return SchedulerAttestation(step, committed, tuple(sessions))


def _live_session(message: recorder_pb2.LiveSession) -> LiveSession:
    """Positions and tokens are not checked against each other: that is what is judged."""
    blocks = decode_blocks("live_session.blocks", message.blocks)
    lengths: dict[int, int] = {}
    for update in blocks:
        have = lengths.get(update.kv_group, 0)
        if update.offset > have:
            raise MalformedMessage(
                "live_session.blocks.offset", update.offset, f"the table has {have} blocks"
            )
        lengths[update.kv_group] = update.offset + len(update.blocks)
    return LiveSession(
        row=checks.row("live_session.row", message.row),
        session_id=checks.session_id("live_session.session_id", message.session_id),
        emitted=message.emitted,
        computed=message.computed,
        in_flight=message.in_flight,
        prompt_length=message.prompt_length,
        tokens=checks.u32s(message.tokens),
        sampling=decode_sampling(message.sampling),
        blocks=blocks,
        waiting=message.waiting,
    )


def _rank(step: int, message: recorder_pb2.RankAttestation) -> RankAttestation:
    groups = decode_kv_groups(message.kv_groups)
    by_number = {group.group: group for group in groups}
    checks.equal_length(
        "attestation.rank.sampler_digests",
        len(message.sampler_digests),
        len(message.sampler_rows),
    )
    return RankAttestation(
        step=step,
        kv=tuple(_session_kv(kv, by_number) for kv in message.kv),
        weights=decode_weights(message.weights) if message.HasField("weights") else None,
        sampler=dict(zip(message.sampler_rows, message.sampler_digests, strict=True)),
        kv_groups=groups,
    )


def _session_kv(message: recorder_pb2.SessionKv, groups: dict[int, KvGroup]) -> SessionKv:
    group = groups.get(message.kv_group)
    if group is None:
        raise MalformedMessage("session_kv.kv_group", message.kv_group, "was not declared")
    tokens, left = divmod(len(message.digests), 8 * group.digests)
    if left:
        raise MalformedMessage(
            "session_kv.digests",
            len(message.digests),
            f"number of bytes must be a multiple of 8 x {group.digests}",
        )
    digests = checks.packed(message.digests, tokens, group.digests)
    return SessionKv(
        row=checks.row("session_kv.row", message.row),
        session_id=checks.session_id("session_kv.session_id", message.session_id),
        kv_group=message.kv_group,
        first_position=message.first_position,
        digests=digests,
    )
