"""OpenAI's requests, read: bodies -> `ChatRequest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from octavo.errors import RequestError
from octavo.server.wire.body import Body, SamplingBody, ThinkingBody, response_grammar, stops
from octavo.server.wire.declared import (
    Choice,
    Items,
    Messages,
    Never,
    Prompts,
    Tools,
    one_of,
)
from octavo.server.wire.items import read_items
from octavo.server.wire.openai_messages import (
    allowed_tools,
    read_choice,
    read_messages,
    read_tools,
)
from octavo.types import ChatRequest, GrammarSpec, Message

MAX_CHOICES = 32


class StreamOptions(Body):
    include_usage: bool = False


class ChatBody(SamplingBody, ThinkingBody):
    """`/v1/chat/completions`.

    A body in the shape of the Responses API is understood too: Cursor sends `input` instead of
    `messages`, with `instructions`, `max_output_tokens` and `text.format`.
    """

    model_config = ConfigDict(json_schema_extra=one_of("messages", "input"))

    model: str | None = None
    messages: Annotated[Messages, Field(min_length=1)] = None
    input: Items = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    text: dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Tools = None
    tool_choice: Choice = None
    parallel_tool_calls: bool | None = None

    def read(self) -> ChatRequest:
        """What is asked of the model.

        Raises:
            RequestError: a message or a value is wrong; it is named.
        """
        thinking = self.read_thinking()
        n_logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return ChatRequest(
            messages=tuple(self._messages()),
            params=self.sampling(n_logprobs),
            tools=tuple(read_tools(allowed_tools(self.tools or (), self.tool_choice))),
            tool_choice=read_choice(self.tool_choice, self.parallel_tool_calls is not False),
            stop=stops(self.stop),
            thinking=thinking.on,
            thinking_budget=thinking.budget,
            template_args=thinking.template_args,
            call_parts=bool(self.stream),
        )

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def _messages(self) -> Sequence[Message]:
        if self.messages is not None:
            return list(read_messages(self.messages))
        if self.input is None:
            raise RequestError("messages: there are none", "Send a list of messages.")
        leading = [Message("system", self.instructions)] if self.instructions else []
        return leading + read_items(self.input, lambda id: None)

    def _limit(self) -> int | None:
        limit = super()._limit()
        return self.max_output_tokens if limit is None else limit

    def _grammar(self) -> GrammarSpec | None:
        return super()._grammar() or response_grammar((self.text or {}).get("format"))


class CompletionBody(SamplingBody):
    """`/v1/completions`."""

    model: str | None = None
    prompt: Prompts
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int | None, Never] = None
    stop: str | list[str] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | bool | None = None
    echo: bool | None = None
    suffix: str | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """Each text or list of ids that is to be continued.

        Raises:
            RequestError: there is none, or too many.
        """
        given = self.prompt
        if isinstance(given, str):
            prompts: list[str | list[int]] = [given]
        elif given and isinstance(given[0], int):
            prompts = [[id for id in given if isinstance(id, int)]]
        else:
            prompts = [prompt for prompt in given if not isinstance(prompt, int)]
        if not 0 < len(prompts) * (self.n or 1) <= MAX_CHOICES:
            raise RequestError(
                f"prompt has {len(prompts)} entries", f"Ask for 1 to {MAX_CHOICES} choices at once."
            )
        return prompts

    def check(self) -> None:
        """Refuse what would otherwise be ignored.

        Raises:
            RequestError: best_of.
        """
        if self.best_of is not None and self.best_of > (self.n or 1):
            raise RequestError("best_of is not supported", "Use n.")

    @property
    def n_logprobs(self) -> int | None:
        """Alternatives reported with each token."""
        if self.logprobs is None or self.logprobs is False:
            return None
        return int(self.logprobs)


class EmbeddingBody(Body):
    """`/v1/embeddings`."""

    model: str | None = None
    input: Prompts
    dimensions: Annotated[int, Field(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = None

    @property
    def texts(self) -> list[str | list[int]]:
        """Each text or list of ids."""
        given = self.input
        if isinstance(given, str):
            return [given]
        if given and isinstance(given[0], int):
            return [[id for id in given if isinstance(id, int)]]
        return [text for text in given if not isinstance(text, int)]
