from tokenwitness.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionEndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_END_REASON_UNSPECIFIED: _ClassVar[SessionEndReason]
    SESSION_END_REASON_STOPPED: _ClassVar[SessionEndReason]
    SESSION_END_REASON_LENGTH: _ClassVar[SessionEndReason]
    SESSION_END_REASON_ABORTED: _ClassVar[SessionEndReason]
    SESSION_END_REASON_ERROR: _ClassVar[SessionEndReason]

class SignKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGN_KIND_UNSPECIFIED: _ClassVar[SignKind]
    SIGN_KIND_PROCESS_RECREATED: _ClassVar[SignKind]
    SIGN_KIND_STOOD_STILL: _ClassVar[SignKind]

class HoldMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOLD_MODE_UNSPECIFIED: _ClassVar[HoldMode]
    HOLD_MODE_NONE: _ClassVar[HoldMode]
    HOLD_MODE_VERDICT: _ClassVar[HoldMode]
SESSION_END_REASON_UNSPECIFIED: SessionEndReason
SESSION_END_REASON_STOPPED: SessionEndReason
SESSION_END_REASON_LENGTH: SessionEndReason
SESSION_END_REASON_ABORTED: SessionEndReason
SESSION_END_REASON_ERROR: SessionEndReason
SIGN_KIND_UNSPECIFIED: SignKind
SIGN_KIND_PROCESS_RECREATED: SignKind
SIGN_KIND_STOOD_STILL: SignKind
HOLD_MODE_UNSPECIFIED: HoldMode
HOLD_MODE_NONE: HoldMode
HOLD_MODE_VERDICT: HoldMode

class AttachRequest(_message.Message):
    __slots__ = ("hello", "records", "sign", "heartbeat", "attestation")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIGN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ATTESTATION_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    records: Records
    sign: Sign
    heartbeat: Heartbeat
    attestation: AttestationPart
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., records: _Optional[_Union[Records, _Mapping]] = ..., sign: _Optional[_Union[Sign, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., attestation: _Optional[_Union[AttestationPart, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "worker", "incarnation", "nonce", "source", "ranks", "next_seq", "oldest_seq", "fingerprint", "process", "kv_groups", "step", "engine_url", "adapter_version", "drill", "signs_seen", "generation")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    OLDEST_SEQ_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    KV_GROUPS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ENGINE_URL_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DRILL_FIELD_NUMBER: _ClassVar[int]
    SIGNS_SEEN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    worker: str
    incarnation: str
    nonce: int
    source: _types_pb2.Source
    ranks: int
    next_seq: int
    oldest_seq: int
    fingerprint: _types_pb2.Fingerprint
    process: ProcessIdentity
    kv_groups: _containers.RepeatedCompositeFieldContainer[_types_pb2.KvGroup]
    step: int
    engine_url: str
    adapter_version: str
    drill: bool
    signs_seen: int
    generation: int
    def __init__(self, protocol: _Optional[int] = ..., worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., nonce: _Optional[int] = ..., source: _Optional[_Union[_types_pb2.Source, _Mapping]] = ..., ranks: _Optional[int] = ..., next_seq: _Optional[int] = ..., oldest_seq: _Optional[int] = ..., fingerprint: _Optional[_Union[_types_pb2.Fingerprint, _Mapping]] = ..., process: _Optional[_Union[ProcessIdentity, _Mapping]] = ..., kv_groups: _Optional[_Iterable[_Union[_types_pb2.KvGroup, _Mapping]]] = ..., step: _Optional[int] = ..., engine_url: _Optional[str] = ..., adapter_version: _Optional[str] = ..., drill: bool = ..., signs_seen: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class ProcessIdentity(_message.Message):
    __slots__ = ("pid", "start_ticks", "boot_id", "host", "clock_distance_ns")
    PID_FIELD_NUMBER: _ClassVar[int]
    START_TICKS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    CLOCK_DISTANCE_NS_FIELD_NUMBER: _ClassVar[int]
    pid: int
    start_ticks: int
    boot_id: str
    host: str
    clock_distance_ns: int
    def __init__(self, pid: _Optional[int] = ..., start_ticks: _Optional[int] = ..., boot_id: _Optional[str] = ..., host: _Optional[str] = ..., clock_distance_ns: _Optional[int] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("seq", "launch", "commit", "rank_step", "hole", "weights")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RANK_STEP_FIELD_NUMBER: _ClassVar[int]
    HOLE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    launch: Launch
    commit: Commit
    rank_step: RankStep
    hole: Hole
    weights: WeightDigests
    def __init__(self, seq: _Optional[int] = ..., launch: _Optional[_Union[Launch, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., rank_step: _Optional[_Union[RankStep, _Mapping]] = ..., hole: _Optional[_Union[Hole, _Mapping]] = ..., weights: _Optional[_Union[WeightDigests, _Mapping]] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ("step", "ended", "started", "preempted_rows", "blocks", "rows", "starts", "counts", "drafts")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    step: int
    ended: _containers.RepeatedCompositeFieldContainer[SessionEnd]
    started: _containers.RepeatedCompositeFieldContainer[SessionStart]
    preempted_rows: _containers.RepeatedScalarFieldContainer[int]
    blocks: _containers.RepeatedCompositeFieldContainer[BlockUpdate]
    rows: _containers.RepeatedScalarFieldContainer[int]
    starts: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    drafts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, step: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[SessionEnd, _Mapping]]] = ..., started: _Optional[_Iterable[_Union[SessionStart, _Mapping]]] = ..., preempted_rows: _Optional[_Iterable[int]] = ..., blocks: _Optional[_Iterable[_Union[BlockUpdate, _Mapping]]] = ..., rows: _Optional[_Iterable[int]] = ..., starts: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., drafts: _Optional[_Iterable[int]] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("step", "token_counts", "tokens", "rejected", "ended")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    step: int
    token_counts: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    rejected: _containers.RepeatedScalarFieldContainer[int]
    ended: _containers.RepeatedCompositeFieldContainer[SessionEnd]
    def __init__(self, step: _Optional[int] = ..., token_counts: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ..., rejected: _Optional[_Iterable[int]] = ..., ended: _Optional[_Iterable[_Union[SessionEnd, _Mapping]]] = ...) -> None: ...

class SessionStart(_message.Message):
    __slots__ = ("row", "session_id", "prompt_tokens", "sampling", "cache_salt_digest", "output_tokens")
    ROW_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    row: int
    session_id: str
    prompt_tokens: _containers.RepeatedScalarFieldContainer[int]
    sampling: _types_pb2.Sampling
    cache_salt_digest: int
    output_tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, row: _Optional[int] = ..., session_id: _Optional[str] = ..., prompt_tokens: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_types_pb2.Sampling, _Mapping]] = ..., cache_salt_digest: _Optional[int] = ..., output_tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class SessionEnd(_message.Message):
    __slots__ = ("row", "reason")
    ROW_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    row: int
    reason: SessionEndReason
    def __init__(self, row: _Optional[int] = ..., reason: _Optional[_Union[SessionEndReason, str]] = ...) -> None: ...

class BlockUpdate(_message.Message):
    __slots__ = ("row", "kv_group", "offset", "blocks")
    ROW_FIELD_NUMBER: _ClassVar[int]
    KV_GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    row: int
    kv_group: int
    offset: int
    blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, row: _Optional[int] = ..., kv_group: _Optional[int] = ..., offset: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class RankStep(_message.Message):
    __slots__ = ("step", "kv", "sampler_rows", "sampler_digests")
    STEP_FIELD_NUMBER: _ClassVar[int]
    KV_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_ROWS_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    step: int
    kv: _containers.RepeatedCompositeFieldContainer[KvRows]
    sampler_rows: _containers.RepeatedScalarFieldContainer[int]
    sampler_digests: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, step: _Optional[int] = ..., kv: _Optional[_Iterable[_Union[KvRows, _Mapping]]] = ..., sampler_rows: _Optional[_Iterable[int]] = ..., sampler_digests: _Optional[_Iterable[int]] = ...) -> None: ...

class KvRows(_message.Message):
    __slots__ = ("kv_group", "slots", "digests")
    KV_GROUP_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    kv_group: int
    slots: _containers.RepeatedScalarFieldContainer[int]
    digests: bytes
    def __init__(self, kv_group: _Optional[int] = ..., slots: _Optional[_Iterable[int]] = ..., digests: _Optional[bytes] = ...) -> None: ...

class Hole(_message.Message):
    __slots__ = ("count", "first_step", "last_step", "reason")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    count: int
    first_step: int
    last_step: int
    reason: str
    def __init__(self, count: _Optional[int] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class WeightDigests(_message.Message):
    __slots__ = ("names", "digests", "sizes")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    digests: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., digests: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class Sign(_message.Message):
    __slots__ = ("kind", "process", "gap_ns", "next_seq", "step", "fingerprint", "signs_seen", "held_attest_id", "generation")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    GAP_NS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SIGNS_SEEN_FIELD_NUMBER: _ClassVar[int]
    HELD_ATTEST_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    kind: SignKind
    process: ProcessIdentity
    gap_ns: int
    next_seq: int
    step: int
    fingerprint: _types_pb2.Fingerprint
    signs_seen: int
    held_attest_id: int
    generation: int
    def __init__(self, kind: _Optional[_Union[SignKind, str]] = ..., process: _Optional[_Union[ProcessIdentity, _Mapping]] = ..., gap_ns: _Optional[int] = ..., next_seq: _Optional[int] = ..., step: _Optional[int] = ..., fingerprint: _Optional[_Union[_types_pb2.Fingerprint, _Mapping]] = ..., signs_seen: _Optional[int] = ..., held_attest_id: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("step", "next_seq", "dropped_records", "errors", "held", "queued_bytes")
    STEP_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    DROPPED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    step: int
    next_seq: int
    dropped_records: int
    errors: int
    held: bool
    queued_bytes: int
    def __init__(self, step: _Optional[int] = ..., next_seq: _Optional[int] = ..., dropped_records: _Optional[int] = ..., errors: _Optional[int] = ..., held: bool = ..., queued_bytes: _Optional[int] = ...) -> None: ...

class AttestationPart(_message.Message):
    __slots__ = ("attest_id", "part", "last", "step", "scheduler", "rank", "error", "idle")
    ATTEST_ID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    attest_id: int
    part: int
    last: bool
    step: int
    scheduler: SchedulerAttestation
    rank: RankAttestation
    error: str
    idle: bool
    def __init__(self, attest_id: _Optional[int] = ..., part: _Optional[int] = ..., last: bool = ..., step: _Optional[int] = ..., scheduler: _Optional[_Union[SchedulerAttestation, _Mapping]] = ..., rank: _Optional[_Union[RankAttestation, _Mapping]] = ..., error: _Optional[str] = ..., idle: bool = ...) -> None: ...

class SchedulerAttestation(_message.Message):
    __slots__ = ("committed_step", "sessions")
    COMMITTED_STEP_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    committed_step: int
    sessions: _containers.RepeatedCompositeFieldContainer[LiveSession]
    def __init__(self, committed_step: _Optional[int] = ..., sessions: _Optional[_Iterable[_Union[LiveSession, _Mapping]]] = ...) -> None: ...

class LiveSession(_message.Message):
    __slots__ = ("row", "session_id", "emitted", "computed", "in_flight", "prompt_length", "tokens", "sampling", "blocks", "waiting")
    ROW_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    row: int
    session_id: str
    emitted: int
    computed: int
    in_flight: int
    prompt_length: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    sampling: _types_pb2.Sampling
    blocks: _containers.RepeatedCompositeFieldContainer[BlockUpdate]
    waiting: bool
    def __init__(self, row: _Optional[int] = ..., session_id: _Optional[str] = ..., emitted: _Optional[int] = ..., computed: _Optional[int] = ..., in_flight: _Optional[int] = ..., prompt_length: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_types_pb2.Sampling, _Mapping]] = ..., blocks: _Optional[_Iterable[_Union[BlockUpdate, _Mapping]]] = ..., waiting: bool = ...) -> None: ...

class RankAttestation(_message.Message):
    __slots__ = ("kv", "weights", "sampler_rows", "sampler_digests", "kv_groups")
    KV_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_ROWS_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    KV_GROUPS_FIELD_NUMBER: _ClassVar[int]
    kv: _containers.RepeatedCompositeFieldContainer[SessionKv]
    weights: WeightDigests
    sampler_rows: _containers.RepeatedScalarFieldContainer[int]
    sampler_digests: _containers.RepeatedScalarFieldContainer[int]
    kv_groups: _containers.RepeatedCompositeFieldContainer[_types_pb2.KvGroup]
    def __init__(self, kv: _Optional[_Iterable[_Union[SessionKv, _Mapping]]] = ..., weights: _Optional[_Union[WeightDigests, _Mapping]] = ..., sampler_rows: _Optional[_Iterable[int]] = ..., sampler_digests: _Optional[_Iterable[int]] = ..., kv_groups: _Optional[_Iterable[_Union[_types_pb2.KvGroup, _Mapping]]] = ...) -> None: ...

class SessionKv(_message.Message):
    __slots__ = ("row", "session_id", "kv_group", "first_position", "digests")
    ROW_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KV_GROUP_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    row: int
    session_id: str
    kv_group: int
    first_position: int
    digests: bytes
    def __init__(self, row: _Optional[int] = ..., session_id: _Optional[str] = ..., kv_group: _Optional[int] = ..., first_position: _Optional[int] = ..., digests: _Optional[bytes] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("welcome", "ack", "attest", "release")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ATTEST_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    ack: Ack
    attest: AttestRequest
    release: Release
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., attest: _Optional[_Union[AttestRequest, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "durable_seq", "generation", "hold")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DURABLE_SEQ_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    durable_seq: int
    generation: int
    hold: HoldPolicy
    def __init__(self, protocol: _Optional[int] = ..., durable_seq: _Optional[int] = ..., generation: _Optional[int] = ..., hold: _Optional[_Union[HoldPolicy, _Mapping]] = ...) -> None: ...

class HoldPolicy(_message.Message):
    __slots__ = ("mode", "deadline_ms", "fail_closed", "closed_limit_ms", "suspect_after_ms")
    MODE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    FAIL_CLOSED_FIELD_NUMBER: _ClassVar[int]
    CLOSED_LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    mode: HoldMode
    deadline_ms: int
    fail_closed: bool
    closed_limit_ms: int
    suspect_after_ms: int
    def __init__(self, mode: _Optional[_Union[HoldMode, str]] = ..., deadline_ms: _Optional[int] = ..., fail_closed: bool = ..., closed_limit_ms: _Optional[int] = ..., suspect_after_ms: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("seq", "generation")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    seq: int
    generation: int
    def __init__(self, seq: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class AttestRequest(_message.Message):
    __slots__ = ("attest_id", "weights", "deadline_ms")
    ATTEST_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    attest_id: int
    weights: bool
    deadline_ms: int
    def __init__(self, attest_id: _Optional[int] = ..., weights: bool = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("attest_id", "verdict", "go")
    ATTEST_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    GO_FIELD_NUMBER: _ClassVar[int]
    attest_id: int
    verdict: _types_pb2.Verdict
    go: bool
    def __init__(self, attest_id: _Optional[int] = ..., verdict: _Optional[_Union[_types_pb2.Verdict, str]] = ..., go: bool = ...) -> None: ...
