"""Blocks of plain numbers: keys (dim, 64 positions), values (64, dim)."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.kv.state import PAGE_TOKENS

POSITIONS = tl.constexpr(PAGE_TOKENS)


@triton.jit
def load_keys(
    block, first, DIM: tl.constexpr, D: tl.constexpr, N: tl.constexpr, TYPE: tl.constexpr
):
    numbers = block.to(tl.pointer_type(TYPE))
    dims = tl.arange(0, D)[:, None]
    at = numbers + dims * POSITIONS + (first + tl.arange(0, N))[None, :]
    keys = tl.load(at) if D == DIM else tl.load(at, mask=dims < DIM, other=0.0)
    return keys


@triton.jit
def load_values(
    block,
    first,
    n,
    DIM: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    TYPE: tl.constexpr,
):
    numbers = block.to(tl.pointer_type(TYPE))
    positions = (first + tl.arange(0, N))[:, None]
    dims = tl.arange(0, D)[None, :]
    at = numbers + positions * DIM + dims
    if D == DIM:
        values = tl.load(at, mask=positions < n, other=0.0)
    else:
        values = tl.load(at, mask=(positions < n) & (dims < DIM), other=0.0)
    return values


@triton.jit
def write_keys(
    block,
    positions,
    is_new,
    x,
    DIM: tl.constexpr,
    D: tl.constexpr,
    TYPE: tl.constexpr,
):
    numbers = block.to(tl.pointer_type(TYPE))
    dims = tl.arange(0, D)[None, :]
    at = numbers + dims * POSITIONS + positions[:, None]
    tl.store(at, x.to(TYPE), mask=is_new[:, None] & (dims < DIM))


@triton.jit
def write_values(
    block,
    positions,
    is_new,
    x,
    DIM: tl.constexpr,
    D: tl.constexpr,
    TYPE: tl.constexpr,
):
    numbers = block.to(tl.pointer_type(TYPE))
    dims = tl.arange(0, D)[None, :]
    at = numbers + positions[:, None] * DIM + dims
    tl.store(at, x.to(TYPE), mask=is_new[:, None] & (dims < DIM))
