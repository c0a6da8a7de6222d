"""From a request to the model's replies: what all API families do in the same way."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from fastapi import Request

from octavo.chat import Reply
from octavo.engine.grammar import compile_grammar
from octavo.errors import UnsupportedError
from octavo.server.feed import Feed, begin
from octavo.server.fleet import Fleet
from octavo.server.record import Record
from octavo.server.resident import Resident, Served
from octavo.text.template import Prompt
from octavo.types import ChatRequest, SamplingParams


def fleet_of(request: Request) -> Fleet:
    """All models of the application."""
    fleet: Fleet = request.app.state.fleet
    return fleet


def resident_of(request: Request) -> Resident:
    """The model that the request is for."""
    resident: Resident | None = getattr(request.state, "resident", None)
    return resident or fleet_of(request).first


async def choose_model(request: Request) -> AsyncIterator[None]:
    """Find the model that a request names, in its body or its query, before its route runs.

    Raises:
        RefusedError: no model is called so.
    """
    named = await _named(request) if request.method == "POST" else None
    found = fleet_of(request).find(named or request.query_params.get("model"))
    request.state.resident = found
    with contextlib.ExitStack() as held:
        request.state.held = held
        yield


async def awake(request: Request) -> Resident:
    """The model that a request is for, loaded if it was not; it stays as long as the request.

    For routes that need it, when it is clear that the request can be understood: one that is
    refused loads nothing.
    """
    resident = resident_of(request)
    request.state.held.enter_context(resident.held())
    await fleet_of(request).awaken(resident)
    return resident


async def _named(request: Request) -> str | None:
    try:
        body = await request.json()  # the route reads the same, it is parsed once
    except (ValueError, RecursionError):  # the route says what is wrong with it
        return None
    name = body.get("model") if isinstance(body, dict) else None
    return name if isinstance(name, str) else None


def running_of(request: Request) -> WeakValueDictionary[str, Feed]:
    """The chats that are being answered, by the id of their request."""
    running: WeakValueDictionary[str, Feed] = request.app.state.running
    return running


async def ask(request: Request, chat: ChatRequest, n: int = 1) -> Feed:
    """Start `n` answers to a chat.

    Raises:
        OctavoError, RefusedError: it cannot be served; nothing has been sent.
    """
    record, resident = Record.of(request), await awake(request)

    def start(session: Served) -> list[Reply]:
        asked = _fit(chat, resident)
        record.turn = resident.conversations.begin(asked)
        return [session.ask(replace(asked, params=p)) for p in choices(asked.params, n)]

    feed = await begin(resident, n, start)
    _cancel_with(request, feed)
    if record.turn is not None:
        feed.on_answer = record.turn.end
    running_of(request)[record.id] = feed
    return feed


async def complete(
    request: Request,
    prompts: Sequence[str | Sequence[int]],
    params: SamplingParams,
    stop: Sequence[str] = (),
    n: int = 1,
) -> Feed:
    """Start `n` continuations of each prompt, those of the first prompt first. Errors as `ask`."""

    def start(session: Served) -> list[Reply]:
        each = choices(params, n)
        return [session.complete(prompt, p, stop) for prompt in prompts for p in each]

    feed = await begin(await awake(request), n * len(prompts), start)
    _cancel_with(request, feed)
    return feed


def _cancel_with(request: Request, feed: Feed) -> None:
    """A route that fails before anybody reads the feed leaves nothing running."""

    def end(kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            feed.cancel()

    request.state.held.push(end)


def choices(params: SamplingParams, n: int) -> list[SamplingParams]:
    """`n` of them that differ: a given seed counts up."""
    if params.seed is None:
        return [params] * n
    return [replace(params, seed=(params.seed + i) % 2**64) for i in range(n)]


def prompt_of(resident: Resident, chat: ChatRequest) -> Prompt:
    """What the model would read.

    Raises:
        UnsupportedError, TemplateError: there is no template, or it refuses the messages.
        RefusedError: the model is not loaded.
    """
    session = resident.session
    if session.template is None:
        raise UnsupportedError("The model's file has no chat template", "Use a text prompt.")
    if chat.tool_choice.mode == "none":
        chat = replace(chat, tools=())
    return session.template.prompt(_fit(chat, resident))


def _fit(chat: ChatRequest, resident: Resident) -> ChatRequest:
    """The request for this model, rendered as it was before.

    A model that does not think gets no wish about it: agents send one to every model. A grammar
    that waits for the end of thinking is tried now, while a wrong one can still be told.
    """
    session = resident.session
    chat = resident.conversations.steady(chat, session.template)
    tags = session.template.reasoning_tags if session.template else None
    if tags is None:
        return replace(chat, thinking=None, thinking_budget=None)
    if chat.params.grammar is not None:
        compile_grammar(chat.params.grammar, session.tokenizer)
    return chat
