"""What the routes answer, for /openapi.json. The writers beside this file decide.

Only what clients may rely on is named; a test holds every answer against it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """An object with at least these fields."""

    model_config = ConfigDict(protected_namespaces=())


class OpenAIUsage(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


class CalledFunction(Shape):
    name: str
    arguments: str


class OpenAICall(Shape):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Shape):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[OpenAICall] | None = None


class ChatChoice(Shape):
    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: OpenAIUsage


class TextChoice(Shape):
    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]


class TextCompletion(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: OpenAIUsage


class Embedding(Shape):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(Shape):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: dict[str, int]


class ResponseItem(Shape):
    id: str
    type: str


class ResponseObject(Shape):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    model: str
    output: list[ResponseItem]
    usage: dict[str, Any]
    error: None
    incomplete_details: dict[str, str] | None


class ResponseInput(Shape):
    object: Literal["list"]
    data: list[ResponseItem]
    has_more: bool


class ResponseTokens(Shape):
    object: Literal["response.input_tokens"]
    input_tokens: int


class ResponseDeleted(Shape):
    id: str
    object: Literal["response"]
    deleted: bool


class ClaudeUsage(Shape):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class ClaudeBlock(Shape):
    type: Literal["text", "thinking", "tool_use"]


class ClaudeMessage(Shape):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ClaudeBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: ClaudeUsage


class ClaudeCount(Shape):
    input_tokens: int


class NativeCompletion(Shape):
    content: str
    stop: bool
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    truncated: bool
    stop_type: Literal["eos", "limit", "word", "none"]
    stopping_word: str
    generation_settings: dict[str, Any]
    timings: dict[str, float]


class TokenPiece(Shape):
    id: int
    piece: str | list[int]


class TokenIds(Shape):
    tokens: list[int] | list[TokenPiece]


class PlainContent(Shape):
    content: str


class PlainPrompt(Shape):
    prompt: str


class Properties(Shape):
    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    chat_template_caps: dict[str, bool]
    modalities: dict[str, bool]
    pooling_type: Literal["none", "mean", "cls", "last"]
    n_embd: int
    build_info: str
    is_sleeping: bool


class Slot(Shape):
    id: int
    n_ctx: int
    is_processing: bool
    next_token: dict[str, Any]


class SlotDone(Shape):
    id_slot: int


class ModelStatus(Shape):
    value: Literal["unloaded", "loading", "loaded", "closed"]


class ModelEntry(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    status: ModelStatus


class ModelList(Shape):
    object: Literal["list"]
    data: list[ModelEntry]
    has_more: bool


class ModelDone(Shape):
    success: bool
    status: ModelStatus


class DocumentPage(Shape):
    number: int | None
    text: str


class DocumentText(Shape):
    object: Literal["document"]
    name: str
    format: str
    text: str
    characters: int
    pages: list[DocumentPage]
    n_pages: int | None
    truncated: bool


class Health(Shape):
    status: Literal["ok"]
    slots_idle: int
    slots_processing: int
    models: dict[str, ModelStatus]


class Memory(Shape):
    model: str
    places: list[dict[str, Any]]
    fits: bool
    context: int
    process_bytes: int
    machine_bytes: int


class AnswerNow(Shape):
    id: str
    ended_thinking: bool


class OpenAIFault(Shape):
    message: str
    type: str


class OpenAIError(Shape):
    error: OpenAIFault


class ClaudeError(Shape):
    type: Literal["error"]
    error: OpenAIFault
    request_id: str
