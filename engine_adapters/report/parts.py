"""Cuts an attestation into messages of bounded size, on the sender's thread."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenwitness.v1 import recorder_pb2 as pb

from engine_adapters.report.attestations import (
    AttestationBody,
    LiveSession,
    RankBody,
    SchedulerBody,
    SessionKv,
)
from engine_adapters.report.columns import digest_bytes, ints, u64
from engine_adapters.report.identity import KvGroupSpec

# Of one part, by the contract.
PART_BYTES = 1024 * 1024
# What one piece may add to a part: leaves room for the fields around it.
_PIECE_BYTES = PART_BYTES // 4
_ROOM_BYTES = PART_BYTES - 4 * 1024
_TENSORS_PER_PIECE = 1_000


class SessionTooLargeError(ValueError):
    """One session does not fit in one part. `session_id` and `size` in bytes say which."""

    def __init__(self, session_id: str, size: int) -> None:
        super().__init__(
            f"session {session_id!r} needs {size} bytes in one part of at most {PART_BYTES}; "
            "record token digests instead of tokens or limit the context length"
        )
        self.session_id = session_id
        self.size = size


@dataclass(frozen=True, slots=True)
class Attested:
    """What is sent of one attestation: a body, or the error that stands in its place."""

    attest_id: int
    step: int
    idle: bool
    body: AttestationBody | None
    error: str = ""


_Piece = pb.SchedulerAttestation | pb.RankAttestation


def cut(attested: Attested, kv_groups: Sequence[KvGroupSpec]) -> Iterator[pb.AttestationPart]:
    """The parts in order, each at most PART_BYTES; the last one says so. At least one.

    Raises:
        SessionTooLargeError: a session's tokens (some 300,000) do not fit in a part. It is raised
            in place of that part: earlier ones may have gone.

    """
    number = 0
    held: _Piece | None = None
    for piece in _pieces(attested.body, kv_groups):
        if held is None:
            held = piece
        elif held.ByteSize() + piece.ByteSize() <= _ROOM_BYTES:
            _join(held, piece)
        else:
            yield _part(attested, number, held, is_last=False)
            number, held = number + 1, piece
    yield _part(attested, number, held, is_last=True)


def _part(
    attested: Attested, number: int, piece: _Piece | None, *, is_last: bool
) -> pb.AttestationPart:
    part = pb.AttestationPart(
        attest_id=attested.attest_id,
        part=number,
        last=is_last,
        step=attested.step,
        error=attested.error,
        idle=attested.idle,
    )
    if isinstance(piece, pb.SchedulerAttestation):
        part.scheduler.CopyFrom(piece)
    elif isinstance(piece, pb.RankAttestation):
        part.rank.CopyFrom(piece)
    return part


def _join(held: _Piece, piece: _Piece) -> None:
    if isinstance(held, pb.SchedulerAttestation) and isinstance(piece, pb.SchedulerAttestation):
        held.sessions.extend(piece.sessions)
    elif isinstance(held, pb.RankAttestation) and isinstance(piece, pb.RankAttestation):
        held.MergeFrom(piece)


def _pieces(body: AttestationBody | None, kv_groups: Sequence[KvGroupSpec]) -> Iterator[_Piece]:
    if isinstance(body, SchedulerBody):
        yield pb.SchedulerAttestation(committed_step=body.committed_step)
        for session in body.sessions:
            yield _session(session, body.committed_step)
    elif isinstance(body, RankBody):
        yield pb.RankAttestation(
            kv_groups=[group.encode() for group in kv_groups],
            sampler_rows=ints(body.sampler_rows),
            sampler_digests=u64(body.sampler_digests),
        )
        yield from _weights(body)
        for kv in body.kv:
            yield from _kv(kv)


def _session(session: LiveSession, committed_step: int) -> pb.SchedulerAttestation:
    piece = pb.SchedulerAttestation(
        committed_step=committed_step,
        sessions=[
            pb.LiveSession(
                row=session.row,
                session_id=session.session_id,
                emitted=session.emitted,
                computed=session.computed,
                in_flight=session.in_flight,
                prompt_length=session.prompt_length,
                tokens=ints(session.tokens),
                sampling=session.sampling.encode(),
                blocks=[update.encode() for update in session.blocks],
                waiting=session.waiting,
            )
        ],
    )
    size = piece.ByteSize()
    if size > _ROOM_BYTES:
        raise SessionTooLargeError(session.session_id, size)
    return piece


def _weights(body: RankBody) -> Iterator[pb.RankAttestation]:
    if body.weights is None:
        return
    names = body.weights.names
    digests, sizes = u64(body.weights.digests), ints(body.weights.sizes)
    for start in range(0, len(names), _TENSORS_PER_PIECE):
        end = start + _TENSORS_PER_PIECE
        yield pb.RankAttestation(
            weights=pb.WeightDigests(
                names=names[start:end], digests=digests[start:end], sizes=sizes[start:end]
            )
        )


def _kv(kv: SessionKv) -> Iterator[pb.RankAttestation]:
    digests = np.atleast_2d(kv.digests)
    per_piece = max(1, _PIECE_BYTES // max(1, 8 * digests.shape[1]))
    # A session without rows is told of as well: nothing read is not the same as not known.
    for start in range(0, max(1, len(digests)), per_piece):
        yield pb.RankAttestation(
            kv=[
                pb.SessionKv(
                    row=kv.row,
                    session_id=kv.session_id,
                    kv_group=kv.kv_group,
                    first_position=kv.first_position + start,
                    digests=digest_bytes(digests[start : start + per_piece]),
                )
            ]
        )
