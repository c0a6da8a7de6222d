"""Ids to text as they come: no character is ever cut, none is held longer than it must be."""

from __future__ import annotations

import codecs

from octavo.text.tokenizer import Tokenizer


class Detokenizer:
    """One stream of tokens. Joined, what it returns is what `Tokenizer.decode` returns.

    `hidden`: ids that have no text here.
    """

    def __init__(self, tokenizer: Tokenizer, hidden: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._strip = tokenizer.space_prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that is complete with this token; often "", when it ends inside a character.

        Raises:
            RequestError: no such id.
        """
        piece = self._tokenizer.piece(token)
        if token in self._hidden:
            return ""
        if self._strip:
            piece, self._strip = piece.removeprefix(b" "), False
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """What was held back, as U+FFFD; "" if the text ends with a whole character."""
        return self._decoder.decode(b"", final=True)
