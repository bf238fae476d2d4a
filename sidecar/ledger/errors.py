"""What can be wrong with a ledger. Nothing of SQLite leaves this package.

Every error carries the values that a caller needs to decide, and says what to do.
"""

from pathlib import Path


class LedgerError(Exception):
    """Base of all errors of this package."""


class LedgerVersionError(LedgerError):
    """The file was written by a format that this program does not read. It was not touched."""

    def __init__(self, path: Path, found: int, supported: int) -> None:
        self.path = path
        self.found = found
        self.supported = supported
        super().__init__(
            f"ledger {path} has format version {found}, this program reads up to version "
            f"{supported}: run a newer tokenwitness, or start with an empty ledger"
        )


class LedgerCorruptError(LedgerError):
    """The file is not a ledger, or its pages are damaged."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(
            f"ledger {path} is damaged ({what}): keep a copy, run `tokenwitness ledger verify`, "
            f"then start with an empty ledger"
        )


class LedgerLockedError(LedgerError):
    """Another process writes this ledger."""

    def __init__(self, path: Path, holder: str) -> None:
        self.path = path
        self.holder = holder
        super().__init__(
            f"ledger {path} is in use by process {holder}: stop that sidecar or choose another path"
        )


class LedgerNotWritableError(LedgerError):
    """The file or its folder cannot be written."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(
            f"ledger {path} cannot be written ({why}): give this user write access to the folder"
        )


class LedgerFullError(LedgerError):
    """No room on the disk or under the configured limit. What was acknowledged is safe.

    New records are refused until a retry of the waiting ones succeeds.
    """

    def __init__(self, path: Path, limit_bytes: int | None) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        limit = "the disk is full" if limit_bytes is None else f"its limit is {limit_bytes} bytes"
        super().__init__(
            f"ledger {path} has no room ({limit}): free space, raise the limit or keep less"
        )


class LedgerClosedError(LedgerError):
    """The ledger was closed (or its writer failed) before this could be written."""

    def __init__(self, path: Path, why: str = "closed") -> None:
        self.path = path
        super().__init__(f"ledger {path} takes no more records: {why}")


class QueueFullError(LedgerError):
    """The writer is behind. Stop reading from the source until room returns (`when_room`)."""

    def __init__(self, waiting_bytes: int, limit_bytes: int) -> None:
        self.waiting_bytes = waiting_bytes
        self.limit_bytes = limit_bytes
        super().__init__(
            f"{waiting_bytes} of {limit_bytes} bytes wait for the ledger: stop reading until "
            f"room returns"
        )


class FlushTimeoutError(LedgerError):
    """Not everything that was appended before the call was committed in time."""

    def __init__(self, timeout_s: float, waiting_bytes: int) -> None:
        self.timeout_s = timeout_s
        self.waiting_bytes = waiting_bytes
        super().__init__(f"{waiting_bytes} bytes were not durable after {timeout_s} s: try again")


class UnknownSourceError(LedgerError):
    def __init__(self, source_id: int) -> None:
        self.source_id = source_id
        super().__init__(f"source {source_id} is not registered: register it first")


class UnknownGenerationError(LedgerError):
    def __init__(self, source_id: int, generation: int) -> None:
        self.source_id = source_id
        self.generation = generation
        super().__init__(f"source {source_id} has no generation {generation}: open it first")


class GenerationConflictError(LedgerError):
    """A generation cannot be opened as asked, or takes no more records."""

    def __init__(self, source_id: int, generation: int, why: str) -> None:
        self.source_id = source_id
        self.generation = generation
        self.why = why
        super().__init__(f"source {source_id}, generation {generation}: {why}")


class SequenceGapError(LedgerError):
    """Records are missing and no Hole says so. Nothing of the call was appended."""

    def __init__(self, source_id: int, generation: int, expected: int, found: int) -> None:
        self.source_id = source_id
        self.generation = generation
        self.expected = expected
        self.found = found
        super().__init__(
            f"source {source_id}, generation {generation}: expected seq {expected}, got {found}: "
            f"append a Hole for what is missing"
        )


class RecordOutOfRangeError(LedgerError):
    """A number that the ledger cannot hold. Nothing of the call was appended."""

    def __init__(self, source_id: int, field: str, value: int) -> None:
        self.source_id = source_id
        self.field = field
        self.value = value
        super().__init__(f"source {source_id}: {field} is {value}, allowed is up to 2^63 - 1")


class StateNotRecordedError(LedgerError):
    """The state at this boundary cannot be made from the record; the reason says why."""

    def __init__(self, source_id: int, generation: int, boundary: str, why: str) -> None:
        self.source_id = source_id
        self.generation = generation
        self.boundary = boundary
        self.why = why
        super().__init__(f"source {source_id}, generation {generation}, {boundary}: {why}")


class BoundaryNeverStoodError(StateNotRecordedError):
    """The record is whole around this boundary, and it went past it without standing there."""


class MarkExistsError(LedgerError):
    def __init__(self, worker: str, name: str) -> None:
        self.worker = worker
        self.name = name
        super().__init__(f"worker {worker!r} already has a mark {name!r}: choose another name")


class UnknownMarkError(LedgerError):
    def __init__(self, worker: str, name: str) -> None:
        self.worker = worker
        self.name = name
        super().__init__(f"worker {worker!r} has no mark {name!r}")
