"""Running a model step by step in tests: a file, a cache, and batches made by hand."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np

from octavo import models
from octavo.gguf.reader import open_gguf
from octavo.kv.batch import Batch
from octavo.kv.cache import Cache, pages_of
from octavo.models import Model, Output
from octavo.ops import Array


def load(path: Path, backend: ModuleType) -> Model:
    file = open_gguf(path)
    return models.build(file.metadata, models.FileWeights(file, backend))


class Steps:
    """A model with room for `n_sequences` of `n_tokens`; `past[s]` counts what s has in the cache.

    The state of sequence s is in slot s.
    """

    def __init__(
        self,
        model: Model,
        backend: ModuleType,
        *,
        n_tokens: int = 400,
        n_sequences: int = 1,
        format: str = "f32",
    ) -> None:
        self.model = model
        self._n_pages = pages_of(n_tokens)
        cache = Cache(
            model.state(),
            n_pages=n_sequences * self._n_pages,
            n_slots=n_sequences,
            format=format,
            backend=backend,
        )
        self.layers = cache.layers
        self.past = [0] * n_sequences
        self.drafted = 0

    def run(self, ids: np.ndarray, trace: list[Array] | None = None, sequence: int = 0) -> Output:
        """One piece of one sequence; logits of every token."""
        output = self.model.forward(self.batch({sequence: ids}), self.layers, trace)
        self.past[sequence] += len(ids)
        return output

    def run_together(self, pieces: dict[int, np.ndarray]) -> list[Array]:
        """Pieces of several sequences in one step; the logits of each, all tokens."""
        output = self.model.forward(self.batch(pieces), self.layers)
        for sequence, ids in pieces.items():
            self.past[sequence] += len(ids)
        return np.split(output.logits, np.cumsum([len(ids) for ids in pieces.values()])[:-1])

    def draft(self, ids: np.ndarray, hidden: Array) -> Output:
        """The draft block on the next slots of sequence 0."""
        output = self.model.draft(self.batch({0: ids}, self.drafted), hidden, self.layers)
        self.drafted += len(ids)
        return output

    def batch(self, pieces: dict[int, np.ndarray], past: int | None = None) -> Batch:
        """A batch of these pieces after `past` tokens each, by default what the cache holds."""
        lengths = [len(ids) for ids in pieces.values()]
        n = sum(lengths)
        batch = Batch.empty(n, len(pieces), self._n_pages, n)
        batch.ids[:] = np.concatenate(list(pieces.values()))
        batch.starts[1:] = np.cumsum(lengths)
        batch.outputs[:] = np.arange(n)
        for row, sequence in enumerate(pieces):
            own = slice(batch.starts[row], batch.starts[row + 1])
            batch.n_past[row] = self.past[sequence] if past is None else past
            batch.positions[own] = batch.n_past[row] + np.arange(lengths[row])
            batch.pages[row] = 1 + sequence * self._n_pages + np.arange(self._n_pages)
            batch.slots[row] = sequence
            batch.state_slots[own.stop - 1] = sequence
        return batch
