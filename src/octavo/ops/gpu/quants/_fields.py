"""Reading the fields of blocks: tiles of bytes, half-precision numbers, the place of a span."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.target import IS_KNOWN, cuda_capability_geq

# Byte N of a word put under the upper byte of 2^23, in one instruction, by 0x7440 + N.
_PERMUTE = tl.constexpr("prmt.b32 $0, $1, 0x4B000000, $2;")


@triton.jit
def load_floats(places, k, n_blocks):
    """The numbers (R, K) at the places; zeros where k (K,) is beyond the end of the row."""
    if n_blocks is None:
        numbers = tl.load(places)
    else:
        numbers = tl.load(places, mask=(k < n_blocks)[None, :], other=0)
    return numbers


@triton.jit
def halves(rows, n_blocks, first, BYTES: tl.constexpr, SPANS: tl.constexpr):
    """Spans as halves of blocks of 256: pointers to their blocks (R, S), and which half (1, S)."""
    if n_blocks is None and SPANS % 2 == 0:
        # So written, what differs between a thread's spans is seen to be constant.
        rows += first // 2 * BYTES
        span = tl.arange(0, SPANS)
        block = span // 2
    else:
        span = first + tl.arange(0, SPANS)
        block = span // 2
        if n_blocks is not None:
            block = tl.minimum(block, n_blocks - 1)
    return rows[:, None] + block[None, :] * BYTES, (span % 2)[None, :]


@triton.jit
def small_blocks(
    rows, n_blocks, first, PER_SPAN: tl.constexpr, BYTES: tl.constexpr, SPANS: tl.constexpr
):
    """Pointers to the blocks of all spans (R, S * PER_SPAN) of a format with small blocks."""
    block = tl.arange(0, SPANS * PER_SPAN)
    if n_blocks is None:
        rows += first * PER_SPAN * BYTES
    else:
        block = tl.minimum(first * PER_SPAN + block, n_blocks - 1)
    return rows[:, None] + block[None, :] * BYTES


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
def _lifted(word, N: tl.constexpr):
    """Byte N of a word in the mantissa of 2^23, as int32."""
    bits = ((word >> (8 * N)) & 255) | 0x4B000000
    if IS_KNOWN:  # noqa: SIM102 (the compiler drops a branch by its constant alone)
        if cuda_capability_geq(7, 5):
            bits = tl.inline_asm_elementwise(
                _PERMUTE, "=r,r,r", [word, 0x7440 + N], tl.int32, is_pure=True, pack=1
            )
    return bits


@triton.jit
def _byte(word, N: tl.constexpr, BIAS: tl.constexpr):
    """Byte N of a word, less BIAS, as float32: put into the mantissa of 2^23, which is then taken
    off. Cheaper than a conversion, of which processors do fewer at a time."""
    bits = _lifted(word, N)
    return bits.to(tl.float32, bitcast=True) - (8388608.0 + BIAS)


@triton.jit
def word_bytes(word, BIAS: tl.constexpr):
    """The four bytes of words (R, S, N), less BIAS: (R, S, 4 N) float32."""
    even = tl.join(_byte(word, 0, BIAS), _byte(word, 2, BIAS))
    odd = tl.join(_byte(word, 1, BIAS), _byte(word, 3, BIAS))
    return tl.join(even, odd).reshape(word.shape[0], word.shape[1], 4 * word.shape[2])


@triton.jit
def pair_bytes(word, BIAS: tl.constexpr):
    """The two lower bytes of words (R, S, N), less BIAS: (R, S, 2 N) float32."""
    both = tl.join(_byte(word, 0, BIAS), _byte(word, 1, BIAS))
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
