"""What /openapi.json says of answers: bodies, streams, and the faults that a route can answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from octavo.server.wire.answers import ClaudeError, OpenAIError

Answers = dict[int | str, dict[str, Any]]

# Statuses of faults, and what they mean; below, those of requests with a body.
_ALWAYS = {
    400: "A field is wrong; the message names it.",
    401: "A valid key is missing.",
    403: "The Host header names no host of this server.",
    404: "There is no such model or object.",
    500: "A fault of the server; it would fail again.",
    503: "Not now: the model is being loaded, the server stops, or others hold the memory.",
    507: "The model does not fit into the memory.",
}
_SENT = {
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The content type is not application/json.",
    429: "As many requests run and wait as may.",
}


def answers(
    shape: Any, *, streams: bool = False, faults: Mapping[int, str] | None = None
) -> Answers:
    """The answer of a route, and the faults that only this one can answer."""
    ok: dict[str, Any] = {"model": shape, "description": "The answer."}
    if streams:
        ok["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
        ok["description"] = "The answer; with `stream`, as server-sent events."
    return {200: ok} | _described(faults or {}, OpenAIError)


def faults_of(family: str) -> Answers:
    """The faults that any route of an API family can answer, in its form."""
    shape = ClaudeError if family == "anthropic" else OpenAIError
    return _described(_ALWAYS | _SENT, shape)


def _described(faults: Mapping[int, str], shape: Any) -> Answers:
    return {status: {"model": shape, "description": why} for status, why in faults.items()}


NAMES_MODEL: dict[str, Any] = {
    "parameters": [
        {
            "name": "model",
            "in": "query",
            "required": False,
            "schema": {"type": "string"},
            "description": "Which model, where there are several; the first by itself.",
        }
    ]
}


def sends(schema: dict[str, Any]) -> dict[str, Any]:
    """The body of a route that reads it by itself, for `openapi_extra`."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class Application(FastAPI):
    """FastAPI, with a schema that tells what is answered."""

    def openapi(self) -> dict[str, Any]:
        """The schema. Wrong fields are a 400 here, and nothing else is called wrong than is."""
        if self.openapi_schema is None:
            found = super().openapi()
            for path in found["paths"].values():
                for method, operation in path.items():
                    _correct(method, operation["responses"])
            for unused in ("HTTPValidationError", "ValidationError"):
                found["components"]["schemas"].pop(unused, None)
        return super().openapi()


def _correct(method: str, responses: dict[str, Any]) -> None:
    """Take out what FastAPI adds for wrong fields, and what only bodies can bring about."""
    if responses.get("422", {}).get("description") == "Validation Error":
        del responses["422"]
    if method != "post":
        for status in _SENT:
            responses.pop(str(status), None)
