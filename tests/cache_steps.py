"""Steps over a paged cache and over recurrent states, for the kernel tests: batches and layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np

from octavo.kv import formats
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.kv.state import PAGE_TOKENS, AttentionSpec, RecurrentSpec
from octavo.ops.weight import RecurWeights, Weight

Piece = tuple[int, int]  # tokens in the cache before the step, tokens of the step


def make_batch(
    pieces: Sequence[Piece],
    pages: np.ndarray | None = None,
    slots: Sequence[int] | None = None,
    state_slots: Sequence[int] | None = None,
) -> Batch:
    """A step of these pieces, one a sequence. By default sequence s reads slot s and stores its
    last state there."""
    n_new = [n for _, n in pieces]
    n_tokens = sum(n_new)
    batch = Batch.empty(n_tokens, len(pieces), 1 if pages is None else pages.shape[1], 0)
    if pages is not None:
        batch.pages[:] = pages
    batch.starts[1:] = np.cumsum(n_new)
    batch.n_past[:] = [n for n, _ in pieces]
    batch.slots[:] = range(len(pieces)) if slots is None else slots
    if state_slots is not None:
        batch.state_slots[:] = state_slots
    else:
        for s, n in enumerate(n_new):
            if n:
                batch.state_slots[batch.starts[s + 1] - 1] = batch.slots[s]
    return batch


def scattered_pages(n_sequences: int, n_pages: int, seed: int = 3) -> np.ndarray:
    """A page table (S, P) whose pages lie in no order."""
    order = np.random.default_rng(seed).permutation(n_sequences * n_pages)
    return order.reshape(n_sequences, n_pages).astype(np.int32)


def attention_layer(
    spec: AttentionSpec, name: str, n_pages: int, backend: ModuleType
) -> AttentionLayer:
    """Pages full of ones, which are NaN in half and single precision: nobody may read them."""
    data = np.full((n_pages, formats.page_bytes(name, spec)), 0xFF, np.uint8)
    return AttentionLayer(spec, name, data, backend)


def copied(layer: AttentionLayer, backend: ModuleType) -> AttentionLayer:
    return replace(layer, data=layer.data.copy(), backend=backend)


def recurrent_layer(spec: RecurrentSpec, n_slots: int, backend: ModuleType) -> RecurrentLayer:
    """Slots that hold something, so that a new sequence has to ignore it."""
    rng = np.random.default_rng(5)
    return RecurrentLayer(
        spec,
        rng.standard_normal((n_slots, *spec.conv_shape), np.float32),
        rng.standard_normal((n_slots, *spec.state_shape), np.float32) * np.float32(0.1),
        backend,
    )


def recur_weights(spec: RecurrentSpec, backend: ModuleType) -> RecurWeights:
    rng = np.random.default_rng(11)
    n_heads = spec.n_value_heads

    def weight(name: str, values: np.ndarray) -> Weight:
        values = np.ascontiguousarray(values, np.float32)
        return Weight(name, "f32", values.shape, values.reshape(-1).view(np.uint8), backend)

    return RecurWeights(
        conv=weight("conv", rng.standard_normal((spec.n_channels, spec.conv_kernel)) * 0.5),
        a=weight("a", -np.exp(rng.uniform(-3, 1, n_heads))),
        dt=weight("dt", rng.standard_normal(n_heads)),
        norm=weight("norm", rng.uniform(0.5, 1.5, spec.value_dim)),
        eps=1e-6,
    )


def pages_for(pieces: Sequence[Piece]) -> int:
    """Pages that the longest of these sequences needs."""
    return max((-(-(past + new) // PAGE_TOKENS) for past, new in pieces), default=1) or 1
