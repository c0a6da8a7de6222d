"""OpenAI's API: chats, completions and embeddings."""

from __future__ import annotations

import base64
import threading
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.chat import Answer
from octavo.server import sse
from octavo.server.asking import ask, awake, complete, resident_of
from octavo.server.encoding import Json
from octavo.server.faults import Fault
from octavo.server.feed import Feed
from octavo.server.leaving import while_here
from octavo.server.record import Record
from octavo.server.schema import answers
from octavo.server.telling import Words, tell
from octavo.server.wire.answers import ChatCompletion, Embeddings, TextCompletion
from octavo.server.wire.body import stops
from octavo.server.wire.openai import ChatBody, CompletionBody, EmbeddingBody
from octavo.server.wire.openai_answer import ChatWriter, TextWriter
from octavo.text.infill import Infill
from octavo.text.split import Event
from octavo.text.tokenizer import Tokenizer

router = APIRouter(tags=["OpenAI"])


@router.post("/v1/chat/completions", responses=answers(ChatCompletion, streams=True))
@router.post("/chat/completions", include_in_schema=False)
async def chat_completions(body: ChatBody, request: Request) -> Response:
    """Answer a chat."""
    chat, n = body.read(), body.n or 1
    feed = await ask(request, chat, n)
    resident = resident_of(request)
    writer = ChatWriter(
        resident.name,
        feed.answers,
        piece=resident.session.tokenizer.piece if body.logprobs else None,
        streamed=bool(body.stream),
        with_usage=body.wants_usage,
    )
    return await _respond(feed, writer, request, bool(body.stream))


@router.post("/v1/completions", responses=answers(TextCompletion, streams=True))
@router.post("/completions", include_in_schema=False)
async def completions(body: CompletionBody, request: Request) -> Response:
    """Continue texts as they are."""
    body.check()
    prompts, n, params = body.prompts, body.n or 1, body.sampling(body.n_logprobs)
    resident = await awake(request)
    tokenizer = resident.session.tokenizer
    scores = bool(body.echo) and body.n_logprobs is not None and not body.suffix
    params = replace(params, prompt_logprobs=scores)
    texts = [p if isinstance(p, str) else tokenizer.decode(p) for p in prompts]
    if body.suffix:
        found = Infill.of(tokenizer)
        prompts = [found.prompt(tokenizer, text, body.suffix) for text in texts]
    feed = await complete(request, prompts, params, stops(body.stop), n)
    writer = TextWriter(
        resident.name,
        feed.replies,
        echoes=[text if body.echo else "" for text in texts for _ in range(n)],
        n_hidden=[_n_hidden(p, tokenizer) for p in prompts for _ in range(n)] if scores else (),
        n_prompts=len(prompts),
        piece=tokenizer.piece if body.n_logprobs is not None else None,
        with_usage=bool(body.stream_options and body.stream_options.include_usage),
    )
    return await _respond(feed, writer, request, bool(body.stream))


@router.post("/v1/embeddings", responses=answers(Embeddings))
@router.post("/embeddings", include_in_schema=False)
async def embeddings(body: EmbeddingBody, request: Request) -> Response:
    """Turn texts into vectors of length 1."""
    resident, texts = await awake(request), body.texts
    session = resident.session
    encode = session.tokenizer.encode

    def compute(cancelled: threading.Event) -> tuple[int, list[Any]]:
        ids = [encode(t, add_special=True) if isinstance(t, str) else t for t in texts]
        rows = session.embed(ids, body.dimensions, cancelled=cancelled).astype("<f4")
        as_text = body.encoding_format == "base64"
        vectors = [base64.b64encode(r).decode() if as_text else r.tolist() for r in rows]
        return sum(map(len, ids)), vectors

    resident.admit()
    try:
        n_tokens, vectors = await while_here(request, compute)
    finally:
        resident.release()
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    Record.of(request).fields["prompt_tokens"] = n_tokens
    return Json({"object": "list", "data": data, "model": resident.name, "usage": usage})


def _n_hidden(prompt: str | list[int], tokenizer: Tokenizer) -> int:
    """Tokens of a prompt that are not in its text: BOS."""
    return len(tokenizer.with_bos([])) if isinstance(prompt, str) else 0


async def _respond(
    feed: Feed, writer: ChatWriter | TextWriter, request: Request, stream: bool
) -> Response:
    if not stream:
        await feed.whole(request)
        return Json(writer.whole())
    record = Record.of(request)

    def write(index: int, event: Event | Answer) -> bytes:
        if isinstance(event, Answer):
            return sse.event(writer.last(index, event))
        chunk = writer.chunk(index, event)
        return b"" if chunk is None else sse.event(chunk)

    def fail(fault: Fault) -> bytes:
        return sse.event(fault.body(record.path, record.id)) + sse.DONE

    def end() -> bytes:
        counts = writer.usage()
        return sse.DONE if counts is None else sse.event(counts) + sse.DONE

    begin = b"".join(sse.event(writer.first(index)) for index in range(len(feed.replies)))
    return tell(feed, Words(begin, write, fail, end), request)
