"""What can be wrong with a record. A state that raised while applying must not be used further,
except after OutOfOrderStep, which is raised before anything was changed.
"""


class RecordError(ValueError):
    """The record contradicts itself. Every subclass says what was found and what was expected."""


class OutOfOrderStep(RecordError):  # noqa: N818 - named by what is wrong, not by being an error
    """A step that is not the next one of its kind."""

    def __init__(self, kind: str, found: int, expected: int) -> None:
        super().__init__(
            f"{kind} of step {found}, expected step {expected}: records were lost, doubled or "
            "reordered; a dropped record must be replaced by a hole"
        )
        self.kind = kind
        self.found = found
        self.expected = expected


class UnknownRow(RecordError):  # noqa: N818
    """A record names a row that no live session holds."""

    def __init__(self, row: int, step: int, what: str) -> None:
        super().__init__(f"step {step}: {what} of row {row}, which no live session holds")
        self.row = row
        self.step = step


class RowInUse(RecordError):  # noqa: N818
    """A session starts in a row that another live session holds."""

    def __init__(self, row: int, step: int, holder: str, starter: str) -> None:
        super().__init__(
            f"step {step}: session {starter!r} starts in row {row}, which {holder!r} still holds"
        )
        self.row = row
        self.step = step


class BadColumns(RecordError):  # noqa: N818
    """Columns of one record do not fit each other."""

    def __init__(self, step: int, what: str, found: int, expected: int) -> None:
        super().__init__(f"step {step}: {what} is {found}, expected {expected}")
        self.step = step
        self.what = what
        self.found = found
        self.expected = expected


class BlockGap(RecordError):  # noqa: N818
    """A block update begins behind the end of the table."""

    def __init__(self, row: int, kv_group: int, offset: int, length: int) -> None:
        super().__init__(
            f"block update of row {row}, group {kv_group} begins at {offset}, but the table has "
            f"only {length} blocks"
        )
        self.row = row
        self.kv_group = kv_group


class UnknownKvGroup(RecordError):  # noqa: N818
    """KV rows of a group that the rank did not declare."""

    def __init__(self, kv_group: int, declared: tuple[int, ...]) -> None:
        super().__init__(f"KV group {kv_group} was not declared; declared are {declared}")
        self.kv_group = kv_group


class BadKvRows(RecordError):  # noqa: N818
    """KV rows whose slots or digests do not fit the group's declaration."""

    def __init__(self, kv_group: int, what: str, found: int, limit: int) -> None:
        super().__init__(f"KV group {kv_group}: {what} is {found}, the group declares {limit}")
        self.kv_group = kv_group
        self.found = found
        self.limit = limit


class BaselineIncomplete(RecordError):  # noqa: N818
    """An attestation cannot be the start of a record: steps in flight are not known."""


class SnapshotCorrupt(ValueError):  # noqa: N818
    """Bytes that are not a snapshot of this kind and version, or a damaged one."""
