"""Finding the texts of special tokens in a prompt, before anything else looks at it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping

_HEAD_CHARS = 2
SHORT_CHARS = 32  # beginnings up to here are kept in sets


class SpecialTexts:
    """A set of token texts to cut out of a prompt whole: longest first, then leftmost.

    Longest first means over the whole prompt: a longer text wins over a shorter one that begins
    before it and overlaps it.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        self._by_head: defaultdict[str, list[str]] = defaultdict(list)
        self._short: dict[str, frozenset[str]] = {}  # beginnings by their head, made when asked for
        for text in ids:
            self._by_head[text[:_HEAD_CHARS]].append(text)
        # The first two characters rule out most places at the speed of `re`.
        heads = sorted(self._by_head, key=len, reverse=True)
        self._heads = re.compile("|".join(map(re.escape, heads))) if heads else None
        for texts in self._by_head.values():
            texts.sort()

    def split(self, text: str) -> Iterator[str | int]:
        """Pieces in order: plain text (never empty), or the id of a special token."""
        position = 0
        for start, length in self._matches(text, 0, len(text)):
            if start > position:
                yield text[position:start]
            position = start + length
            yield self._ids[text[start:position]]
        if position < len(text):
            yield text[position:]

    def find(self, text: str) -> list[tuple[int, int]]:
        """(start, length) of each special text in `text`, in order."""
        return list(self._matches(text, 0, len(text)))

    def _matches(self, text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Like `find`, within text[start:end]."""
        while found := self._next(text, start, end):
            best = found
            while longer := self._longer_inside(text, *best, end):
                best = longer
            if best != found:
                yield from self._matches(text, start, best[0])
            yield best
            start = best[0] + best[1]

    def _next(self, text: str, start: int, end: int) -> tuple[int, int] | None:
        while self._heads and (head := self._heads.search(text, start, end)):
            start = head.start()
            if length := self._longest_at(text, start, end):
                return start, length
            start += 1
        return None

    def _longest_at(self, text: str, start: int, end: int) -> int:
        """Length of the longest special text that begins at `start`; 0 if none does."""
        longest = 1 if text[start : start + 1] in self._ids else 0
        stop = start + _HEAD_CHARS
        while stop <= end and self._begins(part := text[start:stop]):
            if part in self._ids:
                longest = stop - start
            stop += 1
        return longest

    def _longer_inside(
        self, text: str, start: int, length: int, end: int
    ) -> tuple[int, int] | None:
        """The longest match that begins inside this one and is longer; of equals, the first."""
        best = None
        for inner in range(start + 1, start + length):
            if inner + length >= end:
                break
            # Most places fail here: one character more than the best has to fit.
            if not self._begins(text[inner : inner + length + 1]):
                continue
            found = self._longest_at(text, inner, end)
            if found > length:
                best, length = (inner, found), found
        return best

    def _begins(self, part: str) -> bool:
        """Whether a special text begins with `part`, which has two characters or more."""
        head = part[:_HEAD_CHARS]
        if len(part) <= SHORT_CHARS:
            return part in (self._short.get(head) or self._beginnings(head))
        texts = self._by_head.get(head, ())
        place = bisect_left(texts, part)
        return place < len(texts) and texts[place].startswith(part)

    def _beginnings(self, head: str) -> frozenset[str]:
        """The short ones. A vocabulary may have 6000 texts with heads that no prompt has."""
        texts = self._by_head.get(head)
        if texts is None:  # not kept: prompts have any number of heads
            return frozenset()
        self._short[head] = frozenset(
            text[:n] for text in texts for n in range(_HEAD_CHARS, min(len(text), SHORT_CHARS) + 1)
        )
        return self._short[head]
