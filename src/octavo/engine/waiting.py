"""A grammar that waits: the output is free until the answer says a text, then it must match.

So that a model thinks and talks as it likes, and from the moment it opens a tool call cannot
write anything but a call of a declared function.
"""

from __future__ import annotations

import codecs

import numpy as np
from numpy.typing import NDArray

from octavo.engine.grammar import Grammar, TextGrammar, Vocabulary, compile_grammar
from octavo.text.split import Content, ReasoningSplitter
from octavo.types import GrammarSpec, Trigger


def start_grammar(spec: GrammarSpec, vocabulary: Vocabulary) -> Grammar:
    """A grammar that begins where its trigger says.

    Raises:
        RequestError: the schema, expression or grammar is wrong; the message says where.
    """
    inner = compile_grammar(spec, vocabulary)
    return inner if spec.trigger is None else WaitingGrammar(spec.trigger, inner, vocabulary)


class WaitingGrammar:
    """`inner` behind a trigger. Implements `Grammar`."""

    def __init__(self, trigger: Trigger, inner: TextGrammar, vocabulary: Vocabulary) -> None:
        self._trigger = trigger
        self._inner = inner
        self._vocabulary = vocabulary
        self._accepted: list[int] = []
        self._n_inner = 0  # tokens that the inner grammar was fed
        self._listen_anew()

    @property
    def is_complete(self) -> bool:
        return self._is_on and self._inner.is_complete

    def mask(self, row: NDArray[np.float32]) -> int | None:
        return self._inner.mask(row) if self._is_on else None

    def accept(self, token: int) -> None:
        if self._is_on:
            self._inner.accept(token)
            self._n_inner += 1
        else:
            self._listen(token)
        self._accepted.append(token)

    def rollback(self, n: int) -> None:
        kept = self._accepted[: len(self._accepted) - n]
        self._inner.rollback(self._n_inner)
        self._accepted, self._n_inner = [], 0
        self._listen_anew()
        for token in kept:
            self.accept(token)

    def forced(self) -> list[int]:
        return self._inner.forced() if self._is_on else []

    def _listen_anew(self) -> None:
        trigger = self._trigger
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._reasoning = ReasoningSplitter(trigger.reasoning_tags, trigger.in_reasoning)
        self._heard = ""
        self._is_on = not trigger.text and not self._reasoning.is_open

    def _listen(self, token: int) -> None:
        """Note free text, and begin where the trigger is said."""
        text = self._decoder.decode(self._vocabulary.piece(token))
        parts = self._reasoning.push(text)
        self._heard += "".join(part.text for part in parts if isinstance(part, Content))
        trigger = self._trigger
        if not trigger.text:
            if not self._reasoning.is_open:
                self._begin(self._heard.lstrip())
            return
        if trigger.only_first:
            self._heard = self._heard.lstrip()
            if self._heard.startswith(trigger.text):
                self._begin(self._heard.removeprefix(trigger.text))
            return
        _, found, rest = self._heard.partition(trigger.text)
        if found:
            self._begin(rest)
        self._heard = rest if found else self._heard[-len(trigger.text) :]

    def _begin(self, said: str) -> None:
        """The trigger was said, and in the same token already what follows.

        If that fits no grammar the output stays free: it cannot be unsaid.
        """
        n = self._inner.accept_text(said) if said else 0
        self._is_on = n >= 0
        self._n_inner = max(n, 0)
