"""What can go wrong with a request, in the shape of the API that was called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastapi.exceptions import RequestValidationError

from octavo.errors import (
    CacheFullError,
    CancelledError,
    ContextFullError,
    OctavoError,
    UnsupportedError,
)

CONTEXT_CODE = "context_length_exceeded"
RETRY_SECONDS = 2
_SHORTEN = "Shorten the prompt, or serve the model with a larger context (-c)."

# Words for the kinds of fault, by status. OpenAI's clients and llama.cpp's share a vocabulary.
_OPENAI_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
}
_ANTHROPIC_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


@dataclass(frozen=True)
class Fault:
    """One failed request. `param` is the field that is wrong; `more` joins the body's top."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_seconds: int | None = None
    full_context: tuple[int, int] | None = None  # (tokens of the prompt, most there may be)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        """What clients obey before they try again."""
        headers = {}
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(self.retry_after_seconds)
        elif self.status >= 500:  # it would fail again, at the same cost
            headers["x-should-retry"] = "false"
        return headers

    def body(self, path: str, request_id: str) -> dict[str, Any]:
        """The JSON that the API at `path` answers with."""
        if path.startswith("/v1/messages"):
            return self._anthropic(request_id)
        return self._openai(is_native=not path.startswith("/v1/"))

    def _openai(self, is_native: bool) -> dict[str, Any]:
        other = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _OPENAI_KINDS.get(self.status, other)
        error: dict[str, Any] = {"message": self.message, "type": kind}
        if is_native:  # llama.cpp's code is the status
            error["code"] = self.status
        else:
            error |= {"param": self.param, "code": self.code}
        if self.full_context:
            error |= _overflow(*self.full_context, is_native=is_native)
        return {"error": error, **self.more}

    def _anthropic(self, request_id: str) -> dict[str, Any]:
        other = "api_error" if self.status >= 500 else "invalid_request_error"
        message = self.message
        if self.full_context:  # the words at which clients begin to shorten the conversation
            n_tokens, limit = self.full_context
            message = f"prompt is too long: {n_tokens} tokens > {limit} maximum"
        error = {"type": _ANTHROPIC_KINDS.get(self.status, other), "message": message}
        return {"type": "error", "error": error, "request_id": request_id, **self.more}


def _overflow(n_tokens: int, limit: int, *, is_native: bool) -> dict[str, Any]:
    """Too long a prompt in the words of OpenAI or llama.cpp: clients look for them in the text."""
    found = {"n_prompt_tokens": n_tokens, "n_ctx": limit}
    if is_native:
        words = (
            f"the request ({n_tokens} tokens) exceeds the available context size ({limit} tokens)"
        )
        return {"message": f"{words}. {_SHORTEN}", "type": "exceed_context_size_error", **found}
    words = f"This model's maximum context length is {limit} tokens, answer included. "
    words += f"However, your messages resulted in {n_tokens} tokens"
    return {"message": f"{words}. {_SHORTEN}", **found}


class RefusedError(Exception):
    """A request that is refused by the server itself, not by the model."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def fault_of(error: Exception) -> Fault:
    """The fault that an error of ours, or of the validation, means."""
    if isinstance(error, RefusedError):
        return error.fault
    if isinstance(error, RequestValidationError):
        return _validation(error)
    if isinstance(error, RecursionError):
        return Fault(400, "the body is nested too deeply; send it flatter")
    if isinstance(error, UnicodeEncodeError):  # only requests can bring such a text
        return Fault(400, "a text holds half of a surrogate pair; send whole characters")
    if not isinstance(error, OctavoError):
        return Fault(500, "the server failed; its log says more")
    message = f"{error.message}. {error.hint}" if error.hint else error.message
    if isinstance(error, UnsupportedError):  # the file cannot do what the request asks for
        return Fault(400, message)
    if isinstance(error, ContextFullError) and not isinstance(error, CacheFullError):
        full = (error.n_tokens, error.limit_tokens) if error.n_tokens else None
        return Fault(error.status, message, "messages", CONTEXT_CODE, full_context=full)
    # What nobody's client cancelled ended with the model, which may be there again soon.
    status = 503 if isinstance(error, CancelledError) else error.status
    waits = status in (429, 503)
    return Fault(status, message, retry_after_seconds=RETRY_SECONDS if waits else None)


def _validation(error: RequestValidationError) -> Fault:
    """The first thing wrong with a body, by the name of its field."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "json_invalid":
        return Fault(400, f"the body is no valid JSON: {first['ctx']['error']}")
    param = ".".join(place) or None
    return Fault(400, f"{param or 'the body'}: {first['msg']}", param)
