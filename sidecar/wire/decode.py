"""From messages of recorder.proto to the core's values. Everything raises MalformedMessage."""

from collections.abc import Iterable, Sequence

from tokenwitness.v1 import recorder_pb2, types_pb2

from sidecar.core.events import (
    BlockUpdate,
    Commit,
    Event,
    Fingerprint,
    Hole,
    KvGroup,
    KvRows,
    Launch,
    RankStep,
    Sampling,
    SessionEnd,
    SessionEndReason,
    SessionStart,
    SourceKey,
    SourceKind,
    TensorDigest,
    WeightDigests,
)
from sidecar.wire import checks, limits
from sidecar.wire.errors import MalformedMessage


def decode_record(record: recorder_pb2.Record) -> Event:
    """One record of a source, its columns checked against each other."""
    kind = record.WhichOneof("record")
    if kind == "launch":
        return decode_launch(record.launch)
    if kind == "commit":
        return decode_commit(record.commit)
    if kind == "rank_step":
        return decode_rank_step(record.rank_step)
    if kind == "hole":
        return decode_hole(record.hole)
    if kind == "weights":
        return decode_weights(record.weights)
    raise MalformedMessage("record", kind, "a record must hold one of the known kinds")


def decode_launch(message: recorder_pb2.Launch) -> Launch:
    rows = checks.rows("launch.rows", message.rows)
    count = len(rows)
    checks.equal_length("launch.starts", len(message.starts), count)
    return Launch(
        step=checks.step_number("launch.step", message.step),
        rows=rows,
        starts=checks.u32s(message.starts),
        counts=checks.optional_u32s("launch.counts", message.counts, count),
        drafts=checks.optional_u32s("launch.drafts", message.drafts, count),
        ended=decode_ends("launch.ended", message.ended),
        started=tuple(decode_start(each) for each in message.started),
        preempted_rows=tuple(
            checks.row("launch.preempted_rows", each) for each in message.preempted_rows
        ),
        blocks=decode_blocks("launch.blocks", message.blocks),
    )


def decode_commit(message: recorder_pb2.Commit) -> Commit:
    tokens = checks.u32s(message.tokens)
    given = len(message.token_counts)
    counts = checks.optional_u32s("commit.token_counts", message.token_counts, given)
    if counts is not None:
        checks.equal_length("commit.tokens", len(tokens), int(counts.sum()))
    rejected_rows = given or len(message.rejected)
    return Commit(
        step=checks.step_number("commit.step", message.step),
        tokens=tokens,
        token_counts=counts,
        rejected=checks.optional_u32s("commit.rejected", message.rejected, rejected_rows),
        ended=decode_ends("commit.ended", message.ended),
    )


def decode_rank_step(message: recorder_pb2.RankStep) -> RankStep:
    kv = []
    for rows in message.kv:
        slots = checks.u32s(rows.slots)
        if len(slots):
            digests = checks.digests("rank_step.kv.digests", rows.digests, len(slots))
            kv.append(KvRows(rows.kv_group, slots, digests))
        elif rows.digests:
            raise MalformedMessage("rank_step.kv.digests", len(rows.digests), "has no slots")
    count = len(message.sampler_rows)
    checks.equal_length("rank_step.sampler_digests", len(message.sampler_digests), count)
    return RankStep(
        step=checks.step_number("rank_step.step", message.step),
        kv=tuple(kv),
        sampler_rows=checks.rows("rank_step.sampler_rows", message.sampler_rows) if count else None,
        sampler_digests=checks.u64s(message.sampler_digests) if count else None,
    )


def decode_hole(message: recorder_pb2.Hole) -> Hole:
    if not message.count:
        raise MalformedMessage("hole.count", 0, "a hole stands for at least one record")
    if message.last_step < message.first_step:
        raise MalformedMessage(
            "hole.last_step", message.last_step, f"is before first_step {message.first_step}"
        )
    return Hole(
        count=message.count,
        first_step=message.first_step,
        last_step=checks.at_most("hole.last_step", message.last_step, limits.MAX_STEP),
        reason=checks.text("hole.reason", message.reason),
    )


def decode_weights(message: recorder_pb2.WeightDigests) -> WeightDigests:
    count = len(message.names)
    checks.equal_length("weights.digests", len(message.digests), count)
    checks.equal_length("weights.sizes", len(message.sizes), count)
    tensors: dict[str, TensorDigest] = {}
    for name, digest, size in zip(message.names, message.digests, message.sizes, strict=True):
        checks.text("weights.names", name, limits.MAX_TENSOR_NAME)
        if name in tensors:
            raise MalformedMessage("weights.names", name, "stands there twice")
        tensors[name] = TensorDigest(digest=digest, size=size)
    return WeightDigests(tensors)


def decode_start(message: recorder_pb2.SessionStart) -> SessionStart:
    return SessionStart(
        row=checks.row("session_start.row", message.row),
        session_id=checks.session_id("session_start.session_id", message.session_id),
        prompt_tokens=checks.u32s(message.prompt_tokens),
        sampling=decode_sampling(message.sampling),
        cache_salt_digest=message.cache_salt_digest,
        output_tokens=checks.u32s(message.output_tokens),
    )


def decode_ends(field: str, messages: Iterable[recorder_pb2.SessionEnd]) -> tuple[SessionEnd, ...]:
    ends = []
    for message in messages:
        # A reason of a newer contract is not known here, and does not matter for the record.
        known = message.reason <= max(SessionEndReason)
        reason = SessionEndReason(message.reason) if known else SessionEndReason.UNSPECIFIED
        ends.append(SessionEnd(checks.row(f"{field}.row", message.row), reason))
    return tuple(ends)


def decode_blocks(
    field: str, messages: Iterable[recorder_pb2.BlockUpdate]
) -> tuple[BlockUpdate, ...]:
    return tuple(
        BlockUpdate(
            row=checks.row(f"{field}.row", message.row),
            kv_group=message.kv_group,
            offset=message.offset,
            blocks=checks.u32s(message.blocks),
        )
        for message in messages
    )


def decode_sampling(message: types_pb2.Sampling) -> Sampling:
    return Sampling(
        temperature=checks.finite("sampling.temperature", message.temperature),
        top_p=checks.finite("sampling.top_p", message.top_p),
        top_k=message.top_k,
        min_p=checks.finite("sampling.min_p", message.min_p),
        seed=message.seed if message.HasField("seed") else None,
        presence_penalty=checks.finite("sampling.presence_penalty", message.presence_penalty),
        frequency_penalty=checks.finite("sampling.frequency_penalty", message.frequency_penalty),
        repetition_penalty=checks.finite("sampling.repetition_penalty", message.repetition_penalty),
        max_tokens=message.max_tokens,
        min_tokens=message.min_tokens,
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        unreplayable=tuple(
            checks.text("sampling.unreplayable", word, limits.MAX_NAME)
            for word in message.unreplayable
        ),
        seed_given=message.seed_given,
        stop=tuple(checks.text("sampling.stop", each) for each in message.stop),
    )


def decode_fingerprint(message: types_pb2.Fingerprint) -> Fingerprint:
    checks.equal_length("fingerprint.values", len(message.values), len(message.names))
    checks.at_most("fingerprint.names", len(message.names), limits.MAX_FINGERPRINT_NAMES)
    values: dict[str, str] = {}
    for name, value in zip(message.names, message.values, strict=True):
        checks.name("fingerprint.names", name)
        if name in values:
            raise MalformedMessage("fingerprint.names", name, "stands there twice")
        values[name] = checks.text("fingerprint.values", value)
    return Fingerprint(values)


def decode_source(message: types_pb2.Source) -> SourceKey:
    if message.kind == types_pb2.SOURCE_KIND_SCHEDULER:
        if message.rank:
            raise MalformedMessage("source.rank", message.rank, "is 0 for the scheduler")
        return SourceKey(SourceKind.SCHEDULER)
    if message.kind == types_pb2.SOURCE_KIND_RANK:
        return SourceKey(SourceKind.RANK, message.rank)
    raise MalformedMessage("source.kind", message.kind, "must be a scheduler or a rank")


def decode_kv_groups(messages: Sequence[types_pb2.KvGroup]) -> tuple[KvGroup, ...]:
    groups: dict[int, KvGroup] = {}
    for message in messages:
        if message.group in groups:
            raise MalformedMessage("kv_groups.group", message.group, "stands there twice")
        groups[message.group] = decode_kv_group(message)
    return tuple(groups.values())


def decode_kv_group(message: types_pb2.KvGroup) -> KvGroup:
    """One KV group, its layers and slots within bounds."""
    group = KvGroup(
        group=message.group,
        block_size=message.block_size,
        blocks=message.blocks,
        layers=tuple(message.layers),
        digest_layers=tuple(message.digest_layers),
        row_bytes=message.row_bytes,
        sliding_window=message.sliding_window,
    )
    if not 1 <= group.block_size <= limits.MAX_BLOCK_SIZE:
        raise MalformedMessage(
            "kv_groups.block_size", group.block_size, f"must be 1 to {limits.MAX_BLOCK_SIZE}"
        )
    if not 1 <= group.slots <= limits.MAX_SLOTS:
        raise MalformedMessage(
            "kv_groups.blocks", group.blocks, f"must give 1 to {limits.MAX_SLOTS} slots"
        )
    if not 1 <= len(group.layers) <= limits.MAX_LAYERS:
        raise MalformedMessage(
            "kv_groups.layers", len(group.layers), f"must be 1 to {limits.MAX_LAYERS} layers"
        )
    if list(group.layers) != sorted(set(group.layers)):
        raise MalformedMessage("kv_groups.layers", group.layers, "must ascend")
    if sum(group.digest_layers) != len(group.layers) or 0 in group.digest_layers:
        raise MalformedMessage(
            "kv_groups.digest_layers",
            group.digest_layers,
            f"must fold {len(group.layers)} layers, at least one each",
        )
    return group
