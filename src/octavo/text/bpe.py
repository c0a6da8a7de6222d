"""Byte-pair encoding as GPT-2 began it (`tokenizer.ggml.model` = "gpt2")."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.byte_alphabet import spell
from octavo.text.pretokenizers import PreTokenizer
from octavo.text.vocabulary import packed


class BytePairEncoder:
    """Text without special tokens -> ids.

    `tokens`: texts in the byte alphabet. `merges`: "left right", best first.
    """

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[str], pretokenizer: PreTokenizer
    ) -> None:
        from octavo import _native  # here, as most of what looks at a tokenizer never encodes

        self._merger = _native.BytePairMerger(
            _native.Strings(*packed(tokens)),
            _native.Strings(*packed(merges)),
            _native.Strings(*packed(list(spell(bytes(range(256)))))),
            pretokenizer.ignore_merges,
        )
        self._pretokenizer = pretokenizer

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, valid UTF-8 throughout. Bytes that the vocabulary lacks are left out."""
        return self._merger.encode(self._pretokenizer.split(text))
