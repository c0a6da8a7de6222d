"""OpenAI's Responses API, read: bodies -> `ChatRequest`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from octavo.errors import RequestError
from octavo.server.wire.body import SamplingBody, ThinkingBody, response_grammar, stops
from octavo.server.wire.declared import Choice, Items, Never, Tools, one_of
from octavo.server.wire.items import Item, read_items
from octavo.server.wire.namespaces import Origin, Tool, added, chosen, flat, origins
from octavo.server.wire.openai_messages import allowed_tools, read_choice, read_tools
from octavo.types import ChatRequest, GrammarSpec, Message

ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
_REFUSED = ("background", "conversation", "prompt")


class ResponsesBody(SamplingBody, ThinkingBody):
    """`/v1/responses` and `/v1/responses/input_tokens`."""

    model_config = ConfigDict(json_schema_extra=one_of("input"))

    model: str | None = None
    input: Items = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    stream: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    text: dict[str, Any] | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Tools = None
    tool_choice: Choice = None
    parallel_tool_calls: bool | None = None
    stop: str | list[str] | None = None
    truncation: str | None = None
    user: str | None = None
    background: Annotated[bool | None, Never] = None
    conversation: Annotated[str | dict[str, Any] | None, Never] = None
    prompt: Annotated[dict[str, Any] | None, Never] = None

    def read(
        self, earlier: Sequence[Message], find: Callable[[str], Item | None]
    ) -> tuple[ChatRequest, tuple[Message, ...]]:
        """What is asked of the model, and the conversation in it without the instructions.

        Args:
            earlier: the conversation that this one continues.
            find: the stored item of an id.

        Raises:
            RequestError: an item or a value is wrong; it is named.
        """
        for name in _REFUSED:
            if getattr(self, name):
                raise RequestError(f"{name} is not supported", "Send the whole input instead.")
        talk = (*earlier, *read_items(self.input or [], find))
        if not talk:
            raise RequestError("input: there is none", "Send a text or a list of items.")
        leading = (Message("system", self.instructions),) if self.instructions else ()
        thinking = self.read_thinking()
        choice = chosen(self.tool_choice, self._tools())
        tools = allowed_tools(list(flat(self._tools())), choice)
        request = ChatRequest(
            messages=leading + talk,
            params=self.sampling((self.top_logprobs or 0) if self.wants_logprobs else None),
            tools=tuple(read_tools(tools)),
            tool_choice=read_choice(choice, self.parallel_tool_calls is not False),
            stop=stops(self.stop),
            thinking=thinking.on,
            thinking_budget=thinking.budget,
            template_args=thinking.template_args,
            call_parts=bool(self.stream),
        )
        return request, talk

    @property
    def is_stored(self) -> bool:
        """Whether the response can be asked for, and continued, later."""
        return self.store is not False

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ()) or self.top_logprobs is not None

    @property
    def wants_hidden_thinking(self) -> bool:
        """Whether the client wants thinking in a form that it can send back."""
        return ENCRYPTED in (self.include or ())

    @property
    def wants_summary(self) -> bool:
        """Whether the client shows thinking only as a summary."""
        wish = self.reasoning or {}
        return bool(wish.get("summary") or wish.get("generate_summary"))

    def origins(self) -> dict[str, Origin]:
        """The tools by the names under which the model calls them."""
        return origins(self._tools())

    def echo(self) -> dict[str, Any]:
        """What a response repeats of its request."""
        wish: Mapping[str, Any] = self.reasoning or {}
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "reasoning": {"effort": wish.get("effort"), "summary": wish.get("summary")},
            "store": self.is_stored,
            "temperature": self.temperature,
            "text": {"format": {"type": "text"}, **(self.text or {})},
            "tool_choice": self.tool_choice or "auto",
            "tools": self.tools or [],
            "top_logprobs": self.top_logprobs or 0,
            "top_p": self.top_p,
            "truncation": self.truncation or "disabled",
            "user": self.user,
        }

    def _tools(self) -> list[Tool]:
        """Those beside the input, and those in it."""
        return [*(self.tools or ()), *added(self.input)]

    def _limit(self) -> int | None:
        limit = super()._limit()
        return self.max_output_tokens if limit is None else limit

    def _grammar(self) -> GrammarSpec | None:
        return super()._grammar() or response_grammar((self.text or {}).get("format"))
