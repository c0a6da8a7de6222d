"""Reading the fields of blocks: tiles of bytes, half-precision numbers, the place of a span."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def halves(rows, n_blocks, first, BYTES: tl.constexpr, SPANS: tl.constexpr):
    """Spans as halves of blocks of 256: pointers to their blocks (R, S), and which half (1, S)."""
    span = first + tl.arange(0, SPANS)
    block = tl.minimum(span // 2, n_blocks - 1)
    return rows[:, None] + block[None, :] * BYTES, (span % 2)[None, :]


@triton.jit
def small_blocks(
    rows, n_blocks, first, PER_SPAN: tl.constexpr, BYTES: tl.constexpr, SPANS: tl.constexpr
):
    """Pointers to the blocks of all spans (R, S * PER_SPAN) of a format with small blocks."""
    block = first * PER_SPAN + tl.arange(0, SPANS * PER_SPAN)
    return rows[:, None] + tl.minimum(block, n_blocks - 1)[None, :] * BYTES


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
    """N 32-bit words from each place (R, S) on, which is a multiple of 4 -> (R, S, N) int32.

    A thread takes single words: see VEC in `ops.gpu.quants`.
    """
    i = tl.max_contiguous(tl.arange(0, N), 1)
    return tl.load(places.to(tl.pointer_type(tl.int32))[:, :, None] + i[None, None, :])


@triton.jit
def load_pairs(places, N: tl.constexpr):
    """N 16-bit words from each place (R, S) on, which is even -> (R, S, N) int32."""
    i = tl.arange(0, N)[None, None, :]
    return tl.load(places.to(tl.pointer_type(tl.uint16))[:, :, None] + i).to(tl.int32)


@triton.jit
def _byte(word, SHIFT: tl.constexpr, BIAS: tl.constexpr):
    """A byte of a word, less BIAS, as float32: put into the mantissa of 2^23, which is then taken
    off. Cheaper than a conversion, of which processors do fewer at a time."""
    bits = ((word >> SHIFT) & 255) | 0x4B000000
    return bits.to(tl.float32, bitcast=True) - (8388608.0 + BIAS)


@triton.jit
def word_bytes(word, BIAS: tl.constexpr):
    """The four bytes of words (R, S, N), less BIAS: (R, S, 4 N) float32."""
    even = tl.join(_byte(word, 0, BIAS), _byte(word, 16, BIAS))
    odd = tl.join(_byte(word, 8, BIAS), _byte(word, 24, BIAS))
    return tl.join(even, odd).reshape(word.shape[0], word.shape[1], 4 * word.shape[2])


@triton.jit
def pair_bytes(word, BIAS: tl.constexpr):
    """The two lower bytes of words (R, S, N), less BIAS: (R, S, 2 N) float32."""
    both = tl.join(_byte(word, 0, BIAS), _byte(word, 8, BIAS))
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


@triton.jit
def load_nibbles(places, N: tl.constexpr):
    """N 4-bit numbers from each place (R, S) on, the low half of a byte first: (R, S, N) int32."""
    i = tl.arange(0, N)[None, None, :]
    return (tl.load(places[:, :, None] + i // 2).to(tl.int32) >> (i % 2 * 4)) & 15


@triton.jit
def points_of_eight(table, number):
    """Points of a codebook of eight int8 each, by their numbers (R, S, N): (R, S, N, 8) float32."""
    i = tl.arange(0, 8)[None, None, None, :]
    return tl.load(table + number[:, :, :, None] * 8 + i).to(tl.float32)


@triton.jit
def signed_points(table, number, signs, SPANS: tl.constexpr):
    """`points_of_eight` (R, S, 16), negative where a bit of signs (R, S, 16) is one.

    Gives (R, S, 128): the weights of a span.
    """
    i = tl.arange(0, 8)[None, None, None, :]
    is_negative = ((signs[:, :, :, None] >> i) & 1) == 1
    q = points_of_eight(table, number)
    return tl.where(is_negative, -q, q).reshape(number.shape[0], SPANS, 128)


@triton.jit
def doubled_e2m1(code):
    """4-bit floats, doubled, as float32."""
    # Exponent and mantissa moved to their places in a float32 make a number 2^-126 times as large.
    q = code.to(tl.int32)
    tiny = ((q & 7) << 22) | ((q & 8) << 28)
    return tiny.to(tl.float32, bitcast=True) * 1.7014118346046923e38
