"""How the tokens of several sequences are dealt out to programs.

A sequence is cut into pieces of SIZE tokens, counted through all sequences. How many there are
stands on the device; grids take the most there can be, and programs past the end stop at once.
"""

from __future__ import annotations

import triton
import triton.language as tl


def most_pieces(n_tokens: int, n_sequences: int, size: int) -> int:
    """The most pieces that n tokens of so many sequences may have."""
    if n_sequences == 1:
        return -(-n_tokens // size)
    return min(n_tokens, n_tokens // size + n_sequences)


@triton.jit
def find_piece(starts, n_sequences, index, SIZE: tl.constexpr):
    """The sequence that piece `index` belongs to (-1: none) and its number there."""
    sequence = -1
    piece = 0
    first = 0
    begin = tl.load(starts)
    for s in range(n_sequences):
        end = tl.load(starts + s + 1)
        n = (end - begin + SIZE - 1) // SIZE
        is_here = (index >= first) & (index < first + n)
        sequence = tl.where(is_here, s, sequence)
        piece = tl.where(is_here, index - first, piece)
        first += n
        begin = end
    return sequence, piece


@triton.jit
def find_sequence(starts, n_sequences, token):
    """The sequence that a token belongs to."""
    sequence = 0
    for s in range(n_sequences):
        sequence = tl.where(token >= tl.load(starts + s + 1), s + 1, sequence)
    return sequence
