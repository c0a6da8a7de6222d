"""8 bits and a half-precision scale for every 32 dims of a position: half the bytes of f16.

Processors multiply four neighbouring int8 at once, so four dims of a key and four positions of
values lie together. Key block of a head, for each group of 32 dims (the last may be shorter): half
scales [64], then int8 [dims of the group / 4][64][4]; where the dims end, zeros fill the four.
Value block: half scales [groups][64], then int8 [16][dv up to a multiple of 16][4 positions].

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
VALUE_DIMS = 16  # values are filled up to a multiple of it
_SCALE_BYTES = 2 * PAGE_TOKENS  # the scales of one group, one a position


def page_bytes(n_heads: int, key_dim: int, value_dim: int) -> int:
    """Bytes of one page of one layer."""
    scales = (len(_groups(key_dim)) + len(_groups(value_dim))) * _SCALE_BYTES
    numbers = (_whole(key_dim, 4) + _whole(value_dim, VALUE_DIMS)) * PAGE_TOKENS
    return n_heads * (scales + numbers)


def write(layer: AttentionLayer, page: int, offset: int, k: Floats, v: Floats) -> None:
    """Store k (n, K, d) and v (n, K, dv) from position `offset` of the page on."""
    rows = slice(offset, offset + len(k))
    key_blocks, value_scales, value_numbers = _views(layer, page)
    scales, numbers = quantise(k)
    for group, dims in enumerate(_groups(layer.spec.key_dim)):
        key_scales, key_numbers = _key_group(key_blocks, dims)
        key_scales[:, rows] = scales[:, :, group].T
        n_dims = dims.stop - dims.start
        padded = np.zeros((*k.shape[:2], key_numbers.shape[1] * 4), np.int8)
        padded[:, :, :n_dims] = numbers[:, :, dims]
        fours = padded.reshape(*k.shape[:2], key_numbers.shape[1], 4)
        key_numbers[:, :, rows] = fours.transpose(1, 2, 0, 3)
    scales, numbers = quantise(v)
    value_scales[:, :, rows] = scales.transpose(1, 2, 0)
    fours, places = np.divmod(np.arange(offset, offset + len(v)), 4)
    value_numbers[:, fours, : layer.spec.value_dim, places] = numbers


def read(layer: AttentionLayer, page: int, n: int) -> tuple[Floats, Floats]:
    """The first n positions: k (n, K, d), v (n, K, dv)."""
    spec = layer.spec
    key_blocks, value_scales, value_numbers = _views(layer, page)
    k = np.empty((n, spec.n_kv_heads, spec.key_dim), np.float32)
    for dims in _groups(spec.key_dim):
        scales, fours = _key_group(key_blocks, dims)
        padded = fours[:, :, :n].transpose(2, 0, 1, 3).reshape(n, len(fours), fours.shape[1] * 4)
        numbers = padded[:, :, : dims.stop - dims.start].astype(np.float32)
        k[:, :, dims] = numbers * scales.T[:n, :, None].astype(np.float32)
    places = np.divmod(np.arange(n), 4)
    v = value_numbers[:, places[0], : spec.value_dim, places[1]].astype(np.float32)
    for group, dims in enumerate(_groups(spec.value_dim)):
        v[:, :, dims] *= value_scales[:, group, :n].T[:, :, None].astype(np.float32)
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


def _whole(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _views(layer: AttentionLayer, page: int) -> tuple[NDArray[np.uint8], Halves, Int8s]:
    """In place: key blocks (K, bytes), value scales (K, groups, 64), values (K, 16, dims, 4)."""
    spec = layer.spec
    data = layer.data[page]
    n_scale_bytes = len(_groups(spec.value_dim)) * _SCALE_BYTES
    n_dims = _whole(spec.value_dim, VALUE_DIMS)
    n_value_bytes = spec.n_kv_heads * (n_scale_bytes + n_dims * PAGE_TOKENS)
    key_blocks = data[:-n_value_bytes].reshape(spec.n_kv_heads, -1)
    value_blocks = data[-n_value_bytes:].reshape(spec.n_kv_heads, -1)
    scales = value_blocks[:, :n_scale_bytes].view(np.float16)
    numbers = value_blocks[:, n_scale_bytes:].view(np.int8)
    return (
        key_blocks,
        scales.reshape(spec.n_kv_heads, -1, PAGE_TOKENS),
        numbers.reshape(spec.n_kv_heads, PAGE_TOKENS // 4, n_dims, 4),
    )


def _key_group(key_blocks: NDArray[np.uint8], dims: slice) -> tuple[Halves, Int8s]:
    """The group's scales (K, 64) and numbers (K, fours, 64, 4), in place."""
    start = dims.start // GROUP_DIMS * (_SCALE_BYTES + GROUP_DIMS * PAGE_TOKENS)
    middle = start + _SCALE_BYTES
    end = middle + _whole(dims.stop - dims.start, 4) * PAGE_TOKENS
    numbers = key_blocks[:, middle:end].view(np.int8)
    return (
        key_blocks[:, start:middle].view(np.float16),
        numbers.reshape(len(key_blocks), -1, PAGE_TOKENS, 4),
    )
