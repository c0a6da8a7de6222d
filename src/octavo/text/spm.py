"""SentencePiece vocabularies with scores (`tokenizer.ggml.model` = "llama")."""

from __future__ import annotations

import numpy as np

from octavo.text.vocabulary import NORMAL, USER_DEFINED, Vocabulary

SPACE = "▁"
_NEVER = np.uint32(2**32 - 1)


class PieceEncoder:
    """Text without special tokens -> ids.

    The pair of neighbours whose joined text is the token with the best score is joined first.
    Only ordinary tokens are made this way: no text of a user can become a control token.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        from octavo import _native  # here, as most of what looks at a tokenizer never encodes

        unknown = vocabulary.named.get("unknown", -1)
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        known = vocabulary.find(names)
        bytes_ = [known.get(name, unknown) for name in names]
        self._merger = _native.ScoreMerger(
            _native.Strings(*vocabulary.packed), ranks(vocabulary), np.array(bytes_, np.int32)
        )

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, valid UTF-8 throughout. Spaces are ▁ in the vocabulary."""
        return self._merger.encode(text.replace(" ", SPACE))


def ranks(vocabulary: Vocabulary) -> np.ndarray:
    """(n,) uint32: the lower the better a token's score; equal scores share one."""
    types = vocabulary.types
    scores = vocabulary.scores if len(vocabulary.scores) else np.zeros(len(types), np.float32)
    # The bits of floats order like the floats once those of negative ones are turned round; adding
    # zero makes minus zero the other one. Sorting would take ten times as long.
    bits = (0.0 - scores.astype(np.float32)).view(np.uint32)
    places = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    ordinary = (types == NORMAL) | (types == USER_DEFINED)
    return np.where(ordinary & (scores != -np.inf), places, _NEVER)
