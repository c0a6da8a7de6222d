"""Rows of a table of embeddings."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu import quants, relay
from octavo.ops.gpu.device import Tensor, empty
from octavo.ops.gpu.rows import SPAN, unpack
from octavo.ops.gpu.weights import device_bytes
from octavo.ops.weight import Weight


@triton.jit
def _embed(
    data, ids, out, table, columns, scale,
    parts: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr,
    SPANS: tl.constexpr,
):  # fmt: skip
    relay.take_over()
    t, first = tl.program_id(1), tl.program_id(0) * SPANS
    n_blocks = columns // ELEMENTS
    row = tl.load(ids + t + tl.arange(0, 1)).to(tl.int64)
    rows = data + row * (n_blocks * BYTES)
    values = unpack(rows, table, n_blocks, first, parts, HAS_OFFSET, SPANS) * scale
    k = first * 128 + tl.arange(0, SPANS * 128)
    tl.store(out + t.to(tl.int64) * columns + k[None, :], values, mask=(k < columns)[None, :])


def embed(table: Weight, ids: Tensor, scale: float = 1.0) -> Tensor:
    """See `octavo.ops.embed`."""
    form = quants.find(table.format)
    columns = table.shape[1]
    out = empty(len(ids), columns)
    if len(ids) == 0:
        return out
    spans = min(4, triton.next_power_of_2(triton.cdiv(columns, SPAN)))
    grid = (triton.cdiv(columns, SPAN * spans), len(ids))
    _embed[grid](
        device_bytes(table), ids, out, form.table, columns, float(scale), form.parts,
        form.has_offset, form.block_elements, form.block_bytes, spans, num_warps=4,
        **relay.options(),
    )  # fmt: skip
    return out
