"""8 bits and a half-precision scale for every 32 dims of a position: half the bytes of f16.

Key block of a head, for each group of 32 dims (the last may be shorter): half scales [64], then
int8 [dims of the group][64]. Value block: half scales [64][groups], then int8 [64][dv].

The scale is the largest magnitude / 127, rounded to half; a number is x * (1 / scale), both in
float32, rounded to nearest even. The C++ twin computes the same, so bytes are equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.kv.layers import AttentionLayer
from octavo.kv.state import PAGE_TOKENS

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Int8s = NDArray[np.int8]

GROUP_DIMS = 32
_SCALE_BYTES = 2 * PAGE_TOKENS  # the scales of one group, one a position


def page_bytes(n_heads: int, key_dim: int, value_dim: int) -> int:
    """Bytes of one page of one layer."""
    return n_heads * (_block_bytes(key_dim) + _block_bytes(value_dim))


def write(layer: AttentionLayer, page: int, offset: int, k: Floats, v: Floats) -> None:
    """Store k (n, K, d) and v (n, K, dv) from position `offset` of the page on."""
    rows = slice(offset, offset + len(k))
    key_blocks, value_scales, value_numbers = _views(layer, page)
    scales, numbers = quantise(k)
    for group, dims in enumerate(_groups(layer.spec.key_dim)):
        key_scales, key_numbers = _key_group(key_blocks, dims)
        key_scales[:, rows] = scales[:, :, group].T
        key_numbers[:, :, rows] = numbers[:, :, dims].transpose(1, 2, 0)
    scales, numbers = quantise(v)
    value_scales[:, rows] = scales.transpose(1, 0, 2)
    value_numbers[:, rows] = numbers.transpose(1, 0, 2)


def read(layer: AttentionLayer, page: int, n: int) -> tuple[Floats, Floats]:
    """The first n positions: k (n, K, d), v (n, K, dv)."""
    spec = layer.spec
    key_blocks, value_scales, value_numbers = _views(layer, page)
    k = np.empty((n, spec.n_kv_heads, spec.key_dim), np.float32)
    for dims in _groups(spec.key_dim):
        scales, numbers = _key_group(key_blocks, dims)
        scaled = numbers[:, :, :n].astype(np.float32) * scales[:, None, :n].astype(np.float32)
        k[:, :, dims] = scaled.transpose(2, 0, 1)
    v = np.empty((n, spec.n_kv_heads, spec.value_dim), np.float32)
    for group, dims in enumerate(_groups(spec.value_dim)):
        scale = value_scales[:, :n, group, None].astype(np.float32)
        v[:, :, dims] = (value_numbers[:, :n, dims] * scale).transpose(1, 0, 2)
    return k, v


def quantise(x: Floats) -> tuple[Halves, Int8s]:
    """x (..., d) -> scales (..., groups) half and numbers (..., d) int8, groups of 32 dims."""
    groups = _groups(x.shape[-1])
    scales = np.empty((*x.shape[:-1], len(groups)), np.float16)
    numbers = np.empty(x.shape, np.int8)
    for group, dims in enumerate(groups):
        part = x[..., dims].astype(np.float32)
        largest = np.abs(part).max(axis=-1, initial=0)
        with np.errstate(over="ignore", divide="ignore"):
            scale = (largest / np.float32(127)).astype(np.float16)
            inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale.astype(np.float32))
        scales[..., group] = scale
        rounded = np.rint(part * inverse[..., None])
        numbers[..., dims] = np.clip(rounded, -127, 127).astype(np.int8)
    return scales, numbers


def _groups(n_dims: int) -> list[slice]:
    return [slice(d, min(d + GROUP_DIMS, n_dims)) for d in range(0, n_dims, GROUP_DIMS)]


def _block_bytes(n_dims: int) -> int:
    """Bytes of one head's keys or values."""
    return len(_groups(n_dims)) * _SCALE_BYTES + n_dims * PAGE_TOKENS


def _views(layer: AttentionLayer, page: int) -> tuple[NDArray[np.uint8], Halves, Int8s]:
    """Key blocks (K, bytes), value scales (K, 64, groups) and values (K, 64, dv), in place."""
    spec = layer.spec
    data = layer.data[page]
    n_key_bytes = spec.n_kv_heads * _block_bytes(spec.key_dim)
    n_scale_bytes = len(_groups(spec.value_dim)) * _SCALE_BYTES
    key_blocks = data[:n_key_bytes].reshape(spec.n_kv_heads, -1)
    value_blocks = data[n_key_bytes:].reshape(spec.n_kv_heads, -1)
    return (
        key_blocks,
        value_blocks[:, :n_scale_bytes].view(np.float16).reshape(spec.n_kv_heads, PAGE_TOKENS, -1),
        value_blocks[:, n_scale_bytes:].view(np.int8).reshape(spec.n_kv_heads, PAGE_TOKENS, -1),
    )


def _key_group(key_blocks: NDArray[np.uint8], dims: slice) -> tuple[Halves, Int8s]:
    """The group's scales (K, 64) and numbers (K, dims, 64), in place."""
    n_heads = len(key_blocks)
    start = _block_bytes(dims.start)
    middle = start + _SCALE_BYTES
    end = middle + (dims.stop - dims.start) * PAGE_TOKENS
    return (
        key_blocks[:, start:middle].view(np.float16),
        key_blocks[:, middle:end].view(np.int8).reshape(n_heads, -1, PAGE_TOKENS),
    )
