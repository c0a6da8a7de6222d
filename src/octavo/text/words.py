"""A memory for words that were already turned into ids: natural text repeats itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

_MAX_WORDS = 1 << 16
_MAX_WORD_CHARS = 64


class WordCache(dict[str, tuple[int, ...]]):
    """Word -> ids, filled by `encode_word`. Bounded; safe to share between threads.

    A plain subscript is all that a known word costs, so a long text runs at the speed of `map`.
    """

    def __init__(self, encode_word: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._encode_word = encode_word

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self._encode_word(word)
        if len(word) <= _MAX_WORD_CHARS:
            if len(self) >= _MAX_WORDS:
                self.clear()
            self[word] = ids
        return ids

    def encode(self, words: Iterable[str]) -> list[int]:
        """Ids of the words, one after the other."""
        return list(chain.from_iterable(map(self.__getitem__, words)))
