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
    R: tl.constexpr = q.shape[0]
    S: tl.constexpr = q.shape[1]
    N: tl.constexpr = q.shape[2]
    both = tl.join(q & 15, q >> 4)  # (R, S, N, 2)
    both = both.reshape(R, S, N // RUN, RUN, 2).permute(0, 1, 2, 4, 3)
    return both.reshape(R, S, 2 * N)


@triton.jit
def scaled(q, scale):
    """q (R, S, N) times scale (R, S, N / group), flat in a row: (R, S * N) float32."""
    R: tl.constexpr = q.shape[0]
    S: tl.constexpr = q.shape[1]
    N: tl.constexpr = q.shape[2]
    G: tl.constexpr = scale.shape[2]
    grouped = q.reshape(R, S, G, N // G).to(tl.float32) * scale[:, :, :, None]
    return grouped.reshape(R, S * N)


@triton.jit
def scaled_offset(q, scale, offset):
    """As `scaled`, plus offset (R, S, N / group)."""
    R: tl.constexpr = q.shape[0]
    S: tl.constexpr = q.shape[1]
    N: tl.constexpr = q.shape[2]
    G: tl.constexpr = scale.shape[2]
    grouped = q.reshape(R, S, G, N // G).to(tl.float32) * scale[:, :, :, None]
    return (grouped + offset[:, :, :, None]).reshape(R, S * N)


@triton.jit
def odd_parity(number):
    """1 where a number of 8 bits has an odd count of ones."""
    folded = (number ^ (number >> 4)) & 15
    return (0x6996 >> folded) & 1
