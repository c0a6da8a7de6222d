"""Finding the texts of special tokens in a prompt, before anything else looks at it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping


class SpecialTexts:
    """A set of token texts to cut out of a prompt whole: longest first, then leftmost.

    Longest first means over the whole prompt: a longer text wins over a shorter one that begins
    before it and overlaps it.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for text in ids:
            lengths[text[:2]].add(len(text))
        # Two characters rule out most places at the speed of `re`; then lengths are tried.
        self._lengths = {head: sorted(ls, reverse=True) for head, ls in lengths.items()}
        heads = "|".join(re.escape(h) for h in sorted(lengths, key=len, reverse=True))
        self._heads = re.compile(heads) if heads else None

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
        for head in (text[start : start + 2], text[start : start + 1]):
            for length in self._lengths.get(head, ()):
                if start + length <= end and text[start : start + length] in self._ids:
                    return length
        return 0

    def _longer_inside(
        self, text: str, start: int, length: int, end: int
    ) -> tuple[int, int] | None:
        """The longest match that begins inside this one and is longer; of equals, the first."""
        best = None
        for inner in range(start + 1, start + length):
            found = self._longest_at(text, inner, end)
            if found > length:
                best, length = (inner, found), found
        return best
