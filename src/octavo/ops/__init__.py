"""The operations that models are written in.

A dozen coarse functions, each written three times: plainly in NumPy (`ops.reference`, the truth),
natively for the CPU (`ops.cpu`) and in Triton (`ops.gpu`). Each forwards to the back end of its
data (`w.backend`), so model code names no device. Activations are float32 arrays with a
contiguous last axis; views made by slicing and `reshape` are fine as arguments.

Results may be overwritten when a captured step is replayed, so nothing outside a step keeps one.

Letters: T tokens of this step, D model width, H heads, K key/value heads, d head width,
E experts, k experts a token, F expert width, R rows whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.ops.backend import Array, Backend, Captured, Ids
from octavo.ops.weight import ExpertBank, RecurWeights, RopeTable, RouteRule, Weight

__all__ = [
    "Array",
    "Backend",
    "Captured",
    "Ids",
    "add",
    "attend",
    "capture",
    "concat",
    "embed",
    "experts",
    "glu",
    "linear",
    "norm",
    "recur",
    "rope",
    "route",
    "softcap",
    "take",
]

Result = TypeVar("Result")


def embed(table: Weight, ids: Ids, scale: float = 1.0) -> Array:
    """Rows `ids` (T,) of the table (V, D), dequantised, times `scale` -> (T, D)."""
    return table.backend.embed(table, ids, scale)


@overload
def norm(x: Array, w: Weight, eps: float) -> Array: ...
@overload
def norm(x: Array, w: Weight, eps: float, residual: Array) -> tuple[Array, Array]: ...
def norm(
    x: Array, w: Weight, eps: float, residual: Array | None = None
) -> Array | tuple[Array, Array]:
    """RMS norm over the last axis: w * x / sqrt(mean(x^2) + eps).

    With `residual` (shape of x), s = x + residual is normalised and (normalised, s) returned.
    """
    return w.backend.norm(x, w, eps, residual)


@overload
def linear(x: Array, w: Weight, /) -> Array: ...
@overload
def linear(x: Array, w: Weight, /, *more: Weight) -> tuple[Array, ...]: ...
def linear(x: Array, w: Weight, /, *more: Weight) -> Array | tuple[Array, ...]:
    """x (T, D) times each weight (N, D) transposed, plus its bias -> (T, N) each.

    Weights that share x belong into one call: x is then quantised once.
    """
    results: tuple[Array, ...] = w.backend.linear(x, (w, *more))
    return results if more else results[0]


def rope(
    q: Array,
    k: Array,
    positions: Ids,
    table: RopeTable,
    norms: tuple[Weight, Weight] | None = None,
    eps: float = 0.0,
) -> tuple[Array, Array]:
    """Rotate q (T, H, d) and k (T, K, d) by the tokens' positions (T,).

    With `norms` (of q and of k, (d,) each) every head is normalised before, as by `norm`.
    """
    return table.backend.rope(q, k, positions, table, norms, eps)


def attend(
    q: Array, k: Array, v: Array, layer: AttentionLayer, batch: Batch, gate: Array | None = None
) -> Array:
    """Append k (T, K, d) and v (T, K, dv) to the cache layer and attend causally with q (T, H, d).

    Query head h reads key head h // (H / K). With `gate` (T, H, dv) the result is multiplied by
    its sigmoid. -> (T, H * dv).
    """
    return layer.backend.attend(q, k, v, layer, batch, gate)


def recur(
    qkv: Array,
    z: Array,
    alpha: Array,
    beta: Array,
    w: RecurWeights,
    layer: RecurrentLayer,
    batch: Batch,
) -> Array:
    """Gated delta rule with short convolution (Gated DeltaNet, arXiv 2412.06464).

    qkv (T, channels), z (T, V * dv), alpha and beta (T, V) are the raw projections, V value heads.
    Reads each sequence's state from `batch.slots` (a sequence whose n_past is 0 starts from zeros
    whatever the slot holds) and writes those that `batch.state_slots` asks for. -> (T, V * dv),
    normalised by `w.norm` and gated with SiLU(z).
    """
    return layer.backend.recur(qkv, z, alpha, beta, w, layer, batch)


def route(x: Array, gate: Weight, rule: RouteRule) -> tuple[Ids, Array]:
    """Experts of each token: x (T, D), gate (E, D) -> ids and weights, both (T, k).

    Best first; of equal scores the lower expert id first.
    """
    return gate.backend.route(x, gate, rule)


def experts(
    x: Array,
    bank: ExpertBank,
    ids: Ids,
    weights: Array,
    beside: Callable[[], Array] | None = None,
) -> Array:
    """Sum over a token's experts of weight * down(act(gate x) * up x): x (T, D) -> (T, D).

    What `beside` computes (T, D), as the shared expert does, is added to it. It is called once;
    where experts are computed in two places, while one waits for the other.
    """
    return bank.backend.experts(x, bank, ids, weights, beside)


def glu(
    x: Array, gate: Weight, up: Weight, down: Weight, kind: str, scale: Weight | None = None
) -> Array:
    """down(act(gate x) * up x): x (T, D) -> (T, D); act is "silu" or "gelu" (tanh form).

    With `scale` (D,) the result of token t is multiplied by sigmoid(scale . x_t).
    """
    return gate.backend.glu(x, gate, up, down, kind, scale)


def add(x: Array, y: Array, backend: Backend) -> Array:
    """x + y, both (T, D)."""
    return backend.add(x, y)


def concat(x: Array, y: Array, backend: Backend) -> Array:
    """x (T, A) and y (T, B) side by side -> (T, A + B)."""
    return backend.concat(x, y)


def take(x: Array, rows: Ids, backend: Backend) -> Array:
    """Rows of x (T, D) -> (R, D)."""
    return backend.take(x, rows)


def softcap(x: Array, cap: float, backend: Backend) -> Array:
    """cap * tanh(x / cap), elementwise."""
    return backend.softcap(x, cap)


def capture(step: Callable[[], Result], backend: Backend) -> Captured[Result]:
    """Run `step` once and record it. Its operations must all belong to `backend`.

    `replay` runs it again on the same arrays: whoever owns the inputs rewrites them in place.
    """
    return backend.capture(step)
