"""Byte-pair encoding as GPT-2 began it (`tokenizer.ggml.model` = "gpt2")."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from octavo.text.byte_alphabet import spell
from octavo.text.merge import merge
from octavo.text.pretokenizers import PreTokenizer
from octavo.text.words import WordCache


class BytePairEncoder:
    """Text without special tokens -> ids.

    `ids`: token text in the byte alphabet -> id. `merges`: "left right", best first.
    """

    def __init__(
        self, ids: dict[str, int], merges: Sequence[str], pretokenizer: PreTokenizer
    ) -> None:
        self._ids = ids
        lines = list(merges)
        lines.reverse()  # so that of equal lines the first counts
        # Neither side holds a space: the line itself is the key of the pair, nothing is cut.
        self._ranks = dict(zip(lines, range(len(lines) - 1, -1, -1), strict=True))
        self._pretokenizer = pretokenizer
        self._words = WordCache(self._encode_word)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, valid UTF-8 throughout."""
        return self._words.encode(self._pretokenizer.split(text))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        spelled = spell(word.encode())
        if self._pretokenizer.ignore_merges and spelled in self._ids:
            return (self._ids[spelled],)
        found = map(self._ids.get, merge(list(spelled), self._rank), repeat(-1))
        # A vocabulary without some byte cannot say it; the format's rule is to leave it out.
        return tuple(token for token in found if token >= 0)

    def _rank(self, left: str, right: str) -> int | None:
        return self._ranks.get(f"{left} {right}")
