"""Every error that Octavo raises for its user.

    OctavoError
    ├── FileFormatError       a file is not what it should be
    │   └── UnsupportedError  the file is sound, but this version cannot run it
    ├── NotFoundError         a model, file or alias does not exist
    ├── DownloadError         a source could not be reached or sent wrong bytes
    ├── SettingError          an option, setting or wish has a wrong value
    ├── RequestError          a prompt, message or parameter of a request is wrong
    │   ├── ContextFullError  more tokens than the context holds
    │   │   └── CacheFullError    other sequences hold the cache's memory
    │   ├── BusyError         too many requests wait already
    │   └── TemplateError     the chat template refused the messages
    ├── MemoryPlanError       the plan does not fit; says the numbers
    └── CancelledError        the request was cancelled

Each says what was wrong and what was expected; `hint` says what to do.
"""


class OctavoError(Exception):
    """Base of all. `exit_code` is what a command returns; `status` what a server answers."""

    exit_code = 1
    status = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class FileFormatError(OctavoError):
    """A file's bytes are wrong: truncated, damaged, or of another format."""

    exit_code = 3
    status = 422


class UnsupportedError(FileFormatError):
    """A sound file with an architecture, type or tokenizer that this version cannot run."""


class NotFoundError(OctavoError):
    """The named model or file does not exist."""

    exit_code = 4
    status = 404


class DownloadError(OctavoError):
    """No source could deliver the file whole."""

    exit_code = 5
    status = 502


class SettingError(OctavoError):
    """A flag, setting or environment variable has a wrong value."""

    exit_code = 2
    status = 400


class RequestError(OctavoError):
    """A request cannot be served as asked."""

    exit_code = 2
    status = 400


class ContextFullError(RequestError):
    """The prompt, or prompt and answer, exceed the context. The numbers are 0 if not known."""

    def __init__(
        self, message: str, hint: str = "", *, n_tokens: int = 0, limit_tokens: int = 0
    ) -> None:
        super().__init__(message, hint)
        self.n_tokens = n_tokens
        self.limit_tokens = limit_tokens


class CacheFullError(ContextFullError):
    """The context would hold the tokens, but running sequences hold the cache's memory."""

    status = 503


class BusyError(RequestError):
    """The queue of waiting requests is full."""

    status = 429


class TemplateError(RequestError):
    """The model's chat template failed or refused these messages."""


class MemoryPlanError(OctavoError):
    """The wishes do not fit this machine's memory."""

    exit_code = 6
    status = 507


class CancelledError(OctavoError):
    """The caller cancelled the request."""

    exit_code = 130
    status = 499
