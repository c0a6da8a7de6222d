"""Responses that can be asked for again, and conversations that can go on from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo.server.encoding import encode
from octavo.server.wire.items import Item
from octavo.types import Message

MAX_RESPONSES = 1000
MAX_BYTES = 64 << 20  # of all together, as JSON


@dataclass(frozen=True)
class Stored:
    """One response: as it was answered, its input, and the conversation up to its end.

    `n_bytes` are those of question and answer as JSON, which both have been already: to encode
    them once more would hold up all other streams.
    """

    response: dict[str, Any]
    input: list[Item]
    talk: tuple[Message, ...]
    n_bytes: int


class ResponseStore:
    """The latest responses, bounded in number and size. Used on the event loop alone."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._kept: OrderedDict[str, Stored] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, stored: Stored) -> None:
        """Keep a response; the least recently used ones go where there is no room.

        References in its input become what they mean, so that it needs no other response. What
        several share counts each time, so the bound holds whatever goes.
        """
        meant = [self._meant(item) for item in stored.input]
        changed = [new for old, new in zip(stored.input, meant, strict=True) if new is not old]
        said = sum(len(m.content) + len(m.reasoning) for m in stored.talk)
        n_bytes = stored.n_bytes + said + sum(len(encode(item)) for item in changed)
        stored = replace(stored, input=meant, n_bytes=n_bytes)
        self._kept[stored.response["id"]] = stored
        self._n_bytes += stored.n_bytes
        while len(self._kept) > self._max_responses or self._n_bytes > self._max_bytes:
            _, gone = self._kept.popitem(last=False)
            self._n_bytes -= gone.n_bytes

    def get(self, id: str) -> Stored | None:
        """The response of that id, if it is still there."""
        if id in self._kept:
            self._kept.move_to_end(id)
        return self._kept.get(id)

    def delete(self, id: str) -> bool:
        """Forget it; False: it is not there."""
        gone = self._kept.pop(id, None)
        if gone is not None:
            self._n_bytes -= gone.n_bytes
        return gone is not None

    def item(self, id: str) -> Item | None:
        """The item of that id, in the input or the output of a kept response."""
        return next((item for item in self._items() if item.get("id") == id), None)

    def _meant(self, item: Item) -> Item:
        if item.get("type") != "item_reference":
            return item
        return self.item(str(item.get("id"))) or item

    def _items(self) -> Iterator[Item]:
        for stored in reversed(self._kept.values()):
            yield from stored.response["output"]
            yield from stored.input


def listed(given: str | Sequence[Item] | None, id: str) -> list[Item]:
    """The input of a response as items with ids, as they are listed to clients."""
    items: Sequence[Item] = (
        [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    )
    return [_with_parts(item, f"{id}_{number}") for number, item in enumerate(items)]


def _with_parts(item: Item, id: str) -> Item:
    whole = {"id": f"item_{id}", "type": "message", **item}
    if whole["type"] == "message" and isinstance(whole.get("content"), str):
        kind = "output_text" if whole.get("role") == "assistant" else "input_text"
        whole["content"] = [{"type": kind, "text": whole["content"]}]
        whole.setdefault("status", "completed")
    return whole
