"""From replies to a stream of events: what all API families do in the same way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastapi import Request

from octavo.chat import Answer
from octavo.errors import OctavoError
from octavo.server import sse
from octavo.server.faults import Fault, fault_of
from octavo.server.feed import Feed
from octavo.server.record import Record
from octavo.text.split import Event


@dataclass(frozen=True)
class Words:
    """How an API says it: each gives the bytes to send, b"" if it has no words for that.

    `write` gets the number of a reply and an event of it; its `Answer` is the last one.
    """

    begin: bytes  # sent at once, however long the prompt takes
    write: Callable[[int, Event | Answer], bytes]
    fail: Callable[[Fault], bytes]
    end: Callable[[], bytes] = bytes
    ping: bytes = sse.COMMENT_PING


def tell(feed: Feed, words: Words, request: Request) -> sse.EventStream:
    """The answer to a request whose replies are streamed."""
    record = Record.of(request)

    def gone() -> None:
        record.finish = "gone"

    events = _events(feed, words, record)
    return sse.EventStream(events, on_end=feed.cancel, on_gone=gone, ping=words.ping)


async def _events(feed: Feed, words: Words, record: Record) -> AsyncIterator[bytes]:
    """What has come by now is sent together."""
    yield words.begin
    is_over = False
    while not is_over:
        await feed.news()
        parts = []
        try:
            for index, event in feed.ready():
                parts.append(words.write(index, event))
            if feed.is_over:
                is_over = True
                record.add(feed.answers)
                parts.append(words.end())
        except OctavoError as error:
            is_over = True
            record.finish = "error"
            parts.append(words.fail(fault_of(error)))
        if any(parts):
            yield b"".join(parts)
