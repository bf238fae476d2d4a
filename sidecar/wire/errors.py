"""What decoding raises."""

# Enough of a value to recognise it, not enough to fill a log.
_SHOWN = 80


class MalformedMessage(ValueError):  # noqa: N818 - named by what is wrong
    """A message that breaks the contract: which field, its value, why."""

    def __init__(self, field: str, value: object, why: str) -> None:
        shown = repr(value)
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        super().__init__(f"{field} is {shown}: {why}")
        self.field = field
        self.value = value
        self.why = why
