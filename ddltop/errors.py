"""The one exception tree: an expected failure says what is wrong and how to mend it."""


class DdltopError(Exception):
    """Report an expected failure; `hint` is the command or setting that mends it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}"


class UsageError(DdltopError):
    """The command line or the configuration is wrong."""


class WireError(DdltopError):
    """A frame from the wire is malformed, oversized or of another protocol version."""


class RecordingError(DdltopError):
    """A recording cannot be read or written."""


class NoRunError(DdltopError):
    """No live run, or no run of that name, was found."""
