"""int8 with a half-precision scale for every 32 dims of a position: half the bytes of f16.

The layout is told in `kv/formats/q8_0.py`: four dims of a key, and four positions of values, lie
together, in one word.
"""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.kv.state import PAGE_TOKENS

OPERAND = tl.float16
POSITIONS = tl.constexpr(PAGE_TOKENS)
GROUP = tl.constexpr(32)  # dims that share a scale
SCALE_BYTES = tl.constexpr(2 * PAGE_TOKENS)  # of one group
KEY_GROUP_BYTES = tl.constexpr(2 * PAGE_TOKENS + 32 * PAGE_TOKENS)
ROUND = tl.constexpr(12582912.0)  # 1.5 * 2^23: adding it rounds to a whole number, ties to even


def key_bytes(dim: int) -> int:
    """Bytes of one head's keys in a page."""
    return -(-dim // 32) * 2 * PAGE_TOKENS + -(-dim // 4) * 4 * PAGE_TOKENS


def value_bytes(dim: int) -> int:
    """Bytes of one head's values in a page."""
    return -(-dim // 32) * 2 * PAGE_TOKENS + -(-dim // 16) * 16 * PAGE_TOKENS


@triton.jit
def _halves(words, PLACE: tl.constexpr):
    """Byte PLACE of each word, a signed number, as half precision."""
    # 0x6400 is 1024, and the last bits of what lies above count ones.
    bits = ((words >> (8 * PLACE)) & 0xFF) ^ 0x80 | 0x6400
    return bits.to(tl.int16).to(tl.float16, bitcast=True) - 1152.0


@triton.jit
def _unpack(words, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """words (ROWS, COLUMNS) of four numbers each -> (4 ROWS, COLUMNS), half precision."""
    even = tl.join(_halves(words, 0), _halves(words, 2))
    odd = tl.join(_halves(words, 1), _halves(words, 3))
    fours = tl.permute(tl.join(even, odd), (0, 2, 3, 1))
    return tl.reshape(fours, (4 * ROWS, COLUMNS))


@triton.jit
def load_keys(block, first, DIM: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    fours = tl.arange(0, D // 4)[:, None]
    groups = tl.arange(0, D // GROUP)[:, None]
    positions = (first + tl.arange(0, N))[None, :]
    words_at = (block + SCALE_BYTES + fours // 8 * KEY_GROUP_BYTES).to(tl.pointer_type(tl.int32))
    words_at += fours % 8 * POSITIONS + positions
    scales_at = (block + groups * KEY_GROUP_BYTES).to(tl.pointer_type(tl.float16)) + positions
    if D == DIM:
        words = tl.load(words_at)
        scales = tl.load(scales_at)
    else:
        words = tl.load(words_at, mask=fours * 4 < DIM, other=0)
        scales = tl.load(scales_at, mask=groups * GROUP < DIM, other=0.0)
    numbers = tl.reshape(_unpack(words, D // 4, N), (D // GROUP, GROUP, N))
    return tl.reshape(numbers * scales[:, None, :], (D, N))


@triton.jit
def load_values(block, first, n, DIM: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    N_GROUPS: tl.constexpr = (DIM + GROUP - 1) // GROUP
    STORED: tl.constexpr = (DIM + 15) // 16 * 16
    fours = (first // 4 + tl.arange(0, N // 4))[:, None]
    dims = tl.arange(0, D)[None, :]
    words_at = (block + N_GROUPS * SCALE_BYTES).to(tl.pointer_type(tl.int32)) + fours * STORED
    groups = tl.arange(0, D // GROUP)[:, None]
    positions = (first + tl.arange(0, N))[None, :]
    scales_at = block.to(tl.pointer_type(tl.float16)) + groups * POSITIONS + positions
    if D == DIM:
        words = tl.load(words_at + dims)
        scales = tl.load(scales_at)
    else:
        words = tl.load(words_at + dims, mask=dims < DIM, other=0)
        scales = tl.load(scales_at, mask=groups < N_GROUPS, other=0.0)
    # Not a mask of the load, which would be one number at a time.
    scales = tl.where(positions < n, scales, 0.0)
    numbers = tl.reshape(_unpack(words, N // 4, D), (N, D // GROUP, GROUP))
    return tl.reshape(numbers * tl.trans(scales)[:, :, None], (N, D))


@triton.jit
def quantise(x, N: tl.constexpr, D: tl.constexpr):
    """x (N, D) float32 -> scales (N, D / 32) half, numbers (N, D) int8."""
    parts = tl.reshape(x, (N, D // GROUP, GROUP))
    largest = tl.max(tl.abs(parts), axis=2)
    scales = tl.math.div_rn(largest, tl.full(largest.shape, 127.0, tl.float32)).to(tl.float16)
    wide = scales.to(tl.float32)
    safe = tl.where(wide == 0, 1.0, wide)
    inverse = tl.where(wide == 0, 0.0, tl.math.div_rn(tl.full(wide.shape, 1.0, tl.float32), safe))
    # Limits come first: they keep the product and the sum from becoming one operation.
    scaled = tl.minimum(tl.maximum(parts * inverse[:, :, None], -127.0), 127.0)
    numbers = ((scaled + ROUND) - ROUND).to(tl.int8)
    return scales, tl.reshape(numbers, (N, D))


@triton.jit
def write_keys(block, positions, is_new, x, DIM: tl.constexpr, D: tl.constexpr):
    FILLED: tl.constexpr = (DIM + 3) // 4 * 4
    N: tl.constexpr = x.shape[0]
    scales, numbers = quantise(x, N, D)
    groups = tl.arange(0, D // GROUP)[None, :]
    at = (block + groups * KEY_GROUP_BYTES).to(tl.pointer_type(tl.float16)) + positions[:, None]
    tl.store(at, scales, mask=is_new[:, None] & (groups * GROUP < DIM))
    dims = tl.arange(0, D)[None, :]
    at = dims // GROUP * KEY_GROUP_BYTES + dims % GROUP // 4 * (4 * POSITIONS) + dims % 4
    at = block + SCALE_BYTES + at + positions[:, None] * 4
    mask = is_new[:, None] & (dims < FILLED)
    tl.store(at, numbers.to(tl.uint8, bitcast=True), mask=mask)


@triton.jit
def write_values(block, positions, is_new, x, DIM: tl.constexpr, D: tl.constexpr):
    N_GROUPS: tl.constexpr = (DIM + GROUP - 1) // GROUP
    STORED: tl.constexpr = (DIM + 15) // 16 * 16
    N: tl.constexpr = x.shape[0]
    scales, numbers = quantise(x, N, D)
    groups = tl.arange(0, D // GROUP)[None, :]
    at = block.to(tl.pointer_type(tl.float16)) + groups * POSITIONS + positions[:, None]
    tl.store(at, scales, mask=is_new[:, None] & (groups < N_GROUPS))
    dims = tl.arange(0, D)[None, :]
    rows = (positions // 4 * (STORED * 4) + positions % 4)[:, None]
    at = block + N_GROUPS * SCALE_BYTES + rows + dims * 4
    mask = is_new[:, None] & (dims < DIM)
    tl.store(at, numbers.to(tl.uint8, bitcast=True), mask=mask)
