"""OpenAI's requests, read: bodies -> `ChatRequest`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from octavo.errors import RequestError
from octavo.server.wire.body import Body, SamplingBody, ThinkingBody, stops
from octavo.types import ChatRequest, Message, ToolCall, ToolChoice

MAX_CHOICES = 32
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


class StreamOptions(Body):
    include_usage: bool = False


class ChatBody(SamplingBody, ThinkingBody):
    """`/v1/chat/completions`."""

    model: str | None = None
    messages: list[dict[str, Any]] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    def read(self) -> ChatRequest:
        """What is asked of the model.

        Raises:
            RequestError: a message or a value is wrong; it is named.
        """
        thinking = self.read_thinking()
        n_logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return ChatRequest(
            messages=tuple(read_messages(self.messages)),
            params=self.sampling(n_logprobs),
            tools=tuple(self.tools or ()),
            tool_choice=read_choice(self.tool_choice, self.parallel_tool_calls is not False),
            stop=stops(self.stop),
            thinking=thinking.on,
            thinking_budget=thinking.budget,
            template_args=thinking.template_args,
        )

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


class CompletionBody(SamplingBody):
    """`/v1/completions`."""

    model: str | None = None
    prompt: str | list[int] | list[str] | list[list[int]]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: int | None = None
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
            RequestError: suffix or best_of.
        """
        if self.suffix:
            raise RequestError("suffix is not supported by this model", "Leave it out.")
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
    input: str | list[int] | list[str] | list[list[int]]
    dimensions: Annotated[int, Field(ge=1)] | None = None
    encoding_format: str | None = None

    @property
    def texts(self) -> list[str | list[int]]:
        """Each text or list of ids."""
        given = self.input
        if isinstance(given, str):
            return [given]
        if given and isinstance(given[0], int):
            return [[id for id in given if isinstance(id, int)]]
        return [text for text in given if not isinstance(text, int)]


def read_messages(given: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Messages of a chat.

    Raises:
        RequestError: a role, part or call is not understood; the message is numbered.
    """
    names: dict[str, str] = {}  # of called functions, by the call's id
    for number, message in enumerate(given):
        try:
            read = _message(message)
        except RequestError as error:
            raise RequestError(f"messages[{number}]: {error.message}", error.hint) from None
        names |= {call.id: call.name for call in read.tool_calls}
        if read.role == "tool" and not read.name:
            name = names.get(read.tool_call_id, "")
            read = Message("tool", read.content, tool_call_id=read.tool_call_id, name=name)
        yield read


def read_choice(given: str | Mapping[str, Any] | None, parallel: bool) -> ToolChoice:
    """`tool_choice`: a word, or the one function that has to be called.

    Raises:
        RequestError: another word or form.
    """
    if given is None or isinstance(given, str):
        mode: Any = given or "auto"
        return ToolChoice(mode, parallel=parallel)
    function = given.get("function", given)
    name = function.get("name") if isinstance(function, dict) else None
    if given.get("type") != "function" or not isinstance(name, str) or not name:
        raise RequestError(
            "tool_choice names no function", "Use auto, required, none, or type and function.name."
        )
    return ToolChoice("required", name, parallel)


def _message(given: Mapping[str, Any]) -> Message:
    role = given.get("role")
    if role == "function":
        role = "tool"
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise RequestError(f"role is {role!r}", "Use system, developer, user, assistant or tool.")
    calls = [*(given.get("tool_calls") or ())]
    if old := given.get("function_call"):
        calls.append({"function": old})
    return Message(
        role=role,
        content=text_of(given.get("content")),
        reasoning=_first_text(given, "reasoning_content", "reasoning", "thinking"),
        tool_calls=tuple(_call(call) for call in calls),
        tool_call_id=_first_text(given, "tool_call_id"),
        name=_first_text(given, "name"),
    )


def text_of(content: Any) -> str:
    """The text of a message's content: a string, parts, or nothing.

    Raises:
        RequestError: a part is no text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestError("content is no text", "Use a string or a list of text parts.")
    texts = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
        if kind not in _TEXT_PARTS or not isinstance(text, str):
            raise RequestError(
                f"a part of the content is {kind!r}", "This model reads text only: send text parts."
            )
        texts.append(text)
    return "\n".join(texts)


def _first_text(given: Mapping[str, Any], *names: str) -> str:
    return next((given[n] for n in names if isinstance(given.get(n), str) and given[n]), "")


def _call(given: Any) -> ToolCall:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError("a tool call has no function name", "It belongs in function.name.")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(function["name"], text, _first_text(given, "id"))
