"""One step's work as arrays: which tokens, of which sequences, at which places of the cache.

A step may hold pieces of several sequences. The arrays are made once per shape and rewritten in
place, so that a recorded step can be replayed: kernels keep pointers to them. All arrays of a
batch are views of one buffer, which goes to a device in one copy.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from octavo.record import dataclass

Int32 = NDArray[np.int32]
_ALIGNMENT = 4  # every array starts at a multiple of 16 bytes


def _zeros(n: int) -> Int32:
    return np.zeros(n, np.int32)


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
    buffer: Int32  # all of these, one after another

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def n_sequences(self) -> int:
        return len(self.n_past)

    @classmethod
    def empty(
        cls,
        n_tokens: int,
        n_sequences: int,
        n_pages: int,
        n_outputs: int,
        allocate: Callable[[int], Int32] = _zeros,
    ) -> Batch:
        """A batch of that shape, every entry 0 (`state_slots`: -1).

        `allocate` gives the buffer: n zeros.
        """
        shapes = _shapes(n_tokens, n_sequences, n_pages, n_outputs)
        batch = _views(allocate(sum(map(_room, shapes))), shapes)
        batch.state_slots[:] = -1
        return batch

    def in_buffer(self, buffer: Int32) -> Batch:
        """The batch in another buffer, which holds or will hold a copy of this one's."""
        n_sequences, n_pages = self.pages.shape
        shapes = _shapes(self.n_tokens, n_sequences, n_pages, len(self.outputs))
        return _views(buffer, shapes)


def _shapes(n_tokens: int, n_sequences: int, n_pages: int, n_outputs: int) -> list[tuple[int, ...]]:
    """Of the arrays, in the order of the fields."""
    t, s = (n_tokens,), (n_sequences,)
    return [t, t, (n_sequences + 1,), s, (n_sequences, n_pages), s, t, (n_outputs,)]


def _room(shape: tuple[int, ...]) -> int:
    """Entries of the buffer that an array takes."""
    return -(-prod(shape) // _ALIGNMENT) * _ALIGNMENT


def _views(buffer: Int32, shapes: list[tuple[int, ...]]) -> Batch:
    arrays, at = [], 0
    for shape in shapes:
        arrays.append(buffer[at : at + prod(shape)].reshape(shape))
        at += _room(shape)
    arrays.append(buffer)
    return Batch(*arrays)
