"""SentencePiece vocabularies with scores (`tokenizer.ggml.model` = "llama")."""

from __future__ import annotations

import math
import re
from functools import cached_property

import numpy as np

from octavo.text.merge import merge
from octavo.text.vocabulary import NORMAL, USER_DEFINED, Vocabulary
from octavo.text.words import WordCache

SPACE = "▁"
PREPARE_CHARS = 4000


class PieceEncoder:
    """Text without special tokens -> ids.

    The pair of neighbours whose joined text is the token with the best score is joined first.
    Only ordinary tokens are made this way: no text of a user can become a control token.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.ids
        types = vocabulary.types
        scores = vocabulary.scores if len(vocabulary.scores) else np.zeros(len(types), np.float32)
        # Infinity marks the tokens that text must not become.
        ordinary = (types == NORMAL) | (types == USER_DEFINED)
        self._costs: list[float] = np.where(ordinary, -scores, np.inf).tolist()
        self._bytes = [self._ids.get(f"<0x{byte:02X}>", -1) for byte in range(256)]
        self._unknown = vocabulary.named.get("unknown", -1)
        self._vocabulary = vocabulary
        self._seen_chars = 0
        self._words = WordCache(self._encode_word)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, valid UTF-8 throughout. Spaces are ▁ in the vocabulary."""
        text = text.replace(" ", SPACE)
        self._seen_chars += len(text)
        # The pattern takes longer to make than a few lines to encode; the ids are the same.
        is_little = self._seen_chars < PREPARE_CHARS
        return self._words.encode([text] if is_little else self._word.findall(text))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        for piece in merge(list(word), self._rank):
            token = self._ids.get(piece)
            if token is not None and self._costs[token] != math.inf:
                ids.append(token)
            else:
                ids += (self._bytes[byte] for byte in piece.encode())
        return tuple(self._unknown if token < 0 else token for token in ids)

    @cached_property
    def _word(self) -> re.Pattern[str]:
        return _word_pattern(self._vocabulary)

    def _rank(self, left: str, right: str) -> float | None:
        token = self._ids.get(left + right)
        cost = math.inf if token is None else self._costs[token]
        return None if cost == math.inf else cost


def _word_pattern(vocabulary: Vocabulary) -> re.Pattern[str]:
    """Cuts text where no token can reach across, so that each word can be remembered.

    Such a place is before a ▁ that follows a character which no token has before a ▁.
    """
    joined = "\0".join(vocabulary.ids)
    bridges = {pair[0] for pair in re.findall(f"[^{SPACE}\0]{SPACE}", joined)} | {"\0"}
    inside = "".join(map(re.escape, sorted(bridges)))
    return re.compile(f"(?:{SPACE}+[^{SPACE}]*|[^{SPACE}]+)(?:(?<=[{inside}]){SPACE}+[^{SPACE}]*)*")
