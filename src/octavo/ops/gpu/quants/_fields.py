"""Reading the fields of blocks: tiles of bytes, half-precision numbers, the place of a span."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def halves(rows, n_blocks, first, BYTES: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr):
    """Spans as halves of blocks of 256: pointers to their blocks (R, S), and which half (1, S).

    `first` is a multiple of SPANS.
    """
    # What is the same for all goes into the rows' pointers, so that other offsets are constants.
    rows += first // 2 * BYTES
    span = first % 2 + tl.arange(0, 1) if SPANS == 1 else tl.arange(0, SPANS)
    block = span // 2
    if not EXACT:
        block = tl.minimum(block, n_blocks - 1 - first // 2)
    return rows[:, None] + block[None, :] * BYTES, (span % 2)[None, :]


@triton.jit
def small_blocks(
    rows,
    n_blocks,
    first,
    PER_SPAN: tl.constexpr,
    BYTES: tl.constexpr,
    SPANS: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Pointers to the blocks of all spans (R, S * PER_SPAN) of a format with small blocks."""
    rows += first * (PER_SPAN * BYTES)
    block = tl.arange(0, SPANS * PER_SPAN)
    if not EXACT:
        block = tl.minimum(block, n_blocks - 1 - first * PER_SPAN)
    return rows[:, None] + block[None, :] * BYTES


@triton.jit
def load_floats(places, k, n, EXACT: tl.constexpr):
    """The numbers at places (R, N); zeros where k (N,) is not below n."""
    if EXACT:
        return tl.load(places)
    else:
        return tl.load(places, mask=(k < n)[None, :], other=0)


@triton.jit
def load_bytes(places, N: tl.constexpr):
    """N bytes from each place (R, S) on -> (R, S, N) uint8."""
    return tl.load(places[:, :, None] + tl.arange(0, N)[None, None, :])


@triton.jit
def load_half(places):
    """The half-precision number at each place, as float32."""
    return tl.load(places.to(tl.pointer_type(tl.float16))).to(tl.float32)


@triton.jit
def load_word(places):
    """The 32-bit word at each place, which is even, as int32."""
    low = tl.load(places.to(tl.pointer_type(tl.uint16))).to(tl.int32)
    high = tl.load((places + 2).to(tl.pointer_type(tl.uint16))).to(tl.int32)
    return low | (high << 16)


@triton.jit
def nibbles(q, RUN: tl.constexpr):
    """4-bit numbers of bytes (R, S, N) in runs of RUN: the low halves of a run come first."""
    return interleave(q & 15, q >> 4, RUN)


@triton.jit
def load_words(places, N: tl.constexpr):
    """N 32-bit words from each place (R, S) on, which is a multiple of 4 -> (R, S, N) uint32.

    A thread takes single words: see VEC in `ops.gpu.quants`.
    """
    i = tl.max_contiguous(tl.arange(0, N), 1)
    return tl.load(places.to(tl.pointer_type(tl.uint32))[:, :, None] + i[None, None, :])


@triton.jit
def load_pairs(places, N: tl.constexpr):
    """N 16-bit words from each place (R, S) on, which is even -> (R, S, N) uint32."""
    i = tl.arange(0, N)[None, None, :]
    return tl.load(places.to(tl.pointer_type(tl.uint16))[:, :, None] + i).to(tl.uint32)


@triton.jit
def field(word, SHIFT: tl.constexpr, WIDTH: tl.constexpr, BIAS: tl.constexpr):
    """WIDTH bits of words from bit SHIFT on, less BIAS, as float32.

    They stay where they are, as mantissa of a power of two so large that they are its ones, and
    the power is taken off. That is one operation on bits and one subtraction; a shift and a
    conversion take longer, as processors do fewer conversions at a time.
    """
    if SHIFT + WIDTH > 23:
        return _low_field(word >> 16, SHIFT - 16, WIDTH, BIAS)
    else:
        return _low_field(word, SHIFT, WIDTH, BIAS)


@triton.jit
def _low_field(word, SHIFT: tl.constexpr, WIDTH: tl.constexpr, BIAS: tl.constexpr):
    MASK: tl.constexpr = ((1 << WIDTH) - 1) << SHIFT
    POWER: tl.constexpr = (150 - SHIFT) << 23
    bits = (word & MASK) | POWER
    return bits.to(tl.float32, bitcast=True) - ((1 << (23 - SHIFT)) + BIAS)


@triton.jit
def word_fields(word, SHIFT: tl.constexpr, WIDTH: tl.constexpr):
    """WIDTH bits from bit SHIFT on of each of the four bytes of words: (R, S, 4 N) float32."""
    even = tl.join(field(word, SHIFT, WIDTH, 0), field(word, SHIFT + 16, WIDTH, 0))
    odd = tl.join(field(word, SHIFT + 8, WIDTH, 0), field(word, SHIFT + 24, WIDTH, 0))
    return tl.join(even, odd).reshape(word.shape[0], word.shape[1], 4 * word.shape[2])


@triton.jit
def pair_bytes(word, BIAS: tl.constexpr):
    """The two lower bytes of words (R, S, N), less BIAS: (R, S, 2 N) float32."""
    both = tl.join(field(word, 0, 8, BIAS), field(word, 8, 8, BIAS))
    return both.reshape(word.shape[0], word.shape[1], 2 * word.shape[2])


@triton.jit
def interleave(low, high, RUN: tl.constexpr):
    """RUN of `low` (R, S, N), RUN of `high`, and so on: (R, S, 2 N)."""
    R: tl.constexpr = low.shape[0]
    S: tl.constexpr = low.shape[1]
    N: tl.constexpr = low.shape[2]
    both = tl.join(low, high).reshape(R, S, N // RUN, RUN, 2).permute(0, 1, 2, 4, 3)
    return both.reshape(R, S, 2 * N)


@triton.jit
def odd_parity(number):
    """1 where a number of 8 bits has an odd count of ones."""
    folded = (number ^ (number >> 4)) & 15
    return (0x6996 >> folded) & 1
