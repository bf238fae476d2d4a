"""Why a worker or a rank stays unobserved. Each says what was found and what would help."""


class NotObservableError(Exception):
    """The adapter cannot observe this engine as it is configured."""


class UnsupportedEngineError(NotObservableError):
    """The engine's version lies outside the range that the adapter was checked against."""

    def __init__(self, found: str, supported: str) -> None:
        super().__init__(f"vLLM {found} is not supported: use {supported}")
        self.found = found


class UnsupportedLayoutError(NotObservableError):
    """KV cache tensors that no layout module can read. `found` says what was seen."""

    def __init__(self, layer: str, found: str, remedy: str) -> None:
        super().__init__(f"KV cache of layer {layer!r} cannot be read: {found}; {remedy}")
        self.layer = layer
        self.found = found


class UnsupportedSettingError(NotObservableError):
    """A setting of the engine under which rows are not where the adapter looks for them."""

    def __init__(self, setting: str, value: object, remedy: str) -> None:
        super().__init__(f"vLLM runs with {setting}={value!r}: {remedy}")
        self.setting = setting
        self.value = value


class OutOfStepError(Exception):
    """The engine's hooks came in an order that the adapter does not know."""

    def __init__(self, what: str, found: object, expected: object) -> None:
        super().__init__(f"{what}: found {found!r}, expected {expected!r}")
