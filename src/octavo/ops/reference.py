"""Every operation, plainly, in NumPy: what the fast back ends are compared with.

Shapes and meaning are in `octavo.ops`. Slow on purpose: it expands every weight to float32, and
keeps the expanded copy in `weight.memo`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo import quants
from octavo.kv import formats
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.kv.state import PAGE_TOKENS, RecurrentSpec
from octavo.ops.host import alloc, fetch, host, leave, place, send, store  # noqa: F401
from octavo.ops.weight import ExpertBank, RecurWeights, RopeTable, RouteRule, Weight
from octavo.record import dataclass

Array = NDArray[np.float32]
Ids = NDArray[np.int32]
Result = TypeVar("Result")


def embed(table: Weight, ids: Ids, scale: float = 1.0) -> Array:
    return _expanded(table)[ids] * np.float32(scale)


def norm(
    x: Array, w: Weight, eps: float, residual: Array | None = None
) -> Array | tuple[Array, Array]:
    total = x if residual is None else x + residual
    normed = _normed(total, w, eps)
    return normed if residual is None else (normed, total)


def _normed(x: Array, w: Weight, eps: float) -> Array:
    mean_square = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
    return _float32(w.floats() * (x / np.sqrt(mean_square + eps)))


def linear(x: Array, weights: tuple[Weight, ...]) -> tuple[Array, ...]:
    return tuple(_linear(x, w) for w in weights)


def rope(
    q: Array,
    k: Array,
    positions: Ids,
    table: RopeTable,
    norms: tuple[Weight, Weight] | None = None,
    eps: float = 0.0,
) -> tuple[Array, Array]:
    if norms is not None:
        q, k = _normed(q, norms[0], eps), _normed(k, norms[1], eps)
    return _rotated(q, positions, table), _rotated(k, positions, table)


def _rotated(x: Array, positions: Ids, table: RopeTable) -> Array:
    angle = positions[:, None, None] * table.frequencies.astype(np.float64)  # (T, 1, n / 2)
    cos = np.cos(angle) * table.magnitude
    sin = np.sin(angle) * table.magnitude
    half = len(table.frequencies)
    if table.pairing == "neox":
        first, second = slice(0, half), slice(half, 2 * half)
    else:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    out = np.array(x)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def attend(
    q: Array, k: Array, v: Array, layer: AttentionLayer, batch: Batch, gate: Array | None = None
) -> Array:
    out = np.empty((*q.shape[:2], v.shape[-1]), np.float32)
    for s in range(batch.n_sequences):
        own = slice(batch.starts[s], batch.starts[s + 1])
        if own.start == own.stop:
            continue
        n_past, pages = int(batch.n_past[s]), batch.pages[s]
        _append(layer, pages, n_past, k[own], v[own])
        keys, values = _cached(layer, pages, n_past + own.stop - own.start)
        out[own] = _attention(q[own], keys, values, layer, n_past)
    if gate is not None:
        out *= _sigmoid(gate)
    return out.reshape(len(out), out.shape[1] * out.shape[2])


def recur(
    qkv: Array,
    z: Array,
    alpha: Array,
    beta: Array,
    w: RecurWeights,
    layer: RecurrentLayer,
    batch: Batch,
) -> Array:
    decay = np.exp(w.a.floats() * _softplus(alpha + w.dt.floats()))
    rate = _sigmoid(beta)
    n_heads, _, value_dim = layer.spec.state_shape
    out = np.empty((len(qkv), n_heads, value_dim), np.float32)
    for s in range(batch.n_sequences):
        conv, state = _state_before(layer, batch, s)
        for t in range(batch.starts[s], batch.starts[s + 1]):
            window = np.concatenate([conv, qkv[t : t + 1]])
            conv = window[1:]
            mixed = _silu(np.sum(window.T * w.conv.floats(), axis=1))
            out[t], state = _delta_step(mixed, decay[t], rate[t], state, layer.spec, w.eps)
            if batch.state_slots[t] >= 0:
                layer.conv[batch.state_slots[t]] = conv
                layer.state[batch.state_slots[t]] = state
    return _normed(out, w.norm, w.eps).reshape(z.shape) * _silu(z)


def route(x: Array, gate: Weight, rule: RouteRule) -> tuple[Ids, Array]:
    scores = _linear(x, gate).astype(np.float64)
    if rule.activation == "softmax":
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    else:
        scores = _sigmoid(scores)
    # A stable sort of the negated scores puts the lower id first among equals.
    ids = np.argsort(-scores, axis=1, kind="stable")[:, : rule.n_used]
    weights = np.take_along_axis(scores, ids, axis=1)
    if rule.normalise:
        weights /= weights.sum(axis=1, keepdims=True)
    return ids.astype(np.int32), (weights * rule.scale).astype(np.float32)


def experts(
    x: Array,
    bank: ExpertBank,
    ids: Ids,
    weights: Array,
    beside: Callable[[], Array] | None = None,
) -> Array:
    out = np.zeros_like(x)
    for expert in np.unique(ids):
        token, choice = np.nonzero(ids == expert)
        gate = x[token] @ _expert(bank.gate, expert).T
        if bank.up is None:
            gate, up = np.split(gate, 2, axis=1)
        else:
            up = x[token] @ _expert(bank.up, expert).T
        result = (_activation(gate, bank.kind) * up) @ _expert(bank.down, expert).T
        out[token] += weights[token, choice, None] * result
    return out if beside is None else out + beside()


def glu(
    x: Array, gate: Weight, up: Weight, down: Weight, kind: str, scale: Weight | None = None
) -> Array:
    out = _linear(_activation(_linear(x, gate), kind) * _linear(x, up), down)
    if scale is None:
        return out
    return _float32(out * _sigmoid(x @ _expanded(scale))[:, None])


def add(x: Array, y: Array) -> Array:
    return x + y


def concat(x: Array, y: Array) -> Array:
    return np.concatenate([x, y], axis=1)


def take(x: Array, rows: Ids) -> Array:
    return x[rows]


def softcap(x: Array, cap: float) -> Array:
    return _float32(cap * np.tanh(x / np.float32(cap)))


@dataclass(eq=False)
class Replay(Generic[Result]):
    """A step that is simply run again; its arrays are copied into the first run's."""

    step: Callable[[], Result]
    result: Result

    def replay(self, meanwhile: Callable[[], None] | None = None) -> None:
        for old, new in zip(_arrays(self.result), _arrays(self.step()), strict=True):
            np.copyto(old, new)
        if meanwhile is not None:
            meanwhile()


def capture(step: Callable[[], Result]) -> Replay[Result]:
    return Replay(step, step())


def _arrays(result: Any) -> list[NDArray[Any]]:
    """The arrays in a result made of dataclasses, tuples and lists, in order."""
    if isinstance(result, np.ndarray):
        return [result]
    if isinstance(result, tuple | list):
        return [array for part in result for array in _arrays(part)]
    if is_dataclass(result):
        return [a for f in fields(result) for a in _arrays(getattr(result, f.name))]
    return []


def _expanded(w: Weight) -> Array:
    if "floats" not in w.memo:
        w.memo["floats"] = quants.unpack(w.format, w.data, w.shape)
    floats: Array = w.memo["floats"]
    return floats


def _expert(w: Weight, expert: int) -> Array:
    """One expert's matrix of w (E, rows, columns); only those that are used get expanded."""
    if expert not in w.memo.setdefault("experts", {}):
        data = w.data.reshape(w.shape[0], -1)[expert]
        w.memo["experts"][expert] = quants.unpack(w.format, data, w.shape[1:])
    matrix: Array = w.memo["experts"][expert]
    return matrix


def _linear(x: Array, w: Weight) -> Array:
    y = x @ _expanded(w).T
    return y if w.bias is None else y + w.bias.floats()


def _append(layer: AttentionLayer, pages: Ids, n_past: int, k: Array, v: Array) -> None:
    cache = formats.find(layer.format)
    done = 0
    while done < len(k):
        page, offset = divmod(n_past + done, PAGE_TOKENS)
        part = slice(done, done + PAGE_TOKENS - offset)
        cache.write(layer, int(pages[page]), offset, k[part], v[part])
        done = part.stop


def _cached(layer: AttentionLayer, pages: Ids, n_tokens: int) -> tuple[Array, Array]:
    """Keys (n, K, d) and values (n, K, dv) of the first n tokens."""
    cache = formats.find(layer.format)
    parts = [
        cache.read(layer, int(pages[start // PAGE_TOKENS]), min(PAGE_TOKENS, n_tokens - start))
        for start in range(0, n_tokens, PAGE_TOKENS)
    ]
    return np.concatenate([k for k, _ in parts]), np.concatenate([v for _, v in parts])


def _attention(q: Array, k: Array, v: Array, layer: AttentionLayer, n_past: int) -> Array:
    """q (T, H, d) at positions n_past ... on k (n, K, d), v (n, K, dv) -> (T, H, dv)."""
    spec = layer.spec
    position = n_past + np.arange(len(q))[:, None]
    distance = position - np.arange(len(k))  # (T, n)
    is_seen = distance >= 0
    if spec.window:
        is_seen &= distance < spec.window
    out = np.empty((*q.shape[:2], v.shape[-1]), np.float32)
    for head in range(q.shape[1]):
        key_head = head // (q.shape[1] // spec.n_kv_heads)
        scores = (q[:, head] @ k[:, key_head].T).astype(np.float64) * spec.scale
        scores[~is_seen] = -np.inf
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        out[:, head] = scores @ v[:, key_head]
    return out


def _state_before(layer: RecurrentLayer, batch: Batch, s: int) -> tuple[Array, Array]:
    if batch.n_past[s] == 0:
        return np.zeros(layer.spec.conv_shape, np.float32), np.zeros(
            layer.spec.state_shape, np.float32
        )
    return layer.conv[batch.slots[s]].copy(), layer.state[batch.slots[s]].copy()


def _delta_step(
    mixed: Array, decay: Array, rate: Array, state: Array, spec: RecurrentSpec, eps: float
) -> tuple[Array, Array]:
    """One token: convolved channels, decay and rate (V,), state -> output (V, dv), new state."""
    width = spec.n_key_heads * spec.key_dim
    heads = np.arange(spec.n_value_heads)
    shared = spec.n_value_heads // spec.n_key_heads
    owner = heads % spec.n_key_heads if spec.tiled else heads // shared
    q = _unit(mixed[:width].reshape(-1, spec.key_dim), eps)[owner] * spec.key_dim**-0.5
    k = _unit(mixed[width : 2 * width].reshape(-1, spec.key_dim), eps)[owner]
    v = mixed[2 * width :].reshape(spec.n_value_heads, -1)
    state = state * decay[:, None, None]
    error = rate[:, None] * (v - np.einsum("hkv,hk->hv", state, k))
    state = state + k[:, :, None] * error[:, None, :]
    return np.einsum("hkv,hk->hv", state, q), state


def _unit(x: Array, eps: float) -> Array:
    return _float32(x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + np.float32(eps)))


def _sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.exp(-np.logaddexp(0, -x)), x.dtype)


def _silu(x: Array) -> Array:
    return _float32(x * _sigmoid(x))


def _softplus(x: Array) -> Array:
    return _float32(np.logaddexp(x, 0))


def _activation(x: Array, kind: str) -> Array:
    if kind == "silu":
        return _silu(x)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)
    return _float32(0.5 * x * (1 + np.tanh(inner)))


def _float32(x: NDArray[Any]) -> Array:
    return np.asarray(x, np.float32)
