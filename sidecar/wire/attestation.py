"""Puts the parts of an attestation together."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenwitness.v1 import recorder_pb2

from sidecar.core.events import (
    KvGroup,
    LiveSession,
    RankAttestation,
    SchedulerAttestation,
    SessionKv,
    TensorDigest,
    WeightDigests,
)
from sidecar.wire import checks, limits
from sidecar.wire.checks import MalformedMessage
from sidecar.wire.decode import decode_blocks, decode_kv_groups, decode_sampling, decode_weights


@dataclass(frozen=True, slots=True)
class Attested:
    """A whole attestation, or (`body` None) why the source could not attest."""

    attest_id: int
    step: int
    body: SchedulerAttestation | RankAttestation | None
    error: str
    idle: bool


@dataclass(slots=True)
class _Open:
    """Parts that have come so far."""

    step: int
    kind: str | None
    idle: bool
    parts: list[recorder_pb2.AttestationPart] = field(default_factory=list)
    size: int = 0


class AttestationAssembler:
    """Assembles the attestations of one source. `kv_groups` are those of its Hello.

    Parts are numbered from 0 and come in order; part 0 of an id that is already open starts it
    again (sent anew after a reconnect). A malformed part drops what had come of its attestation.
    """

    def __init__(self, kv_groups: Sequence[KvGroup] = ()) -> None:
        self._declared = tuple(kv_groups)
        self._open: OrderedDict[int, _Open] = OrderedDict()

    def add(self, part: recorder_pb2.AttestationPart) -> Attested | None:
        """Takes one part; gives the attestation with its last. Raises MalformedMessage."""
        try:
            return self._add(part)
        except MalformedMessage:
            self._open.pop(part.attest_id, None)
            raise

    def _add(self, part: recorder_pb2.AttestationPart) -> Attested | None:
        if not part.attest_id:
            raise MalformedMessage("attestation.attest_id", 0, "an attestation has a number")
        if part.error:
            self._open.pop(part.attest_id, None)
            error = checks.text("attestation.error", part.error)
            return Attested(part.attest_id, part.step, None, error, part.idle)
        opened = self._accept(part)
        if not part.last:
            return None
        del self._open[part.attest_id]
        if opened.kind == "scheduler":
            body: SchedulerAttestation | RankAttestation = _scheduler(opened)
        elif opened.kind == "rank":
            body = _rank(opened, self._declared)
        else:
            raise MalformedMessage("attestation.body", opened.kind, "must say what was read")
        return Attested(part.attest_id, opened.step, body, "", opened.idle)

    def _accept(self, part: recorder_pb2.AttestationPart) -> _Open:
        kind = part.WhichOneof("body")
        if part.part == 0:
            self._open.pop(part.attest_id, None)
            opened = self._open[part.attest_id] = _Open(part.step, kind, part.idle)
            if len(self._open) > limits.MAX_OPEN_ATTESTATIONS:
                self._open.popitem(last=False)
        else:
            known = self._open.get(part.attest_id)
            expected = len(known.parts) if known is not None else 0
            if known is None or part.part != expected:
                raise MalformedMessage(
                    "attestation.part", part.part, f"part {expected} is the next one"
                )
            opened = known
        if (part.step, kind, part.idle) != (opened.step, opened.kind, opened.idle):
            raise MalformedMessage(
                "attestation",
                (part.step, kind, part.idle),
                f"step, body and idle of part 0 are {(opened.step, opened.kind, opened.idle)}",
            )
        opened.size += part.ByteSize()
        checks.at_most("attestation.part", part.part + 1, limits.MAX_PARTS)
        checks.at_most("attestation bytes", opened.size, limits.MAX_ATTESTATION_BYTES)
        opened.parts.append(part)
        return opened


def _scheduler(opened: _Open) -> SchedulerAttestation:
    committed = opened.parts[0].scheduler.committed_step
    sessions = []
    ids: set[str] = set()
    rows: set[int] = set()
    for part in opened.parts:
        if part.scheduler.committed_step != committed:
            raise MalformedMessage(
                "attestation.scheduler.committed_step",
                part.scheduler.committed_step,
                f"part 0 says {committed}",
            )
        for message in part.scheduler.sessions:
            live = _live_session(message)
            if live.session_id in ids or live.row in rows:
                raise MalformedMessage(
                    "attestation.scheduler.sessions",
                    (live.row, live.session_id),
                    "row or session stands there twice",
                )
            ids.add(live.session_id)
            rows.add(live.row)
            sessions.append(live)
    checks.at_most("attestation.step", opened.step, limits.MAX_STEP)
    checks.at_most("attestation.scheduler.committed_step", committed, limits.MAX_STEP)
    return SchedulerAttestation(opened.step, committed, tuple(sessions))


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


def _rank(opened: _Open, declared: tuple[KvGroup, ...]) -> RankAttestation:
    attested: dict[int, KvGroup] = {}
    weights: dict[str, TensorDigest] | None = None
    sampler: dict[int, int] = {}
    for part in opened.parts:
        for group in decode_kv_groups(part.rank.kv_groups):
            if attested.setdefault(group.group, group) != group:
                raise MalformedMessage(
                    "attestation.rank.kv_groups", group.group, "another part declares it otherwise"
                )
        if part.rank.HasField("weights"):
            weights = {} if weights is None else weights
            for name, tensor in decode_weights(part.rank.weights).tensors.items():
                if name in weights:
                    raise MalformedMessage("weights.names", name, "stands there twice")
                weights[name] = tensor
        checks.equal_length(
            "attestation.rank.sampler_digests",
            len(part.rank.sampler_digests),
            len(part.rank.sampler_rows),
        )
        sampler.update(zip(part.rank.sampler_rows, part.rank.sampler_digests, strict=True))
    groups = attested or {group.group: group for group in declared}
    return RankAttestation(
        step=checks.at_most("attestation.step", opened.step, limits.MAX_STEP),
        kv=tuple(_session_kv(kv, groups) for part in opened.parts for kv in part.rank.kv),
        weights=None if weights is None else WeightDigests(weights),
        sampler=sampler,
        kv_groups=tuple(attested.values()),
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
