"""Why a source's stream ends, as values that carry their gRPC status."""

import enum

import grpc


class RefusalCause(enum.StrEnum):
    """Label of refused and ended streams in the metrics; a closed set."""

    FIRST_MESSAGE = "first_message"
    PROTOCOL = "protocol"
    NAME_TAKEN = "name_taken"
    CLONE = "clone"
    MALFORMED = "malformed"
    OUT_OF_ORDER = "out_of_order"
    TOO_LARGE = "too_large"
    TOO_MANY = "too_many"
    LEDGER = "ledger"
    STOPPING = "stopping"
    SUPERSEDED = "superseded"
    SILENT = "silent"
    INTERNAL = "internal"


_STATUS = {
    RefusalCause.FIRST_MESSAGE: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCause.PROTOCOL: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalCause.NAME_TAKEN: grpc.StatusCode.ALREADY_EXISTS,
    RefusalCause.CLONE: grpc.StatusCode.ALREADY_EXISTS,
    RefusalCause.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalCause.OUT_OF_ORDER: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalCause.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalCause.TOO_MANY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalCause.LEDGER: grpc.StatusCode.UNAVAILABLE,
    RefusalCause.STOPPING: grpc.StatusCode.UNAVAILABLE,
    RefusalCause.SUPERSEDED: grpc.StatusCode.ABORTED,
    RefusalCause.SILENT: grpc.StatusCode.ABORTED,
    RefusalCause.INTERNAL: grpc.StatusCode.INTERNAL,
}


class StreamRefusedError(Exception):
    """The stream ends with this cause; the text names field and value."""

    def __init__(self, cause: RefusalCause, text: str) -> None:
        super().__init__(text)
        self.cause = cause
        self.text = text

    @property
    def status(self) -> grpc.StatusCode:
        """What the source is answered."""
        return _STATUS[self.cause]
