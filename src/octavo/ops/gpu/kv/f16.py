"""IEEE half precision: the default cache."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.kv.state import PAGE_TOKENS
from octavo.ops.gpu.kv import _plain

OPERAND = tl.float16
_TYPE = tl.constexpr(tl.float16)


def key_bytes(dim: int) -> int:
    """Bytes of one head's keys in a page."""
    return 2 * PAGE_TOKENS * dim


value_bytes = key_bytes


@triton.jit
def load_keys(block, first, DIM: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    return _plain.load_keys(block, first, DIM, D, N, _TYPE)


@triton.jit
def load_values(block, first, n, DIM: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    return _plain.load_values(block, first, n, DIM, D, N, _TYPE)


@triton.jit
def write_keys(block, positions, is_new, x, DIM: tl.constexpr, D: tl.constexpr):
    _plain.write_keys(block, positions, is_new, x, DIM, D, _TYPE)


@triton.jit
def write_values(block, positions, is_new, x, DIM: tl.constexpr, D: tl.constexpr):
    _plain.write_values(block, positions, is_new, x, DIM, D, _TYPE)
