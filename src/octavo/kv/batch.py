"""One step's work as arrays: which tokens, of which sequences, at which places of the cache.

A step may hold pieces of several sequences. The arrays are made once per shape and rewritten in
place, so that a recorded step can be replayed: kernels keep pointers to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Batch:
    """T tokens of S sequences. All arrays are int32 and C-contiguous.

    Tokens of one sequence are consecutive and in order. Token t of sequence s stands at position
    n_past[s] + (t - starts[s]), which is also its row in the cache.
    """

    ids: Int32  # (T,)
    positions: Int32  # (T,)
    starts: Int32  # (S + 1,): tokens of sequence s are starts[s]:starts[s+1]
    n_past: Int32  # (S,): tokens of the sequence that are in the cache before this step
    pages: Int32  # (S, P): page table; position p lies in page pages[s, p // PAGE_TOKENS]
    slots: Int32  # (S,): recurrent-state slot that is read
    state_slots: Int32  # (T,): slot that receives the state after token t; -1: none
    outputs: Int32  # (R,): the tokens whose logits are wanted

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def n_sequences(self) -> int:
        return len(self.n_past)

    @classmethod
    def empty(cls, n_tokens: int, n_sequences: int, n_pages: int, n_outputs: int) -> Batch:
        """A batch of that shape, every entry 0 (`state_slots`: -1)."""

        def zeros(*shape: int) -> Int32:
            return np.zeros(shape, np.int32)

        return cls(
            ids=zeros(n_tokens),
            positions=zeros(n_tokens),
            starts=zeros(n_sequences + 1),
            n_past=zeros(n_sequences),
            pages=zeros(n_sequences, n_pages),
            slots=zeros(n_sequences),
            state_slots=np.full(n_tokens, -1, np.int32),
            outputs=zeros(n_outputs),
        )
