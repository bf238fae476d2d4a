from tokenwitness.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MarkOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MARK_OUTCOME_UNSPECIFIED: _ClassVar[MarkOutcome]
    MARK_OUTCOME_PREPARED: _ClassVar[MarkOutcome]
    MARK_OUTCOME_TAKEN: _ClassVar[MarkOutcome]
    MARK_OUTCOME_FAILED: _ClassVar[MarkOutcome]
MARK_OUTCOME_UNSPECIFIED: MarkOutcome
MARK_OUTCOME_PREPARED: MarkOutcome
MARK_OUTCOME_TAKEN: MarkOutcome
MARK_OUTCOME_FAILED: MarkOutcome

class Mark(_message.Message):
    __slots__ = ("name", "worker", "incarnation", "generation", "step", "last_step", "sessions", "made_unix_ns", "completed_unix_ns", "outcome", "image")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MADE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    worker: str
    incarnation: str
    generation: int
    step: int
    last_step: int
    sessions: int
    made_unix_ns: int
    completed_unix_ns: int
    outcome: MarkOutcome
    image: str
    def __init__(self, name: _Optional[str] = ..., worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., last_step: _Optional[int] = ..., sessions: _Optional[int] = ..., made_unix_ns: _Optional[int] = ..., completed_unix_ns: _Optional[int] = ..., outcome: _Optional[_Union[MarkOutcome, str]] = ..., image: _Optional[str] = ...) -> None: ...

class PrepareMarkRequest(_message.Message):
    __slots__ = ("worker", "name", "deadline_ms")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    name: str
    deadline_ms: int
    def __init__(self, worker: _Optional[str] = ..., name: _Optional[str] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class PrepareMarkResponse(_message.Message):
    __slots__ = ("mark",)
    MARK_FIELD_NUMBER: _ClassVar[int]
    mark: Mark
    def __init__(self, mark: _Optional[_Union[Mark, _Mapping]] = ...) -> None: ...

class CompleteMarkRequest(_message.Message):
    __slots__ = ("worker", "name", "outcome", "image")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    name: str
    outcome: MarkOutcome
    image: str
    def __init__(self, worker: _Optional[str] = ..., name: _Optional[str] = ..., outcome: _Optional[_Union[MarkOutcome, str]] = ..., image: _Optional[str] = ...) -> None: ...

class CompleteMarkResponse(_message.Message):
    __slots__ = ("mark",)
    MARK_FIELD_NUMBER: _ClassVar[int]
    mark: Mark
    def __init__(self, mark: _Optional[_Union[Mark, _Mapping]] = ...) -> None: ...

class RestoredRequest(_message.Message):
    __slots__ = ("worker", "mark", "deadline_ms")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    mark: str
    deadline_ms: int
    def __init__(self, worker: _Optional[str] = ..., mark: _Optional[str] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class RestoredResponse(_message.Message):
    __slots__ = ("verification_id",)
    VERIFICATION_ID_FIELD_NUMBER: _ClassVar[int]
    verification_id: str
    def __init__(self, verification_id: _Optional[str] = ...) -> None: ...

class WaitVerdictRequest(_message.Message):
    __slots__ = ("worker", "verification_id", "timeout_ms", "state_only")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    worker: str
    verification_id: str
    timeout_ms: int
    state_only: bool
    def __init__(self, worker: _Optional[str] = ..., verification_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., state_only: bool = ...) -> None: ...

class WaitVerdictResponse(_message.Message):
    __slots__ = ("verdict",)
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: _types_pb2.WorkerVerdict
    def __init__(self, verdict: _Optional[_Union[_types_pb2.WorkerVerdict, _Mapping]] = ...) -> None: ...
