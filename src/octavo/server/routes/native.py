"""llama.cpp's own API, so that its clients work: completion, tokens, templates, properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.chat import Answer
from octavo.errors import RequestError
from octavo.release import program
from octavo.server import sse
from octavo.server.asking import awake, complete, prompt_of, resident_of
from octavo.server.encoding import Json
from octavo.server.faults import Fault
from octavo.server.record import Record
from octavo.server.resident import Served
from octavo.server.schema import NAMES_MODEL, answers
from octavo.server.telling import Words, tell
from octavo.server.wire.answers import (
    NativeCompletion,
    PlainContent,
    PlainPrompt,
    Properties,
    TokenIds,
)
from octavo.server.wire.body import stops
from octavo.server.wire.native import (
    DetokenizeBody,
    InfillBody,
    NativeBody,
    NativeWriter,
    TemplateBody,
    TokenizeBody,
    settings_of,
)
from octavo.text import formats
from octavo.text.infill import Infill
from octavo.text.split import Event
from octavo.text.template import Template
from octavo.types import SamplingParams

router = APIRouter(tags=["llama.cpp"])


@router.post("/completion", responses=answers(NativeCompletion, streams=True))
async def completion(body: NativeBody, request: Request) -> Response:
    """Continue a text, or ids, or both mixed, as they are; or fill in between two texts."""
    if body.prompt is None and not body.fills_in:
        raise RequestError("prompt: there is none", "Send a text or ids.")
    session = (await awake(request)).session
    if body.prompt is None or body.fills_in:
        return await _complete(_middle(session, body, ()), body, request)
    return await _complete(_prompt(session, body.prompt), body, request)


@router.post("/infill", responses=answers(NativeCompletion, streams=True))
async def infill(body: InfillBody, request: Request) -> Response:
    """What is missing between `input_prefix` and `input_suffix`; `prompt` is how it begins."""
    extra = [(file.filename, file.text) for file in body.input_extra or ()]
    session = (await awake(request)).session
    return await _complete(_middle(session, body, extra), body, request)


def _middle(session: Served, body: NativeBody, extra: Sequence[tuple[str, str]]) -> str | list[int]:
    if not isinstance(body.prompt, str | None):
        raise RequestError("prompt: ids cannot begin what is filled in", "Send a text.")
    tokenizer = session.tokenizer
    before, after = body.input_prefix or "", body.input_suffix or ""
    found = Infill.of(tokenizer)
    return found.prompt(tokenizer, before, after, begun=body.prompt or "", files=extra)


async def _complete(prompt: str | list[int], body: NativeBody, request: Request) -> Response:
    resident, session = resident_of(request), resident_of(request).session
    params = body.sampling(body.n_probs or None)
    feed = await complete(request, [prompt], params, stops(body.stop))
    text = prompt if isinstance(prompt, str) else session.tokenizer.decode(prompt)
    piece = session.tokenizer.piece if body.n_probs else None
    writer = NativeWriter(resident.name, feed.answers[0], text, params, piece)
    if not body.stream:
        await feed.whole(request)
        return Json(writer.whole())
    record = Record.of(request)

    def write(_: int, event: Event | Answer) -> bytes:
        if isinstance(event, Answer):
            return sse.event(writer.last())
        return sse.event(writer.chunk(event, feed.prompt_tokens, feed.n_generated))

    def fail(fault: Fault) -> bytes:
        return sse.event(fault.body(record.path, record.id))

    # This API has no event for a beginning.
    return tell(feed, Words(sse.COMMENT_PING, write, fail), request)


@router.post("/tokenize", responses=answers(TokenIds))
async def tokenize(body: TokenizeBody, request: Request) -> Json:
    """The ids of a text."""
    tokenizer = (await awake(request)).session.tokenizer

    def encode() -> list[int]:
        return tokenizer.encode(
            body.content, parse_special=body.parse_special, add_special=body.add_special
        )

    ids = await anyio.to_thread.run_sync(encode)
    if not body.with_pieces:
        return Json({"tokens": ids})
    return Json({"tokens": [{"id": id, "piece": _piece(tokenizer.piece(id))} for id in ids]})


@router.post("/detokenize", responses=answers(PlainContent))
async def detokenize(body: DetokenizeBody, request: Request) -> Json:
    """The text of ids."""
    return Json({"content": (await awake(request)).session.tokenizer.decode(body.tokens)})


@router.post("/apply-template", responses=answers(PlainPrompt))
async def apply_template(body: TemplateBody, request: Request) -> Response:
    """The text that the model would read for a chat."""
    chat = body.read()
    resident = await awake(request)
    prompt = await anyio.to_thread.run_sync(prompt_of, resident, chat)
    return Json({"prompt": prompt.text})


@router.get("/props", responses=answers(Properties), openapi_extra=NAMES_MODEL)
async def props(request: Request) -> Json:
    """What is loaded and what it can."""
    resident = resident_of(request)
    session = resident.session
    plan, tokenizer, template = session.plan, session.tokenizer, session.template

    def text(id: int | None) -> str:
        return "" if id is None else tokenizer.token_text(id)

    return Json(
        {
            "default_generation_settings": {
                "n_ctx": plan.context,
                "params": settings_of(SamplingParams()),
            },
            "total_slots": plan.sequences,
            "model_alias": resident.name,
            "model_path": plan.model,
            "modalities": {"vision": False, "audio": False},
            "chat_template": template.source if template else "",
            "chat_template_caps": await anyio.to_thread.run_sync(_abilities, template),
            "bos_token": text(tokenizer.bos_id),
            "eos_token": text(tokenizer.eos_id),
            "pooling_type": session.pooling or "none",
            "n_embd": session.n_embd,
            "build_info": program(),
            "is_sleeping": False,
        }
    )


def _prompt(session: Served, given: str | list[int | str]) -> str | list[int]:
    """A text as it is; a list of texts and ids as ids."""
    if isinstance(given, str):
        return given
    ids: list[int] = []
    for part in given:
        if isinstance(part, int):
            ids.append(part)
        else:
            ids += session.tokenizer.encode(part, parse_special=True)
    return ids


def _piece(data: bytes) -> str | list[int]:
    """A token's text; its bytes where they are no text by themselves."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def _abilities(template: Template | None) -> dict[str, Any]:
    if template is None:
        return {}
    return {
        "supports_tools": template.has_tools,
        "supports_tool_calls": formats.of_template(template.source) is not None,
        "supports_system_role": template.habits.system,
        "supports_thinking": template.reasoning_tags is not None,
        "supports_thinking_switch": template.has_thinking_switch,
        "supports_preserve_reasoning": template.keeps_thinking,
    }
