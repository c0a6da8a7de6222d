"""The gated delta rule with short convolution, token by token or in chunks.

Few tokens: one kernel, a program each value head of each sequence, the state in its registers.
Many: `delta_chunks`, whose scratch memory lasts for the call.
"""

from __future__ import annotations

from functools import cache

import torch
from triton import next_power_of_2

from octavo.kv.batch import Batch
from octavo.kv.layers import RecurrentLayer
from octavo.ops.gpu import delta_chunks as chunks
from octavo.ops.gpu.device import Tensor, empty, find
from octavo.ops.gpu.pieces import most_pieces
from octavo.ops.gpu.recur_kernels import recur_tokens
from octavo.ops.gpu.weights import floats
from octavo.ops.weight import RecurWeights

FEW_TOKENS = 16  # a sequence; from there on chunks are faster
COLUMNS = 32  # of the state that a program takes through the chunks


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
    dk, dv = next_power_of_2(spec.key_dim), next_power_of_2(spec.value_dim)
    before = empty(batch.n_sequences, *spec.conv_shape)
    recur_tokens[(spec.n_value_heads, batch.n_sequences)](
        *(qkv, z, alpha, beta, floats(w.conv), floats(w.a), floats(w.dt), floats(w.norm)),
        *(layer.conv, layer.state, before, _counters(batch.n_sequences * spec.n_key_heads)),
        *(batch.starts, batch.n_past, batch.slots, batch.state_slots, out),
        tuple(x.stride(0) for x in (qkv, z, alpha, beta)),
        w.eps,
        SPEC=spec,
        DK=dk,
        DV=dv,
        num_warps=8 if dk * dv >= 128 * 128 else 4,
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
    """Write the result to `out` (T, V * dv); four launches, and scratch of 25 KB a token or so."""
    spec, n_tokens, n_sequences = layer.spec, len(z), batch.n_sequences
    heads, key_dim, value_dim = spec.state_shape
    dk, dv = (max(16, next_power_of_2(d)) for d in (key_dim, value_dim))
    n_chunks = most_pieces(n_tokens, n_sequences, chunks.CHUNK_TOKENS)
    half = torch.float16
    before = empty(n_sequences, *spec.conv_shape)
    mixed = empty(n_tokens, spec.n_channels, dtype=half)
    written = empty(n_tokens, heads, value_dim, dtype=half)
    along = empty(n_tokens, heads, key_dim, dtype=half)
    decays = empty(n_tokens, heads)
    states = empty(n_chunks, heads, key_dim, value_dim, dtype=half)
    chunks.convolve[(2 * spec.n_key_heads + heads, n_chunks)](
        *(qkv, floats(w.conv), layer.conv, before, mixed, batch.starts, batch.n_past, batch.slots),
        *(n_sequences, qkv.stride(0), w.eps),
        SPEC=spec,
        D=max(dk, dv),
    )
    chunks.solve[(heads, n_chunks)](
        *(qkv, mixed, alpha, beta, floats(w.a), floats(w.dt), layer.conv, before),
        *(written, along, decays, batch.starts, batch.state_slots, n_sequences),
        (qkv.stride(0), alpha.stride(0), beta.stride(0)),
        SPEC=spec,
        DK=dk,
        DV=dv,
    )
    columns = min(COLUMNS, dv)
    chunks.pass_state[(-(-value_dim // columns), heads, n_sequences)](
        *(mixed, written, along, decays, layer.state, states),
        *(batch.starts, batch.n_past, batch.slots, batch.state_slots),
        SPEC=spec,
        DK=dk,
        COLUMNS=columns,
        num_stages=2,
    )
    chunks.read_out[(heads, n_chunks)](
        *(mixed, written, decays, states, z, floats(w.norm), layer.state, out),
        *(batch.starts, batch.state_slots, n_sequences, z.stride(0), w.eps),
        SPEC=spec,
        DK=dk,
        DV=dv,
        num_warps=8 if dk * dv >= 128 * 128 else 4,
    )


@cache
def _counters(n: int) -> Tensor:
    """Zeros that kernels count in; each leaves them at zero."""
    return torch.zeros(n, dtype=torch.int32, device=find().torch_device)
