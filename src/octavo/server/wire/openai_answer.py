"""OpenAI's answers, written: replies and chunks of `/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.chat import Answer, Reply
from octavo.text.split import CallPart, Content, Event, Reasoning
from octavo.types import PromptProgress, Token, ToolCall, Usage

Piece = Callable[[int], bytes]  # id -> the bytes of its token


def usage_of(answers: Sequence[Answer], n_prompts: int = 1) -> dict[str, Any]:
    """Counts of answers: the prompt once, though several answer it."""
    per_prompt = max(1, len(answers) // n_prompts)
    prompts = [answer.usage for answer in answers[::per_prompt]]
    n_prompt = sum(usage.prompt_tokens for usage in prompts)
    n_out = sum(answer.usage.completion_tokens for answer in answers)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_out,
        "total_tokens": n_prompt + n_out,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in prompts)},
        "completion_tokens_details": {
            "reasoning_tokens": sum(answer.reasoning_tokens for answer in answers)
        },
    }


def timings(usage: Usage) -> dict[str, Any]:
    """llama.cpp's block of speeds."""
    n_prompt = usage.prompt_tokens - usage.cached_tokens
    n_out = usage.completion_tokens
    return {
        "cache_n": usage.cached_tokens,
        **_speed("prompt", n_prompt, usage.prompt_seconds),
        **_speed("predicted", n_out, usage.generation_seconds),
        "draft_n": usage.drafted_tokens,
        "draft_n_accepted": usage.accepted_tokens,
    }


def progress_of(progress: PromptProgress) -> dict[str, Any]:
    """llama.cpp's block of how far the prompt is."""
    return {
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": round(progress.seconds * 1000, 3),
    }


def _speed(what: str, n: int, seconds: float) -> dict[str, float]:
    return {
        f"{what}_n": n,
        f"{what}_ms": round(seconds * 1000, 3),
        f"{what}_per_token_ms": round(seconds * 1000 / n, 3) if n else 0.0,
        f"{what}_per_second": round(n / seconds, 3) if seconds > 0 else 0.0,
    }


def finish_reason(answer: Answer) -> str:
    """Why an answer ended, in OpenAI's words."""
    if answer.tool_calls and answer.finish_reason == "stop":
        return "tool_calls"
    return "length" if answer.finish_reason == "length" else "stop"


def new_call_id() -> str:
    """An id for a call that the model gave none."""
    return f"call_{secrets.token_hex(12)}"


def call_of(call: ToolCall) -> dict[str, Any]:
    """A tool call, whole."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id or new_call_id(), "type": "function", "function": function}


def chat_logprobs(tokens: Sequence[Token], piece: Piece) -> dict[str, Any]:
    """The log-probabilities of some tokens, as chats have them."""

    def one(id: int, logprob: float) -> dict[str, Any]:
        data = piece(id)
        text = data.decode("utf-8", "replace")
        return {"token": text, "logprob": floor(logprob), "bytes": list(data)}

    entries = [
        {
            **one(token.id, token.logprob or 0.0),
            "top_logprobs": [one(top.id, top.logprob) for top in token.top_logprobs],
        }
        for token in tokens
    ]
    return {"content": entries, "refusal": None}


def floor(logprob: float) -> float:
    """JSON has no infinity; OpenAI writes -9999 for what cannot happen."""
    return max(logprob, -9999.0)


def text_logprobs(tokens: Sequence[Token], piece: Piece, offset: int) -> dict[str, Any]:
    """The same as completions have them; `offset`: where in the text the first one stands.

    The first token of a prompt has none.
    """
    texts = [piece(token.id).decode("utf-8", "replace") for token in tokens]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    tops = [
        {piece(t.id).decode("utf-8", "replace"): floor(t.logprob) for t in token.top_logprobs}
        if token.logprob is not None
        else None
        for token in tokens
    ]
    return {
        "tokens": texts,
        "token_logprobs": [t.logprob if t.logprob is None else floor(t.logprob) for t in tokens],
        "top_logprobs": tops,
        "text_offset": offsets,
    }


@dataclass
class Head:
    """What every object of one response begins with."""

    model: str
    prefix: str  # of the id
    object: str
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{secrets.token_hex(12)}"

    def dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }


class ChatWriter:
    """One response of `/v1/chat/completions`, streamed or whole."""

    def __init__(
        self,
        model: str,
        answers: Sequence[Answer],
        *,
        piece: Piece | None = None,
        streamed: bool = False,
        with_usage: bool = False,
    ) -> None:
        """`piece`: log-probabilities are wanted. `with_usage`: they end the stream."""
        kind = "chat.completion.chunk" if streamed else "chat.completion"
        self._head = Head(model, "chatcmpl", kind)
        self._answers = answers
        self._piece = piece
        self._with_usage = with_usage
        self._n_calls = [0] * len(answers)
        self._call_ids = [""] * len(answers)  # of the calls whose parts are being sent
        self._n_tokens = [0] * len(answers)

    def whole(self) -> dict[str, Any]:
        """The response with all choices."""
        choices = [self._choice(index, answer) for index, answer in enumerate(self._answers)]
        body = self._head.dict() | {"choices": choices, "usage": usage_of(self._answers)}
        return body | self._timings()

    def first(self, index: int) -> dict[str, Any]:
        """The chunk that says that the answer begins."""
        return self._chunk(index, {"role": "assistant", "content": ""})

    def chunk(self, index: int, event: Event) -> dict[str, Any] | None:
        """The chunk of one event; None: it needs none."""
        if isinstance(event, Content):
            return self._chunk(index, {"content": event.text}, self._new_logprobs(index))
        if isinstance(event, Reasoning):
            return self._chunk(index, {"reasoning_content": event.text})
        if isinstance(event, CallPart):
            return self._chunk(index, {"tool_calls": [self._part(index, event)]})
        if isinstance(event, PromptProgress):
            return self._chunk(index, {}) | {"prompt_progress": progress_of(event)}
        call = event.call
        if call.id and call.id == self._call_ids[index]:  # its parts were sent
            return None
        self._n_calls[index] += 1
        delta = {"index": self._n_calls[index] - 1, **call_of(call)}
        return self._chunk(index, {"tool_calls": [delta]})

    def last(self, index: int, answer: Answer) -> dict[str, Any]:
        """The chunk that says how the answer ended."""
        chunk = self._chunk(index, {}, self._new_logprobs(index), finish_reason(answer))
        if answer.stopped_thinking:
            chunk["choices"][0]["stopped_thinking"] = True
        return chunk if self._with_usage else chunk | self._timings()

    def usage(self) -> dict[str, Any] | None:
        """The chunk of counts, if it was asked for."""
        if not self._with_usage:
            return None
        counts = {"choices": [], "usage": usage_of(self._answers)}
        return self._head.dict() | counts | self._timings()

    def _part(self, index: int, part: CallPart) -> dict[str, Any]:
        """The first part says what is called, and says it once: clients join all texts."""
        if part.id == self._call_ids[index]:
            position = self._n_calls[index] - 1
            return {"index": position, "function": {"arguments": part.text}}
        self._call_ids[index] = part.id
        self._n_calls[index] += 1
        position = self._n_calls[index] - 1
        return {"index": position, **call_of(ToolCall(part.name, part.text, part.id))}

    def _choice(self, index: int, answer: Answer) -> dict[str, Any]:
        has_calls = bool(answer.tool_calls)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if has_calls and not answer.content else answer.content,
            "refusal": None,
        }
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if has_calls:
            message["tool_calls"] = [call_of(call) for call in answer.tool_calls]
        choice = {
            "index": index,
            "message": message,
            "logprobs": self._new_logprobs(index),
            "finish_reason": finish_reason(answer),
        }
        return choice | ({"stopped_thinking": True} if answer.stopped_thinking else {})

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        finish: str | None = None,
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        chunk = self._head.dict() | {"choices": [choice]}
        return chunk | {"usage": None} if self._with_usage else chunk

    def _new_logprobs(self, index: int) -> dict[str, Any] | None:
        """Of the tokens that were made since the last call."""
        if self._piece is None:
            return None
        tokens = self._answers[index].tokens
        new = tokens[self._n_tokens[index] :]
        self._n_tokens[index] += len(new)
        return chat_logprobs(new, self._piece)

    def _timings(self) -> dict[str, Any]:
        alone = len(self._answers) == 1
        return {"timings": timings(self._answers[0].usage)} if alone else {}


class TextWriter:
    """One response of `/v1/completions`, streamed or whole."""

    def __init__(
        self,
        model: str,
        replies: Sequence[Reply],
        *,
        echoes: Sequence[str],
        n_hidden: Sequence[int] = (),
        n_prompts: int = 1,
        piece: Piece | None = None,
        with_usage: bool = False,
    ) -> None:
        """`echoes`: a text that stands before each answer.

        `n_hidden`: log-probabilities of the echoes are wanted too, but for so many tokens at the
        beginning of each prompt. These are known only when the prompt is computed.
        """
        self._head = Head(model, "cmpl", "text_completion")
        self._replies = replies
        self._answers = [reply.answer for reply in replies]
        self._echoes = echoes
        self._n_hidden = n_hidden
        self._waits = [bool(n_hidden)] * len(replies)  # for its echo
        self._n_prompts = n_prompts
        self._piece = piece
        self._with_usage = with_usage
        self._n_tokens = [0] * len(replies)
        self._n_chars = [0 if n_hidden else len(echo) for echo in echoes]

    def whole(self) -> dict[str, Any]:
        """The response with all choices."""
        choices = [
            self._choice(
                i, ("" if self._n_hidden else echo) + answer.content, finish_reason(answer)
            )
            for i, (echo, answer) in enumerate(zip(self._echoes, self._answers, strict=True))
        ]
        return self._head.dict() | {"choices": choices} | self._counts()

    def first(self, index: int) -> dict[str, Any]:
        """The chunk with which an answer begins."""
        chunk = self._chunk(index, self._echoes[index], None) if not self._n_hidden else None
        return chunk or self._head.dict() | {"choices": [_text_choice(index)]}

    def chunk(self, index: int, event: Event) -> dict[str, Any]:
        """The chunk of one event; without a template there is only text."""
        if isinstance(event, PromptProgress):
            progress = {"prompt_progress": progress_of(event)}
            return self._head.dict() | {"choices": [_text_choice(index)]} | progress
        return self._chunk(index, event.text if isinstance(event, Content) else "", None)

    def last(self, index: int, answer: Answer) -> dict[str, Any]:
        """The chunk that says how the answer ended."""
        return self._chunk(index, "", finish_reason(answer))

    def usage(self) -> dict[str, Any] | None:
        """The chunk of counts, if it was asked for."""
        return self._head.dict() | {"choices": []} | self._counts() if self._with_usage else None

    def _chunk(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        chunk = self._head.dict() | {"choices": [self._choice(index, text, finish)]}
        return chunk | {"usage": None} if self._with_usage else chunk

    def _choice(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        logprobs = None
        if self._piece is not None:
            new = self._answers[index].tokens[self._n_tokens[index] :]
            self._n_tokens[index] += len(new)
            if self._waits[index]:
                self._waits[index] = False
                text = self._echoes[index] + text
                new = self._replies[index].prompt_logprobs[self._n_hidden[index] :] + new
            logprobs = text_logprobs(new, self._piece, self._n_chars[index])
            self._n_chars[index] += sum(map(len, logprobs["tokens"]))
        return _text_choice(index, text, logprobs, finish)

    def _counts(self) -> dict[str, Any]:
        counts = {"usage": usage_of(self._answers, self._n_prompts)}
        alone = len(self._answers) == 1
        return counts | ({"timings": timings(self._answers[0].usage)} if alone else {})


def _text_choice(
    index: int, text: str = "", logprobs: dict[str, Any] | None = None, finish: str | None = None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
