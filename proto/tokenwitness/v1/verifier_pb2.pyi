from tokenwitness.v1 import checkpoint_pb2 as _checkpoint_pb2
from tokenwitness.v1 import recorder_pb2 as _recorder_pb2
from tokenwitness.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerStatus(_message.Message):
    __slots__ = ("worker", "incarnation", "generation", "ranks_expected", "attached", "launched_step", "committed_step", "sessions", "last_verdict", "gate_open", "gate_reason", "hole_records", "held", "fingerprint", "engine_url", "drill")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANKS_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    LAUNCHED_STEP_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_STEP_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    LAST_VERDICT_FIELD_NUMBER: _ClassVar[int]
    GATE_OPEN_FIELD_NUMBER: _ClassVar[int]
    GATE_REASON_FIELD_NUMBER: _ClassVar[int]
    HOLE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ENGINE_URL_FIELD_NUMBER: _ClassVar[int]
    DRILL_FIELD_NUMBER: _ClassVar[int]
    worker: str
    incarnation: str
    generation: int
    ranks_expected: int
    attached: _containers.RepeatedCompositeFieldContainer[_types_pb2.Source]
    launched_step: int
    committed_step: int
    sessions: int
    last_verdict: _types_pb2.Verdict
    gate_open: bool
    gate_reason: str
    hole_records: int
    held: bool
    fingerprint: _types_pb2.Fingerprint
    engine_url: str
    drill: bool
    def __init__(self, worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., generation: _Optional[int] = ..., ranks_expected: _Optional[int] = ..., attached: _Optional[_Iterable[_Union[_types_pb2.Source, _Mapping]]] = ..., launched_step: _Optional[int] = ..., committed_step: _Optional[int] = ..., sessions: _Optional[int] = ..., last_verdict: _Optional[_Union[_types_pb2.Verdict, str]] = ..., gate_open: bool = ..., gate_reason: _Optional[str] = ..., hole_records: _Optional[int] = ..., held: bool = ..., fingerprint: _Optional[_Union[_types_pb2.Fingerprint, _Mapping]] = ..., engine_url: _Optional[str] = ..., drill: bool = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ...) -> None: ...

class SessionStatus(_message.Message):
    __slots__ = ("session_id", "emitted", "computed", "in_flight", "prompt_length", "shadow", "last_step", "sampling")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    emitted: int
    computed: int
    in_flight: int
    prompt_length: int
    shadow: bool
    last_step: int
    sampling: _types_pb2.Sampling
    def __init__(self, session_id: _Optional[str] = ..., emitted: _Optional[int] = ..., computed: _Optional[int] = ..., in_flight: _Optional[int] = ..., prompt_length: _Optional[int] = ..., shadow: bool = ..., last_step: _Optional[int] = ..., sampling: _Optional[_Union[_types_pb2.Sampling, _Mapping]] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("worker", "limit")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    worker: str
    limit: int
    def __init__(self, worker: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions", "left_off")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OFF_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionStatus]
    left_off: int
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionStatus, _Mapping]]] = ..., left_off: _Optional[int] = ...) -> None: ...

class ListVerdictsRequest(_message.Message):
    __slots__ = ("worker", "limit")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    worker: str
    limit: int
    def __init__(self, worker: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListVerdictsResponse(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[_types_pb2.WorkerVerdict]
    def __init__(self, verdicts: _Optional[_Iterable[_Union[_types_pb2.WorkerVerdict, _Mapping]]] = ...) -> None: ...

class ListMarksRequest(_message.Message):
    __slots__ = ("worker", "limit")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    worker: str
    limit: int
    def __init__(self, worker: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListMarksResponse(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.Mark]
    def __init__(self, marks: _Optional[_Iterable[_Union[_checkpoint_pb2.Mark, _Mapping]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("status", "verdict", "mark", "missed", "unix_ns")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    status: WorkerStatus
    verdict: _types_pb2.WorkerVerdict
    mark: _checkpoint_pb2.Mark
    missed: int
    unix_ns: int
    def __init__(self, status: _Optional[_Union[WorkerStatus, _Mapping]] = ..., verdict: _Optional[_Union[_types_pb2.WorkerVerdict, _Mapping]] = ..., mark: _Optional[_Union[_checkpoint_pb2.Mark, _Mapping]] = ..., missed: _Optional[int] = ..., unix_ns: _Optional[int] = ...) -> None: ...

class VerifyNowRequest(_message.Message):
    __slots__ = ("worker", "deadline_ms", "continuation")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_FIELD_NUMBER: _ClassVar[int]
    worker: str
    deadline_ms: int
    continuation: bool
    def __init__(self, worker: _Optional[str] = ..., deadline_ms: _Optional[int] = ..., continuation: bool = ...) -> None: ...

class VerifyNowResponse(_message.Message):
    __slots__ = ("verification_id",)
    VERIFICATION_ID_FIELD_NUMBER: _ClassVar[int]
    verification_id: str
    def __init__(self, verification_id: _Optional[str] = ...) -> None: ...

class ExportRequest(_message.Message):
    __slots__ = ("worker", "from_step", "to_step")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    TO_STEP_FIELD_NUMBER: _ClassVar[int]
    worker: str
    from_step: int
    to_step: int
    def __init__(self, worker: _Optional[str] = ..., from_step: _Optional[int] = ..., to_step: _Optional[int] = ...) -> None: ...

class ExportResponse(_message.Message):
    __slots__ = ("source", "generation", "record", "received_unix_ns", "chain")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    source: _types_pb2.Source
    generation: int
    record: _recorder_pb2.Record
    received_unix_ns: int
    chain: bytes
    def __init__(self, source: _Optional[_Union[_types_pb2.Source, _Mapping]] = ..., generation: _Optional[int] = ..., record: _Optional[_Union[_recorder_pb2.Record, _Mapping]] = ..., received_unix_ns: _Optional[int] = ..., chain: _Optional[bytes] = ...) -> None: ...
