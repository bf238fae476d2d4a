"""What can go wrong on the way, each with a message that says what to do."""


class DemoError(Exception):
    """The run cannot go on."""


class CriuUnavailableError(DemoError):
    """CRIU cannot work on this machine; the message says why."""


class DeadlineError(DemoError):
    """Something did not happen in its time."""
