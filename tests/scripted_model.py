"""A model whose answers are written down: for tests of what goes on around a model.

It has one attention layer and no weights. `after(id, position)` says which id follows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from octavo.engine.engine import Engine
from octavo.kv.batch import Batch
from octavo.kv.cache import Cache
from octavo.kv.layers import CacheLayer
from octavo.kv.prefix import PrefixStore
from octavo.kv.state import AttentionSpec, LayerSpec
from octavo.models import Output
from octavo.models.config import Config, Rope
from octavo.ops import Array, reference

Rule = Callable[[int, int], int]

SPEC = AttentionSpec(n_kv_heads=1, key_dim=32, value_dim=32, scale=1.0)


class ScriptedModel:
    """Implements `models.Model`. `log` has the (ids, positions) of each step.

    Before each step it takes a permit: `hold()` withdraws all, `allow(n)` gives n, `free()` any
    number. A token in `poison` makes the step fail; one in `spoilt` gives logits that are NaN.
    """

    def __init__(
        self,
        after: Rule,
        n_vocab: int = 64,
        poison: Iterable[int] = (),
        spoilt: Iterable[int] = (),
        pooling: str = "",
    ) -> None:
        self.config = Config(
            architecture="scripted",
            n_layers=1,
            n_mtp=0,
            n_embd=4,
            n_vocab=n_vocab,
            context_length=4096,
            n_heads=1,
            n_ff=1,
            norm_eps=1e-6,
            rope=Rope(n_dims=2, base=1e4),
            layers=(SPEC,),
            pooling=pooling,
        )
        self.log: list[tuple[list[int], list[int]]] = []
        self._after = after
        self._poison = set(poison)
        self._spoilt = set(spoilt)
        self._held = False
        self._permits = threading.Semaphore(0)
        self._stepped = threading.Condition()

    def state(self) -> tuple[LayerSpec, ...]:
        return self.config.layers

    def forward(
        self,
        batch: Batch,
        layers: Sequence[CacheLayer],
        trace: list[Array] | None = None,
        *,
        every_hidden: bool = True,
    ) -> Output:
        if self._held:
            assert self._permits.acquire(timeout=30), "the test gave no permit"
        ids, positions = batch.ids.tolist(), batch.positions.tolist()
        if self._poison & set(ids):
            raise ValueError("a poisoned token")
        hidden = np.repeat(batch.ids[:, None], self.config.n_embd, 1).astype(np.float32)
        logits = np.zeros((len(batch.outputs), self.config.n_vocab), np.float32)
        for row, t in zip(logits, batch.outputs, strict=True):
            row[self._after(ids[t], positions[t])] = 10
            if ids[t] in self._spoilt:
                row[:] = np.nan
        with self._stepped:
            self.log.append((ids, positions))
            self._stepped.notify_all()
        return Output(hidden if every_hidden else hidden[batch.outputs], logits)

    def draft(self, batch: Batch, hidden: Array, layers: Sequence[CacheLayer]) -> Output:
        raise NotImplementedError

    def hold(self) -> None:
        """Let no step run without a permit."""
        self._held = True

    def allow(self, n_steps: int) -> None:
        """Let n more steps run, and wait until they have."""
        with self._stepped:
            goal = len(self.log) + n_steps
            self._permits.release(n_steps)
            assert self._stepped.wait_for(lambda: len(self.log) >= goal, timeout=30)

    def free(self) -> None:
        """Let every step run from now on."""
        self._held = False
        self._permits.release(1000)


def counting(id: int, position: int) -> int:
    """The next id: 1 after 0, 2 after 1; at 60 it goes back to 1."""
    return id % 60 + 1


def saying(answer: Sequence[int], n_prompt: int, stop: int = 0) -> Rule:
    """After a prompt of n_prompt tokens: this answer, then the stop token."""
    words = [*answer, stop]
    return lambda id, position: words[min(position - n_prompt + 1, len(words) - 1)]


class LetterVocabulary:
    """One token a byte from 1 on; token 0 ends, tokens from 257 on are unused."""

    stop_ids = frozenset({0})
    control_ids = frozenset({0})

    def __init__(self, vocab_size: int = 64) -> None:
        self.vocab_size = vocab_size
        self.unused_ids = frozenset(range(257, vocab_size))

    def piece(self, token: int) -> bytes:
        return bytes([token - 1]) if 0 < token < 257 else b""

    def pieces(self) -> list[bytes]:
        return [self.piece(token) for token in range(self.vocab_size)]

    def encode(self, text: str) -> list[int]:
        return [byte + 1 for byte in text.encode()]


def make_cache(layers: Sequence[LayerSpec], context: int = 256, n_pages: int = 64) -> Cache:
    return Cache(
        layers, n_pages=n_pages, n_slots=8, format="f32", backend=reference, context=context
    )


def make_engine(
    model: ScriptedModel, context: int = 256, n_pages: int = 64, **options: Any
) -> Engine:
    """An engine on a scripted model; token 0 ends."""
    cache = make_cache(model.state(), context, n_pages)
    options.setdefault("vocabulary", LetterVocabulary(model.config.n_vocab))
    options.setdefault("prefixes", PrefixStore(cache, budget_bytes=1 << 24, n_snapshots=4))
    return Engine(model, cache, **options)
