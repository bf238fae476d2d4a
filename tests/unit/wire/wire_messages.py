"""Well-formed messages of the contract, and core events encoded as an adapter would."""

from tokenwitness.v1 import recorder_pb2 as pb
from tokenwitness.v1 import types_pb2

from sidecar.core.events import Commit, Hole, Launch, RankStep, WeightDigests
from sidecar.wire.codec import encode_sampling


def ints(column):
    return [] if column is None else column.tolist()


def ends(values):
    return [pb.SessionEnd(row=end.row, reason=int(end.reason)) for end in values]


def blocks(values):
    return [
        pb.BlockUpdate(row=b.row, kv_group=b.kv_group, offset=b.offset, blocks=ints(b.blocks))
        for b in values
    ]


def encode(event, seq=1) -> pb.Record:
    record = pb.Record(seq=seq)
    if isinstance(event, Launch):
        record.launch.CopyFrom(
            pb.Launch(
                step=event.step,
                ended=ends(event.ended),
                started=[
                    pb.SessionStart(
                        row=start.row,
                        session_id=start.session_id,
                        prompt_tokens=ints(start.prompt_tokens),
                        sampling=encode_sampling(start.sampling),
                        cache_salt_digest=start.cache_salt_digest,
                        output_tokens=ints(start.output_tokens),
                    )
                    for start in event.started
                ],
                preempted_rows=event.preempted_rows,
                blocks=blocks(event.blocks),
                rows=ints(event.rows),
                starts=ints(event.starts),
                counts=ints(event.counts),
                drafts=ints(event.drafts),
            )
        )
    elif isinstance(event, Commit):
        record.commit.CopyFrom(
            pb.Commit(
                step=event.step,
                token_counts=ints(event.token_counts),
                tokens=ints(event.tokens),
                rejected=ints(event.rejected),
                ended=ends(event.ended),
            )
        )
    elif isinstance(event, RankStep):
        record.rank_step.CopyFrom(
            pb.RankStep(
                step=event.step,
                kv=[
                    pb.KvRows(
                        kv_group=kv.kv_group, slots=ints(kv.slots), digests=kv.digests.tobytes()
                    )
                    for kv in event.kv
                ],
            )
        )
    elif isinstance(event, WeightDigests):
        record.weights.CopyFrom(encode_weights(event))
    elif isinstance(event, Hole):
        record.hole.CopyFrom(
            pb.Hole(
                count=event.count,
                first_step=event.first_step,
                last_step=event.last_step,
                reason=event.reason,
            )
        )
    return record


def encode_weights(weights: WeightDigests) -> pb.WeightDigests:
    return pb.WeightDigests(
        names=list(weights.tensors),
        digests=[tensor.digest for tensor in weights.tensors.values()],
        sizes=[tensor.size for tensor in weights.tensors.values()],
    )


def scheduler_part(attestation) -> pb.AttestationPart:
    return pb.AttestationPart(
        attest_id=9,
        last=True,
        step=attestation.launched,
        scheduler=pb.SchedulerAttestation(
            committed_step=attestation.committed,
            sessions=[
                pb.LiveSession(
                    row=live.row,
                    session_id=live.session_id,
                    emitted=live.emitted,
                    computed=live.computed,
                    in_flight=live.in_flight,
                    prompt_length=live.prompt_length,
                    tokens=ints(live.tokens),
                    sampling=encode_sampling(live.sampling),
                    blocks=blocks(live.blocks),
                    waiting=live.waiting,
                )
                for live in attestation.sessions
            ],
        ),
    )


def rank_part(attestation) -> pb.AttestationPart:
    return pb.AttestationPart(
        attest_id=9,
        last=True,
        step=attestation.step,
        rank=pb.RankAttestation(
            kv=[
                pb.SessionKv(
                    row=kv.row,
                    session_id=kv.session_id,
                    kv_group=kv.kv_group,
                    first_position=kv.first_position,
                    digests=kv.digests.tobytes(),
                )
                for kv in attestation.kv
            ],
            weights=encode_weights(attestation.weights),
            sampler_rows=list(attestation.sampler),
            sampler_digests=list(attestation.sampler.values()),
            kv_groups=[kv_group(group) for group in attestation.kv_groups],
        ),
    )


def kv_group(group, **changes) -> types_pb2.KvGroup:
    message = types_pb2.KvGroup(
        group=group.group,
        block_size=group.block_size,
        blocks=group.blocks,
        layers=group.layers,
        digest_layers=group.digest_layers,
        row_bytes=group.row_bytes,
        sliding_window=group.sliding_window,
    )
    for name, value in changes.items():
        if isinstance(value, list):
            message.ClearField(name)
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message
