"""Attention over paged caches.

A program takes some rows, one key head and one stretch of the context. Rows are the query heads of
that key head, of some consecutive tokens: so keys and values are read once for all of them. Where
rows are few the context is split, so that the whole device reads; a second kernel then puts the
parts together, in order. The number of splits follows from shapes alone, their length from
`batch.n_past` on the device: a recorded step serves every depth.

Where the step has few tokens, each program itself stores the new keys and values of its stretch
before it reads them. Several may store the same; they store the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from triton import next_power_of_2 as power_of_2

from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer
from octavo.kv.state import PAGE_TOKENS, AttentionSpec
from octavo.ops.gpu import attend_kernels as kernels
from octavo.ops.gpu import kv, relay
from octavo.ops.gpu.device import Device, Tensor, empty, find
from octavo.ops.gpu.pieces import most_pieces

LOG2_E = 1.4426950408889634
FUSED_TOKENS = 16  # a sequence; steps of more store keys and values by a kernel of their own
MIX_DIMS = 32  # value dims that a program puts together


@dataclass(frozen=True)
class Launch:
    """How the kernel is cut: rows of a program, positions read at once, splits of the context."""

    rows: int
    positions: int
    splits: int
    warps: int
    stages: int
    registers: int = 0  # most of a thread; 0: as the compiler likes


def attend(
    q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer, batch: Batch, gate: Tensor | None = None
) -> Tensor:
    """See `octavo.ops.attend`."""
    n_tokens, n_heads = q.shape[:2]
    spec = layer.spec
    out = empty(n_tokens, n_heads * spec.value_dim)
    if not n_tokens:
        return out
    n_sequences, n_pages = batch.pages.shape
    launch = plan(find(), layer.format, spec, n_heads, n_tokens, n_sequences, n_pages)
    run(q, k, v, layer, batch, gate, out, launch)
    return out


def run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer: AttentionLayer,
    batch: Batch,
    gate: Tensor | None,
    out: Tensor,
    launch: Launch,
) -> None:
    """Attend with this launch; n_tokens > 0."""
    n_tokens, n_heads = q.shape[:2]
    n_sequences, n_pages = batch.pages.shape
    meaning: dict[str, Any] = {
        "LAYER": kv.layout(layer.format, layer.spec, n_heads),
        "ROWS": launch.rows,
        "N": launch.positions,
        "IS_GATED": gate is not None,
    }
    appends = n_tokens <= FUSED_TOKENS * n_sequences
    if not appends:
        append(k, v, layer, batch, n_heads)
    is_split = launch.splits > 1
    sums = empty(launch.splits, n_tokens, n_heads, layer.spec.value_dim) if is_split else out
    marks = empty(launch.splits, n_tokens, n_heads, 2) if is_split else out
    gates = out if gate is None else gate
    gate_strides = gates.stride()[:2]
    n_pieces = most_pieces(n_tokens, n_sequences, launch.rows // meaning["LAYER"].group)
    kernels.attend_rows[(launch.splits * layer.spec.n_kv_heads, n_pieces)](
        *(q, k, v, gates, layer.data, batch.starts, batch.n_past, batch.pages, sums, marks),
        (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *gate_strides),
        (n_tokens, n_sequences, n_pages),
        launch.splits,
        layer.spec.scale * LOG2_E,
        **meaning,
        IS_SPLIT=is_split,
        APPENDS=appends,
        num_warps=launch.warps,
        num_stages=launch.stages,
        **relay.options(),
        **({"maxnreg": launch.registers} if launch.registers else {}),
    )
    if is_split:
        dims = min(MIX_DIMS, meaning["LAYER"].padded_value_dim)
        kernels.mix[(n_tokens, n_heads, -(-layer.spec.value_dim // dims))](
            *(sums, marks, gates, out, batch.starts, batch.n_past),
            gate_strides,
            *(n_tokens, n_sequences, launch.splits),
            **meaning,
            DIMS=dims,
            **relay.options(),
        )


def append(k: Tensor, v: Tensor, layer: AttentionLayer, batch: Batch, n_heads: int) -> None:
    """Store k (T, K, d) and v (T, K, dv) in the pages of their sequences."""
    n_sequences, n_pages = batch.pages.shape
    # Pages that a sequence begins and ends in are counted once more than tokens fill.
    most = len(k) // PAGE_TOKENS + 2 * n_sequences
    kernels.append[(PAGE_TOKENS // kernels.APPEND_ROWS, layer.spec.n_kv_heads, most)](
        *(k, v, layer.data, batch.starts, batch.n_past, batch.pages),
        (*k.stride()[:2], *v.stride()[:2]),
        *(n_sequences, n_pages),
        LAYER=kv.layout(layer.format, layer.spec, n_heads),
    )


@cache
def plan(
    device: Device,
    name: str,
    spec: AttentionSpec,
    n_heads: int,
    n_tokens: int,
    n_sequences: int,
    n_pages: int,
) -> Launch:
    """How a step of that shape is cut on the device."""
    layout = kv.layout(name, spec, n_heads)
    group, dims = layout.group, max(layout.padded_key_dim, layout.padded_value_dim)
    tokens = -(-n_tokens // n_sequences)
    # A program holds its queries, keys and values of some positions, and twice that to read ahead.
    is_wide = dims >= 256
    positions = 32 if is_wide and device.shared_bytes < 150_000 else PAGE_TOKENS
    most_rows = 128
    if is_wide and device.shared_bytes < 150_000:
        most_rows = 64 if device.shared_bytes >= 90_000 else 32
    rows = max(16, power_of_2(group), min(most_rows, power_of_2(group * tokens)))
    n_programs = spec.n_kv_heads * most_pieces(n_tokens, n_sequences, rows // group)
    # Where reading is all the work, so much has to be asked for at once: by deep stages of one
    # program on a multiprocessor, or, where numbers have to be unpacked, by two programs.
    is_deep = rows == 16 and name == "f16" and device.shared_bytes > 200_000
    resident = 1 if rows > 16 or is_deep else 2
    wanted = max(1, resident * device.n_processors // n_programs)
    splits = min(wanted, max(1, n_pages * PAGE_TOKENS // kernels.LEAST_SPLIT))
    warps = 8 if is_deep or rows * dims >= 128 * 128 else 4
    # f32 is for comparisons: its keys and values of two stages are more than AMD's cards hold.
    stages = 1 if name == "f32" or 0 < device.arch < 80 else 3 if is_deep else 2
    return Launch(rows, positions, splits, warps, stages)
