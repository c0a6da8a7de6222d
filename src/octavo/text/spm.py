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
            *vocabulary.packed, _ranks(vocabulary), np.array(bytes_, np.int32)
        )

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, valid UTF-8 throughout. Spaces are ▁ in the vocabulary."""
        return self._merger.encode(text.replace(" ", SPACE))


def _ranks(vocabulary: Vocabulary) -> np.ndarray:
    """(n,) uint32: the place of each token's score, best first; equal scores share one."""
    types = vocabulary.types
    scores = vocabulary.scores if len(vocabulary.scores) else np.zeros(len(types), np.float32)
    ranks = np.unique(-scores, return_inverse=True)[1].astype(np.uint32)
    ordinary = (types == NORMAL) | (types == USER_DEFINED)
    return np.where(ordinary & (scores != -np.inf), ranks, _NEVER)
