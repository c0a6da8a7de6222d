"""What one request was and took: its log line. Never what it said."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any

from fastapi import Request

from octavo.chat import Answer
from octavo.server.conversations import Turn

LOG = logging.getLogger("octavo.server")


class Record:
    """Filled while a request is served, written as one line of JSON at its end."""

    def __init__(self, method: str, path: str) -> None:
        self.id = f"req_{secrets.token_hex(12)}"
        self.method = method
        self.path = path
        self.status = 0
        self.finish: str | None = None
        self.fields: dict[str, Any] = {}
        self.turn: Turn | None = None  # of a chat
        self.reuse_cause = ""  # why less was reused than the chat had; "": it was not so
        self._begin = time.perf_counter()

    @classmethod
    def of(cls, request: Request) -> Record:
        """The record that the guard made for this request."""
        record: Record = request.scope["octavo.record"]
        return record

    def add(self, answers: Sequence[Answer]) -> None:
        """Figures of the answers, when they are whole."""
        if not answers:
            return
        usage = answers[0].usage
        n_out = sum(answer.usage.completion_tokens for answer in answers)
        seconds = usage.generation_seconds
        self.finish = self.finish or answers[0].finish_reason
        self.fields |= {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": n_out,
            "queue_s": round(usage.queue_seconds, 3),
            "first_token_s": round(usage.first_token_seconds, 3),
            "tokens_per_s": round((usage.completion_tokens - 1) / seconds, 2) if seconds else None,
        }
        if self.turn is not None and (change := self.turn.broke(usage)) is not None:
            self.reuse_cause = change.cause
            self.fields["reuse"] = change.text
        if any(answer.stopped_thinking for answer in answers):
            self.fields["stopped_thinking"] = True

    def write(self) -> None:
        """The line. Unknown paths are common and no fault of the server: only 5xx is an error."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "event": "request",
            "id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "finish": self.finish,
            **self.fields,
            "total_s": round(time.perf_counter() - self._begin, 3),
        }
        is_fault = self.status >= 500 and self.status != 503
        LOG.log(logging.ERROR if is_fault else logging.INFO, json.dumps(line))
