"""The operations on the CPU, over the native core.

Each call adds native operations to a program. Outside `capture` the program is run at once and
dropped; inside, it is run and kept, with the arrays it points to, to be replayed without Python.
Activations are rounded to int8 (a scale every 32 values) where a weight is quantised, and queries
where the cache is, as rivals do; everything else is float32.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import psutil

from octavo import _native
from octavo.errors import SettingError
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.ops import Array, Ids
from octavo.ops.host import alloc, fetch, host, leave, place, send, store  # noqa: F401
from octavo.ops.weight import ExpertBank, RecurWeights, RopeTable, RouteRule, Weight
from octavo.settings import Settings

Result = TypeVar("Result")


def _default_threads() -> int:
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    try:  # what this process may use, in a container or under taskset
        allowed = len(psutil.Process().cpu_affinity())
    except AttributeError:
        allowed = physical
    return max(1, min(physical, allowed))


_pool: _native.Pool | None = None
_here = threading.local()  # .recording: the capture that is going on in this thread


def pool() -> _native.Pool:
    """The worker threads, started when first needed."""
    if _pool is None:
        set_threads(Settings.from_environment().threads)
    assert _pool is not None
    return _pool


def set_threads(n_threads: int) -> None:
    """Use that many threads from now on; 0: one for each physical core."""
    global _pool
    if _pool is None and (isa := Settings.from_environment().isa):
        set_level(isa)  # once: later a caller may have chosen another
    _pool = _native.Pool(n_threads or _default_threads())


def set_level(name: str) -> None:
    """Use an instruction-set level ("avx2") that the processor has.

    Raises:
        SettingError: it has not; the message lists those it has.
    """
    if name not in _native.levels():
        raise SettingError(
            f"this processor or build does not have the instruction-set level {name!r}",
            f"Use one of: {', '.join(_native.levels())}.",
        )
    _native.use_level(name)


def level() -> str:
    """The instruction-set level in force."""
    return _native.level()


def fast_formats() -> frozenset[str]:
    """Block formats that have kernels here."""
    return frozenset(_native.formats())


class Recording(Generic[Result]):
    """A step that was run once and can be replayed; see `ops.capture`."""

    result: Result

    def __init__(self) -> None:
        self.program = _native.Program()
        self.kept: list[Any] = []

    def replay(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Run the recorded operations again on the same arrays."""
        self.program.run(pool())
        if meanwhile is not None:
            meanwhile()


def capture(step: Callable[[], Result]) -> Recording[Result]:
    """Run and record `step`."""
    if getattr(_here, "recording", None) is not None:
        raise RuntimeError("capture: a step is being recorded already")
    recording: Recording[Result] = Recording()
    _here.recording = recording
    try:
        recording.result = step()
    finally:
        _here.recording = None
    return recording


def _run(add: Callable[[_native.Program], None], *arrays: Any) -> None:
    """Run what `add` adds; while recording keep it, and `arrays` alive."""
    recording = getattr(_here, "recording", None)
    if recording is None:
        program = _native.Program()
        add(program)
        program.run(pool())
        return
    first = len(recording.program)
    add(recording.program)
    # The program's own arrays may go: their memory serves what is added after their last use.
    owns = recording.program.owns
    recording.kept += [a for a in arrays if not (isinstance(a, np.ndarray) and owns(a))]
    recording.program.run_from(pool(), first)


def _floats(*shape: int) -> Array:
    """An uninitialised result."""
    recording = getattr(_here, "recording", None)
    empty = _native.empty_floats if recording is None else recording.program.empty_floats
    return empty(shape)


def _ids(*shape: int) -> Ids:
    recording = getattr(_here, "recording", None)
    empty = _native.empty_ids if recording is None else recording.program.empty_ids
    return empty(shape)


def _matrix(w: Weight) -> _native.Weight:
    """The native handle of a weight; banks and vectors count as matrices of their last axis."""
    key = f"cpu {_native.level()}"
    if key not in w.memo:
        columns = w.shape[-1]
        rows = int(np.prod(w.shape[:-1], dtype=np.int64))
        w.memo[key] = _native.Weight(w.data, w.format, rows, columns)
    handle: _native.Weight = w.memo[key]
    return handle


def embed(table: Weight, ids: Ids, scale: float = 1.0) -> Array:
    out = _floats(len(ids), table.shape[-1])
    _run(lambda p: p.embed(_matrix(table), ids, scale, out), ids, out)
    return out


def norm(
    x: Array, w: Weight, eps: float, residual: Array | None = None
) -> Array | tuple[Array, Array]:
    total = None if residual is None else _floats(*x.shape)
    out = _normed(x, w, eps, residual, total)
    return out if total is None else (out, total)


def _normed(
    x: Array, w: Weight, eps: float, residual: Array | None = None, total: Array | None = None
) -> Array:
    weight = w.floats()
    out = _floats(*x.shape)
    _run(lambda p: p.norm(x, weight, eps, residual, total, out), x, weight, residual, total, out)
    return out


def linear(x: Array, weights: tuple[Weight, ...]) -> tuple[Array, ...]:
    outs = [_floats(len(x), w.shape[0]) for w in weights]
    biases = [None if w.bias is None else w.bias.floats() for w in weights]
    handles = [_matrix(w) for w in weights]
    _run(lambda p: p.linear(x, handles, biases, outs), x, *biases, *outs)
    return tuple(outs)


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
    out = _floats(*x.shape)
    adjacent = table.pairing == "adjacent"
    _run(
        lambda p: p.rope(x, positions, table.frequencies, adjacent, table.magnitude, out),
        x,
        positions,
        out,
    )
    return out


def attend(
    q: Array, k: Array, v: Array, layer: AttentionLayer, batch: Batch, gate: Array | None = None
) -> Array:
    out = _floats(q.shape[0], q.shape[1] * v.shape[2])
    spec = layer.spec
    index = _native.cache_formats().index(layer.format)
    _run(
        lambda p: p.attend(
            q,
            k,
            v,
            layer.data,
            index,
            spec.scale,
            spec.window,
            batch.starts,
            batch.n_past,
            batch.pages,
            batch.slots,
            batch.state_slots,
            gate,
            out,
        ),
        *(q, k, v, gate, layer, batch, out),
    )
    return out


def recur(
    qkv: Array,
    z: Array,
    alpha: Array,
    beta: Array,
    w: RecurWeights,
    layer: RecurrentLayer,
    batch: Batch,
) -> Array:
    out = _floats(*z.shape)
    spec = layer.spec
    shape = _native.RecurShape(
        spec.n_key_heads,
        spec.n_value_heads,
        spec.key_dim,
        spec.value_dim,
        spec.conv_kernel,
        spec.tiled,
    )
    small = (w.conv.floats(), w.a.floats(), w.dt.floats(), w.norm.floats())
    _run(
        lambda p: p.recur(
            qkv,
            z,
            alpha,
            beta,
            *small,
            w.eps,
            shape,
            layer.conv,
            layer.state,
            batch.starts,
            batch.n_past,
            batch.pages,
            batch.slots,
            batch.state_slots,
            out,
        ),
        *(qkv, z, alpha, beta, small, layer, batch, out),
    )
    return out


def route(x: Array, gate: Weight, rule: RouteRule) -> tuple[Ids, Array]:
    ids = _ids(len(x), rule.n_used)
    weights = _floats(len(x), rule.n_used)
    sigmoid = rule.activation == "sigmoid"
    _run(
        lambda p: p.route(
            x, _matrix(gate), rule.n_used, sigmoid, rule.normalise, rule.scale, ids, weights
        ),
        *(x, ids, weights),
    )
    return ids, weights


def experts(
    x: Array,
    bank: ExpertBank,
    ids: Ids,
    weights: Array,
    beside: Callable[[], Array] | None = None,
) -> Array:
    out = _floats(len(x), bank.down.shape[1])
    _run(lambda p: _add_experts(p, x, bank, ids, weights, out), x, ids, weights, out)
    return out if beside is None else add(out, beside())


def experts_program(
    x: Array, bank: ExpertBank, ids: Ids, weights: Array, out: Array
) -> _native.Program:
    """The routed experts alone as a program into `out` (T, D); a token's ids below 0 add nothing.

    All arrays must outlive it. The bank may be one of another back end.
    """
    program = _native.Program()
    _add_experts(program, x, bank, ids, weights, out)
    return program


def _add_experts(
    program: _native.Program, x: Array, bank: ExpertBank, ids: Ids, weights: Array, out: Array
) -> None:
    up = None if bank.up is None else _matrix(bank.up)
    gate, down, n_experts = _matrix(bank.gate), _matrix(bank.down), bank.down.shape[0]
    program.experts(x, gate, up, down, n_experts, bank.kind, ids, weights, out)


def glu(
    x: Array, gate: Weight, up: Weight, down: Weight, kind: str, scale: Weight | None = None
) -> Array:
    out = _floats(len(x), down.shape[0])
    factors = None if scale is None else scale.floats()
    _run(
        lambda p: p.glu(x, _matrix(gate), _matrix(up), _matrix(down), kind, factors, out),
        *(x, factors, out),
    )
    return out


def add(x: Array, y: Array) -> Array:
    out = _floats(*x.shape)
    _run(lambda p: p.add(x, y, out), x, y, out)
    return out


def concat(x: Array, y: Array) -> Array:
    out = _floats(len(x), x.shape[1] + y.shape[1])
    _run(lambda p: p.concat(x, y, out), x, y, out)
    return out


def take(x: Array, rows: Ids) -> Array:
    out = _floats(len(rows), x.shape[1])
    _run(lambda p: p.take(x, rows, out), x, rows, out)
    return out


def softcap(x: Array, cap: float) -> Array:
    out = _floats(*x.shape)
    _run(lambda p: p.softcap(x, cap, out), x, out)
    return out
