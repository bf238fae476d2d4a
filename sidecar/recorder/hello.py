"""Reading and checking what a source says of itself."""

from tokenwitness.v1 import recorder_pb2 as pb

from sidecar.identity import (
    NAME_PATTERN,
    PROTOCOL,
    Greeting,
    ProcessIdentity,
    SignKind,
    SignSeen,
    SourcePlace,
    is_name,
)
from sidecar.recorder.errors import RefusalCause, StreamRefusedError
from sidecar.wire import codec

MAX_TEXT = 512
MAX_KV_GROUPS = 64


def read_hello(message: pb.AttachRequest, *, max_ranks: int) -> Greeting:
    """The validated first message of a stream.

    Raises:
        StreamRefusedError: it is no Hello, of another protocol, or a field is out of bounds.
        MalformedMessage: a field that other messages have too is out of bounds.

    """
    if message.WhichOneof("message") != "hello":
        raise StreamRefusedError(
            RefusalCause.FIRST_MESSAGE,
            f"the first message is {message.WhichOneof('message') or 'empty'!r}, expected hello",
        )
    hello = message.hello
    if hello.protocol != PROTOCOL:
        raise StreamRefusedError(
            RefusalCause.PROTOCOL,
            f"hello.protocol is {hello.protocol}, this sidecar speaks {PROTOCOL}; install the "
            "same version of tokenwitness on both sides",
        )
    if not is_name(hello.worker):
        raise malformed("hello.worker", hello.worker, f"a name like {NAME_PATTERN.pattern}")
    if not is_name(hello.incarnation):
        raise malformed(
            "hello.incarnation", hello.incarnation, f"an id like {NAME_PATTERN.pattern}"
        )
    for name in ("engine_url", "adapter_version"):
        _check_text(f"hello.{name}", getattr(hello, name))
    if not 1 <= hello.ranks <= max_ranks:
        raise malformed("hello.ranks", hello.ranks, f"1 to {max_ranks} (max_ranks)")
    _check_seqs(hello)
    if len(hello.kv_groups) > MAX_KV_GROUPS:
        raise malformed("hello.kv_groups", len(hello.kv_groups), f"at most {MAX_KV_GROUPS} groups")
    return Greeting(
        worker=hello.worker,
        incarnation=hello.incarnation,
        nonce=hello.nonce,
        place=_place(hello),
        ranks=hello.ranks,
        next_seq=hello.next_seq,
        oldest_seq=hello.oldest_seq,
        fingerprint=codec.decode_fingerprint(hello.fingerprint).values,
        process=_process("hello.process", hello.process),
        kv_groups=codec.decode_kv_groups(hello.kv_groups),
        step=hello.step,
        engine_url=hello.engine_url,
        adapter_version=hello.adapter_version,
        drill=hello.drill,
        signs_seen=hello.signs_seen,
        generation=hello.generation,
    )


def read_sign(sign: pb.Sign) -> SignSeen:
    """A validated Sign.

    Raises:
        StreamRefusedError, MalformedMessage: a field is out of bounds.

    """
    if sign.kind not in (pb.SIGN_KIND_PROCESS_RECREATED, pb.SIGN_KIND_STOOD_STILL):
        raise malformed("sign.kind", sign.kind, "PROCESS_RECREATED (1) or STOOD_STILL (2)")
    if sign.next_seq < 1:
        raise malformed("sign.next_seq", sign.next_seq, "a seq, which counts from 1")
    if sign.held_attest_id and not sign.held_attest_id >> 63:
        raise malformed(
            "sign.held_attest_id", sign.held_attest_id, "0 or an id with the highest bit set"
        )
    return SignSeen(
        kind=SignKind(sign.kind),
        process=_process("sign.process", sign.process),
        gap_ns=sign.gap_ns,
        next_seq=sign.next_seq,
        step=sign.step,
        fingerprint=codec.decode_fingerprint(sign.fingerprint).values,
        signs_seen=sign.signs_seen,
        held_attest_id=sign.held_attest_id,
        generation=sign.generation,
    )


def malformed(field: str, value: object, expected: str) -> StreamRefusedError:
    """The refusal of one field's value."""
    text = str(value)
    shown = text if len(text) <= 80 else text[:80] + "..."
    return StreamRefusedError(RefusalCause.MALFORMED, f"{field} is {shown!r}, expected {expected}")


def _check_text(field: str, value: str) -> None:
    if len(value) > MAX_TEXT:
        raise malformed(field, f"{len(value)} characters", f"at most {MAX_TEXT}")


def _check_seqs(hello: pb.Hello) -> None:
    if hello.next_seq < 1:
        raise malformed("hello.next_seq", hello.next_seq, "a seq, which counts from 1")
    if not 1 <= hello.oldest_seq <= hello.next_seq:
        raise malformed(
            "hello.oldest_seq", hello.oldest_seq, f"1 to next_seq, which is {hello.next_seq}"
        )


def _place(hello: pb.Hello) -> SourcePlace:
    source = hello.source
    key = codec.decode_source(source)
    if key.rank >= hello.ranks:
        raise malformed("hello.source.rank", key.rank, f"below hello.ranks, which is {hello.ranks}")
    return SourcePlace(
        key=key,
        tensor_rank=source.tensor_rank,
        pipeline_rank=source.pipeline_rank,
        data_rank=source.data_rank,
    )


def _process(field: str, process: pb.ProcessIdentity) -> ProcessIdentity:
    _check_text(f"{field}.boot_id", process.boot_id)
    _check_text(f"{field}.host", process.host)
    return ProcessIdentity(
        pid=process.pid,
        start_ticks=process.start_ticks,
        boot_id=process.boot_id,
        host=process.host,
        clock_distance_ns=process.clock_distance_ns,
    )
