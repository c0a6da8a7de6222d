"""Requests at the engine's door: what is wrong is refused there, the rest becomes a `Sequence`."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

import numpy as np
from numpy.typing import NDArray

from octavo.engine.grammar import Vocabulary
from octavo.engine.sampler import Sampler
from octavo.engine.sequence import Sequence
from octavo.engine.stream import Mailbox
from octavo.engine.waiting import start_grammar
from octavo.errors import ContextFullError, RequestError
from octavo.kv.cache import Cache
from octavo.models.config import Config
from octavo.types import SamplingParams


class Intake:
    """Knows what a model takes. Any thread may use it."""

    def __init__(self, config: Config, cache: Cache, vocabulary: Vocabulary | None) -> None:
        self._n_vocab = config.n_vocab
        self._context = cache.context
        self._needs_marks = bool(cache.recurrent)
        self._vocabulary = vocabulary
        self._stop_ids = frozenset(vocabulary.stop_ids if vocabulary else ())
        self._unused_ids = _unused(vocabulary, config.n_vocab)

    def check(self, ids: Many[int]) -> None:
        """Refuse a prompt that cannot be computed.

        Raises:
            RequestError: it is empty or an id is none of the model's.
            ContextFullError: it fills the context.
        """
        n, limit = len(ids), self._context
        if n == 0:
            raise RequestError("the prompt is empty", "Give at least one token.")
        if not 0 <= min(ids) <= max(ids) < self._n_vocab:
            raise RequestError(
                f"the prompt has ids from {min(ids)} to {max(ids)}",
                f"This model's ids are 0 to {self._n_vocab - 1}.",
            )
        if n >= limit:
            raise ContextFullError(
                f"the prompt has {n} tokens and the context holds {limit}, answer included",
                "Shorten the prompt or load the model with a larger context.",
                n_tokens=n,
                limit_tokens=limit,
            )

    def sequence(self, ids: Many[int], params: SamplingParams, marks: Iterable[int]) -> Sequence:
        """A checked prompt, ready for the scheduler.

        Raises:
            RequestError: the grammar is wrong, or there is no vocabulary for it.
        """
        grammar = None
        if params.grammar is not None:
            if self._vocabulary is None:
                raise RequestError("a grammar needs the tokenizer", "Load one with the model.")
            grammar = start_grammar(params.grammar, self._vocabulary)
        forbidden = self._unused_ids
        if params.ignore_eos:
            forbidden = np.union1d(forbidden, np.array(list(self._stop_ids), np.int32))
        prompt = [int(id) for id in ids]
        stop_ids = self._stop_ids | params.stop_ids
        return Sequence(
            ids=prompt,
            params=params,
            marks=tuple(sorted(set(marks))) if self._needs_marks else (),
            sampler=Sampler(params, prompt, forbidden, grammar, stop_ids),
            stop_ids=stop_ids,
            mailbox=Mailbox(),
            context=self._context,
        )


def _unused(vocabulary: Vocabulary | None, n_vocab: int) -> NDArray[np.int32]:
    """Ids that must never be chosen: unused ones, and rows beyond the tokenizer's tokens."""
    if vocabulary is None:
        return np.zeros(0, np.int32)
    padding = range(vocabulary.vocab_size, n_vocab)
    unused = {*(id for id in vocabulary.unused_ids if id < n_vocab), *padding}
    return np.array(sorted(unused), np.int32)
