"""The gated delta rule with short convolution, token by token or in chunks.

Few tokens: one kernel, a program for some columns of a value head's state in a sequence, which
stay in its registers.
Many: `delta_chunks`, a run of chunks at a time.
"""

from __future__ import annotations

from functools import cache

import torch
from triton import cdiv, next_power_of_2

from octavo.kv.batch import Batch
from octavo.kv.layers import RecurrentLayer
from octavo.kv.state import RecurrentSpec
from octavo.ops.gpu import delta_chunks as chunks
from octavo.ops.gpu import relay
from octavo.ops.gpu.device import Tensor, empty, find
from octavo.ops.gpu.pieces import most_pieces
from octavo.ops.gpu.recur_kernels import recur_tokens
from octavo.ops.gpu.weights import floats
from octavo.ops.weight import RecurWeights

FEW_TOKENS = 16  # a sequence; from there on chunks are faster
RUN_CHUNKS = 16  # that scratch memory is for: 54 MB where the state has 2 MB
COLUMNS = 32  # of a head's state that a program takes through the tokens or chunks
LEAST_WIDTH = 64  # of a tile: narrower ones ended in an illegal memory access on an H200


def recur(
    qkv: Tensor,
    z: Tensor,
    alpha: Tensor,
    beta: Tensor,
    w: RecurWeights,
    layer: RecurrentLayer,
    batch: Batch,
) -> Tensor:
    """See `octavo.ops.recur`."""
    out = empty(*z.shape)
    if len(z):
        is_few = len(z) <= FEW_TOKENS * batch.n_sequences
        form = by_tokens if is_few else by_chunks
        form(qkv, z, alpha, beta, w, layer, batch, out)
    return out


def by_tokens(
    qkv: Tensor,
    z: Tensor,
    alpha: Tensor,
    beta: Tensor,
    w: RecurWeights,
    layer: RecurrentLayer,
    batch: Batch,
    out: Tensor,
) -> None:
    """Write the result to `out` (T, V * dv); one launch."""
    spec = layer.spec
    columns = min(COLUMNS, next_power_of_2(spec.value_dim))
    groups = cdiv(spec.value_dim, columns)
    before = empty(batch.n_sequences, *spec.conv_shape)
    recur_tokens[(spec.n_value_heads, groups, batch.n_sequences)](
        *(qkv, z, alpha, beta, floats(w.conv), floats(w.a), floats(w.dt), floats(w.norm)),
        *(layer.conv, layer.state, before, _counters(batch.n_sequences * spec.n_key_heads)),
        *(batch.starts, batch.n_past, batch.slots, batch.state_slots, out),
        tuple(x.stride(0) for x in (qkv, z, alpha, beta)),
        w.eps,
        SPEC=spec,
        DK=next_power_of_2(spec.key_dim),
        DV=next_power_of_2(spec.value_dim),
        COLUMNS=columns,
        num_warps=4,
        **relay.options(),
    )


def by_chunks(
    qkv: Tensor,
    z: Tensor,
    alpha: Tensor,
    beta: Tensor,
    w: RecurWeights,
    layer: RecurrentLayer,
    batch: Batch,
    out: Tensor,
) -> None:
    """Write the result to `out` (T, V * dv); four launches for each RUN_CHUNKS chunks."""
    spec, n_sequences = layer.spec, batch.n_sequences
    dk, dv = (max(LEAST_WIDTH, next_power_of_2(d)) for d in spec.state_shape[1:])
    n_chunks = most_pieces(len(z), n_sequences, chunks.CHUNK_TOKENS)
    before = empty(n_sequences, *spec.conv_shape)
    run = min(n_chunks, RUN_CHUNKS)
    mixed, written, along, decays, states, carried = _scratch(spec, run)
    small = [floats(x) for x in (w.conv, w.a, w.dt, w.norm)]
    wide = {"SPEC": spec, "DK": dk, "DV": dv}
    for first in range(0, n_chunks, run):
        chunks.convolve[(2 * spec.n_key_heads + spec.n_value_heads, run)](
            *(qkv, small[0], layer.conv, before, mixed, batch.starts, batch.n_past, batch.slots),
            *(n_sequences, first, qkv.stride(0), w.eps),
            SPEC=spec,
            D=max(dk, dv),
            num_warps=8 if max(dk, dv) >= 128 else 4,
        )
        chunks.solve[(spec.n_value_heads, run)](
            *(qkv, mixed, alpha, beta, *small[1:3], layer.conv, before, written, along, decays),
            *(batch.starts, batch.state_slots, n_sequences, first),
            (qkv.stride(0), alpha.stride(0), beta.stride(0)),
            **wide,
        )
        chunks.pass_state[(cdiv(spec.value_dim, COLUMNS), spec.n_value_heads, n_sequences)](
            *(mixed, written, along, decays, layer.state, states, carried),
            *(batch.starts, batch.n_past, batch.slots, batch.state_slots, first, run),
            SPEC=spec,
            DK=dk,
            COLUMNS=COLUMNS,
            num_stages=2,
        )
        chunks.read_out[(spec.n_value_heads, run)](
            *(mixed, written, decays, states, z, small[3], layer.state, out),
            *(batch.starts, batch.state_slots, n_sequences, first, z.stride(0), w.eps),
            **wide,
            num_warps=8 if dk * dv >= 128 * 128 else 4,
        )


def _scratch(spec: RecurrentSpec, n_chunks: int) -> list[Tensor]:
    """What `delta_chunks` calls mixed, written, along, decays, states and carried."""
    heads, key_dim, value_dim = spec.state_shape
    rows, half = n_chunks * chunks.CHUNK_TOKENS, torch.float16
    return [
        empty(rows, spec.n_channels, dtype=half),
        empty(rows, heads, value_dim, dtype=half),
        empty(rows, heads, key_dim, dtype=half),
        empty(rows, heads),
        empty(n_chunks, *spec.state_shape, dtype=half),
        empty(2, *spec.state_shape),
    ]


@cache
def _counters(n: int) -> Tensor:
    """Zeros that kernels count in; each leaves them at zero."""
    return torch.zeros(n, dtype=torch.int32, device=find().torch_device)
