from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SourceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_KIND_UNSPECIFIED: _ClassVar[SourceKind]
    SOURCE_KIND_SCHEDULER: _ClassVar[SourceKind]
    SOURCE_KIND_RANK: _ClassVar[SourceKind]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_RESUMED_EXACT: _ClassVar[Verdict]
    VERDICT_NOTHING_IN_FLIGHT: _ClassVar[Verdict]
    VERDICT_EQUIVALENT: _ClassVar[Verdict]
    VERDICT_INCOMPARABLE: _ClassVar[Verdict]
    VERDICT_TIMEOUT: _ClassVar[Verdict]
    VERDICT_UNKNOWN: _ClassVar[Verdict]
    VERDICT_DIVERGED: _ClassVar[Verdict]
    VERDICT_SAMPLER_MISMATCH: _ClassVar[Verdict]
    VERDICT_LOST: _ClassVar[Verdict]
    VERDICT_RESTARTED: _ClassVar[Verdict]
    VERDICT_KV_MISMATCH: _ClassVar[Verdict]
    VERDICT_TOKENS_MISMATCH: _ClassVar[Verdict]
    VERDICT_POSITION_MISMATCH: _ClassVar[Verdict]
    VERDICT_WEIGHTS_MISMATCH: _ClassVar[Verdict]
    VERDICT_RANK_SKEW: _ClassVar[Verdict]
    VERDICT_ENVIRONMENT_CHANGED: _ClassVar[Verdict]
SOURCE_KIND_UNSPECIFIED: SourceKind
SOURCE_KIND_SCHEDULER: SourceKind
SOURCE_KIND_RANK: SourceKind
VERDICT_UNSPECIFIED: Verdict
VERDICT_RESUMED_EXACT: Verdict
VERDICT_NOTHING_IN_FLIGHT: Verdict
VERDICT_EQUIVALENT: Verdict
VERDICT_INCOMPARABLE: Verdict
VERDICT_TIMEOUT: Verdict
VERDICT_UNKNOWN: Verdict
VERDICT_DIVERGED: Verdict
VERDICT_SAMPLER_MISMATCH: Verdict
VERDICT_LOST: Verdict
VERDICT_RESTARTED: Verdict
VERDICT_KV_MISMATCH: Verdict
VERDICT_TOKENS_MISMATCH: Verdict
VERDICT_POSITION_MISMATCH: Verdict
VERDICT_WEIGHTS_MISMATCH: Verdict
VERDICT_RANK_SKEW: Verdict
VERDICT_ENVIRONMENT_CHANGED: Verdict

class Source(_message.Message):
    __slots__ = ("kind", "rank", "tensor_rank", "pipeline_rank", "data_rank")
    KIND_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TENSOR_RANK_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_RANK_FIELD_NUMBER: _ClassVar[int]
    DATA_RANK_FIELD_NUMBER: _ClassVar[int]
    kind: SourceKind
    rank: int
    tensor_rank: int
    pipeline_rank: int
    data_rank: int
    def __init__(self, kind: _Optional[_Union[SourceKind, str]] = ..., rank: _Optional[int] = ..., tensor_rank: _Optional[int] = ..., pipeline_rank: _Optional[int] = ..., data_rank: _Optional[int] = ...) -> None: ...

class Fingerprint(_message.Message):
    __slots__ = ("names", "values")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "max_tokens", "min_tokens", "stop_token_ids", "ignore_eos", "unreplayable", "seed_given", "stop")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    UNREPLAYABLE_FIELD_NUMBER: _ClassVar[int]
    SEED_GIVEN_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    max_tokens: int
    min_tokens: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    unreplayable: _containers.RepeatedScalarFieldContainer[str]
    seed_given: bool
    stop: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., ignore_eos: bool = ..., unreplayable: _Optional[_Iterable[str]] = ..., seed_given: bool = ..., stop: _Optional[_Iterable[str]] = ...) -> None: ...

class KvGroup(_message.Message):
    __slots__ = ("group", "block_size", "blocks", "layers", "digest_layers", "row_bytes", "sliding_window")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_LAYERS_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    SLIDING_WINDOW_FIELD_NUMBER: _ClassVar[int]
    group: int
    block_size: int
    blocks: int
    layers: _containers.RepeatedScalarFieldContainer[int]
    digest_layers: _containers.RepeatedScalarFieldContainer[int]
    row_bytes: int
    sliding_window: int
    def __init__(self, group: _Optional[int] = ..., block_size: _Optional[int] = ..., blocks: _Optional[int] = ..., layers: _Optional[_Iterable[int]] = ..., digest_layers: _Optional[_Iterable[int]] = ..., row_bytes: _Optional[int] = ..., sliding_window: _Optional[int] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("verdict", "session_id", "rank", "layers", "position_starts", "position_ends", "expected", "found", "first_differing_position", "logprob_margin", "reason", "mismatches")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    POSITION_STARTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_ENDS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    FIRST_DIFFERING_POSITION_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_MARGIN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MISMATCHES_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    session_id: str
    rank: int
    layers: _containers.RepeatedScalarFieldContainer[int]
    position_starts: _containers.RepeatedScalarFieldContainer[int]
    position_ends: _containers.RepeatedScalarFieldContainer[int]
    expected: str
    found: str
    first_differing_position: int
    logprob_margin: float
    reason: str
    mismatches: int
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., session_id: _Optional[str] = ..., rank: _Optional[int] = ..., layers: _Optional[_Iterable[int]] = ..., position_starts: _Optional[_Iterable[int]] = ..., position_ends: _Optional[_Iterable[int]] = ..., expected: _Optional[str] = ..., found: _Optional[str] = ..., first_differing_position: _Optional[int] = ..., logprob_margin: _Optional[float] = ..., reason: _Optional[str] = ..., mismatches: _Optional[int] = ...) -> None: ...

class SessionVerdict(_message.Message):
    __slots__ = ("session_id", "verdict", "findings", "compared", "emitted_found", "emitted_expected", "continuation_modes")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FOUND_FIELD_NUMBER: _ClassVar[int]
    EMITTED_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_MODES_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    verdict: Verdict
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    compared: Compared
    emitted_found: int
    emitted_expected: int
    continuation_modes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_id: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., compared: _Optional[_Union[Compared, _Mapping]] = ..., emitted_found: _Optional[int] = ..., emitted_expected: _Optional[int] = ..., continuation_modes: _Optional[_Iterable[str]] = ...) -> None: ...

class Compared(_message.Message):
    __slots__ = ("kv_rows", "kv_rows_late", "tokens", "tensors", "recorded_tokens", "shadow_tokens")
    KV_ROWS_FIELD_NUMBER: _ClassVar[int]
    KV_ROWS_LATE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    RECORDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SHADOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    kv_rows: int
    kv_rows_late: int
    tokens: int
    tensors: int
    recorded_tokens: int
    shadow_tokens: int
    def __init__(self, kv_rows: _Optional[int] = ..., kv_rows_late: _Optional[int] = ..., tokens: _Optional[int] = ..., tensors: _Optional[int] = ..., recorded_tokens: _Optional[int] = ..., shadow_tokens: _Optional[int] = ...) -> None: ...

class WorkerVerdict(_message.Message):
    __slots__ = ("verification_id", "worker", "incarnation", "generation", "trigger", "mark", "verdict", "state_verdict", "final", "sessions", "findings", "compared", "noticed_unix_ns", "attested_unix_ns", "state_judged_unix_ns", "finished_unix_ns", "tokens_before_verdict", "rolled_back_steps", "fingerprint_digest")
    VERIFICATION_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    STATE_VERDICT_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    NOTICED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ATTESTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    STATE_JUDGED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_BEFORE_VERDICT_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_STEPS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    verification_id: str
    worker: str
    incarnation: str
    generation: int
    trigger: str
    mark: str
    verdict: Verdict
    state_verdict: Verdict
    final: bool
    sessions: _containers.RepeatedCompositeFieldContainer[SessionVerdict]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    compared: Compared
    noticed_unix_ns: int
    attested_unix_ns: int
    state_judged_unix_ns: int
    finished_unix_ns: int
    tokens_before_verdict: int
    rolled_back_steps: int
    fingerprint_digest: str
    def __init__(self, verification_id: _Optional[str] = ..., worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., generation: _Optional[int] = ..., trigger: _Optional[str] = ..., mark: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., state_verdict: _Optional[_Union[Verdict, str]] = ..., final: bool = ..., sessions: _Optional[_Iterable[_Union[SessionVerdict, _Mapping]]] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., compared: _Optional[_Union[Compared, _Mapping]] = ..., noticed_unix_ns: _Optional[int] = ..., attested_unix_ns: _Optional[int] = ..., state_judged_unix_ns: _Optional[int] = ..., finished_unix_ns: _Optional[int] = ..., tokens_before_verdict: _Optional[int] = ..., rolled_back_steps: _Optional[int] = ..., fingerprint_digest: _Optional[str] = ...) -> None: ...
