"""The kernels of `attend`: storing keys and values, attending, putting splits together."""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.kv.state import PAGE_TOKENS
from octavo.ops.gpu import relay
from octavo.ops.gpu.pieces import find_piece, find_sequence

LEAST_SPLIT = 128  # positions: what is read in less time than a split costs
APPEND_ROWS = 16  # positions that are stored at once
_POSITIONS = tl.constexpr(PAGE_TOKENS)
_LEAST_SPLIT = tl.constexpr(LEAST_SPLIT)
_APPEND_ROWS = tl.constexpr(APPEND_ROWS)
_MIX_SPLITS = tl.constexpr(128)  # splits that are put together at once


@triton.jit
def _stretch(past, first, end, splits, WINDOW: tl.constexpr, N: tl.constexpr):
    """What tokens first:end of a sequence see, in blocks of N positions.

    Gives the first block, the end, and how many a split takes.
    """
    last = (past + end + N - 1) // N
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(past + first - WINDOW + 1, 0) // N
    return begin, last, tl.maximum((last - begin + splits - 1) // splits, _LEAST_SPLIT // N)


@triton.jit
def _store(
    k,
    v,
    data,
    table,
    token,
    low,
    high,
    head,
    strides,
    LAYER: tl.constexpr,
):
    """Store one key head at positions low:high of a sequence, whose position 0 is row `token`."""
    DIM: tl.constexpr = LAYER.key_dim
    D: tl.constexpr = LAYER.padded_key_dim
    VDIM: tl.constexpr = LAYER.value_dim
    DV: tl.constexpr = LAYER.padded_value_dim
    k_token, k_head, v_token, v_head = strides
    k += head * k_head
    v += head * v_head
    dims = tl.arange(0, D)[None, :]
    value_dims = tl.arange(0, DV)[None, :]
    for at in range(low // _APPEND_ROWS * _APPEND_ROWS, high, _APPEND_ROWS):
        positions = at + tl.arange(0, _APPEND_ROWS)
        is_new = (positions >= low) & (positions < high)
        tokens = (token + positions).to(tl.int64)[:, None]
        block = data + tl.load(table + at // _POSITIONS).to(tl.int64) * LAYER.page_bytes
        in_page = positions % _POSITIONS
        x = tl.load(k + tokens * k_token + dims, mask=is_new[:, None] & (dims < DIM), other=0.0)
        LAYER.write_keys(block + head * LAYER.key_bytes, in_page, is_new, x, DIM, D)
        mask = is_new[:, None] & (value_dims < VDIM)
        x = tl.load(v + tokens * v_token + value_dims, mask=mask, other=0.0)
        block += LAYER.kv_heads * LAYER.key_bytes + head * LAYER.value_bytes
        LAYER.write_values(block, in_page, is_new, x, VDIM, DV)


@triton.jit
def append(
    k,
    v,
    data,
    starts,
    n_past,
    pages,
    strides,
    n_sequences,
    n_pages,
    LAYER: tl.constexpr,
):
    """Store one key head's keys and values of some positions of a page that the step reaches."""
    head = tl.program_id(1)
    index = tl.program_id(2)
    first = 0
    for s in range(n_sequences):
        past = tl.load(n_past + s)
        begin = tl.load(starts + s)
        end = past + tl.load(starts + s + 1) - begin
        n = tl.where(end > past, (end - 1) // _POSITIONS - past // _POSITIONS + 1, 0)
        if (index >= first) & (index < first + n):
            page = past // _POSITIONS + index - first
            low = page * _POSITIONS + tl.program_id(0) * _APPEND_ROWS
            _store(
                k,
                v,
                data,
                pages + s * n_pages,
                begin - past,
                tl.maximum(low, past),
                tl.minimum(low + _APPEND_ROWS, end),
                head,
                strides,
                LAYER,
            )
        first += n


@triton.jit
def _read(
    queries,
    positions,
    data,
    table,
    low,
    high,
    end,
    head,
    LAYER: tl.constexpr,
    ROWS: tl.constexpr,
    N: tl.constexpr,
):
    """Attend with queries (ROWS, d), scaled for powers of two, to blocks low:high.

    Gives the sums of weighted values (ROWS, dv), the sums of weights and the largest scores.
    """
    DIM: tl.constexpr = LAYER.key_dim
    D: tl.constexpr = LAYER.padded_key_dim
    VDIM: tl.constexpr = LAYER.value_dim
    DV: tl.constexpr = LAYER.padded_value_dim
    largest = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, DV), tl.float32)
    # One ahead: a load that waits for another in the same turn could not be begun turns before.
    number = tl.load(table + low * N // _POSITIONS)
    for block in range(low, high):
        at = block * N
        page = data + number.to(tl.int64) * LAYER.page_bytes
        number = tl.load(table + tl.minimum(block + 1, high - 1) * N // _POSITIONS)
        # So written, it is seen to be a multiple of N.
        in_page = tl.cast(block, tl.int32) % (_POSITIONS // N) * N
        keys = LAYER.load_keys(page + head * LAYER.key_bytes, in_page, DIM, D, N)
        scores = tl.dot(queries, keys, input_precision="ieee")
        ahead = positions[:, None] - (at + tl.arange(0, N))[None, :]
        is_seen = ahead >= 0
        if LAYER.window > 0:
            is_seen = is_seen & (ahead < LAYER.window)
        scores = tl.where(is_seen, scores, -float("inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        # A row that has seen nothing yet has no largest score to subtract.
        shift = tl.where(new == -float("inf"), 0.0, new)
        weights = tl.exp2(scores - shift[:, None])
        old = tl.exp2(largest - shift)
        total = total * old + tl.sum(weights, axis=1)
        page += LAYER.kv_heads * LAYER.key_bytes + head * LAYER.value_bytes
        values = LAYER.load_values(page, in_page, end - at + in_page, VDIM, DV, N)
        mixed = tl.dot(
            weights.to(queries.dtype), values, acc=mixed * old[:, None], input_precision="ieee"
        )
        largest = new
    return mixed, total, largest


@triton.jit
def attend_rows(
    q, k, v, gates, data, starts, n_past, pages, out, marks, strides, sizes, splits, scale,
    LAYER: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr, IS_SPLIT: tl.constexpr,
    APPENDS: tl.constexpr, IS_GATED: tl.constexpr,
):  # fmt: skip
    """A piece of a sequence, one key head, one split of the context.

    Without splits `out` (T, H, dv) gets the result; with splits `out` (splits, T, H, dv) the sums
    of the weighted values and `marks` (splits, T, H, 2) the largest score and the sum of weights.
    """
    TOKENS: tl.constexpr = ROWS // LAYER.group
    relay.take_over()
    head = tl.program_id(0) // splits
    # The pieces that see most come first, so that none of them is left for the end.
    index = tl.num_programs(1) - 1 - tl.program_id(1)
    sequence, piece = find_piece(starts, sizes[1], index, TOKENS)
    if sequence < 0:
        return
    q_token, q_head, k_token, k_head, v_token, v_head, gate_token, gate_head = strides
    begin = tl.load(starts + sequence)
    past = tl.load(n_past + sequence)
    first = piece * TOKENS
    end = tl.minimum(first + TOKENS, tl.load(starts + sequence + 1) - begin)
    seen, last, share = _stretch(past, first, end, splits, LAYER.window, N)
    low = seen + tl.program_id(0) % splits * share
    high = tl.minimum(low + share, last)
    if low >= high:
        return
    table = pages + sequence * sizes[2]
    if APPENDS:
        _store(
            k, v, data, table, begin - past, tl.maximum(low * N, past),
            tl.minimum(high * N, past + end), head, (k_token, k_head, v_token, v_head), LAYER,
        )  # fmt: skip
        tl.debug_barrier()
    rows = tl.arange(0, ROWS)
    token = first + rows // LAYER.group
    is_row = (rows < TOKENS * LAYER.group) & (token < end)
    row_head = head * LAYER.group + rows % LAYER.group
    at = (begin + token).to(tl.int64)
    dims = tl.arange(0, LAYER.padded_key_dim)[None, :]
    q += (at * q_token + row_head * q_head)[:, None] + dims
    queries = tl.load(q, mask=is_row[:, None] & (dims < LAYER.key_dim), other=0.0)
    mixed, total, largest = _read(
        (queries * scale).to(LAYER.operand), past + token, data, table, low, high, past + end,
        head, LAYER, ROWS, N,
    )  # fmt: skip
    row = at * (LAYER.kv_heads * LAYER.group) + row_head
    value_dims = tl.arange(0, LAYER.padded_value_dim)[None, :]
    mask = is_row[:, None] & (value_dims < LAYER.value_dim)
    if not IS_SPLIT:
        mixed = mixed / total[:, None]
        if IS_GATED:
            gate_at = (at * gate_token + row_head * gate_head)[:, None] + value_dims
            mixed = mixed * tl.sigmoid(tl.load(gates + gate_at, mask=mask, other=0.0))
    else:
        row += (tl.program_id(0) % splits).to(tl.int64) * sizes[0] * (LAYER.kv_heads * LAYER.group)
        tl.store(marks + row * 2, largest, mask=is_row)
        tl.store(marks + row * 2 + 1, total, mask=is_row)
    tl.store(out + row[:, None] * LAYER.value_dim + value_dims, mixed, mask=mask)


@triton.jit
def mix(
    sums,
    marks,
    gates,
    out,
    starts,
    n_past,
    gate_strides,
    n_tokens,
    n_sequences,
    splits,
    LAYER: tl.constexpr,
    DIMS: tl.constexpr,
    ROWS: tl.constexpr,
    N: tl.constexpr,
    IS_GATED: tl.constexpr,
):
    """Put the splits of some value dims of a token's head together, in order."""
    HEADS: tl.constexpr = LAYER.kv_heads * LAYER.group
    TOKENS: tl.constexpr = ROWS // LAYER.group
    relay.take_over()
    token = tl.program_id(0)
    head = tl.program_id(1)
    sequence = find_sequence(starts, n_sequences, token)
    begin = tl.load(starts + sequence)
    first = (token - begin) // TOKENS * TOKENS
    end = tl.minimum(first + TOKENS, tl.load(starts + sequence + 1) - begin)
    seen, last, share = _stretch(tl.load(n_past + sequence), first, end, splits, LAYER.window, N)
    n_used = (last - seen + share - 1) // share
    dims = tl.program_id(2) * DIMS + tl.arange(0, DIMS)
    is_dim = dims < LAYER.value_dim
    largest = -float("inf")
    total = 0.0
    mixed = tl.zeros((DIMS,), tl.float32)
    for at in range(0, n_used, _MIX_SPLITS):
        split = at + tl.arange(0, _MIX_SPLITS)
        is_used = split < n_used
        row = (split.to(tl.int64) * n_tokens + token) * HEADS + head
        marked = tl.load(marks + row * 2, mask=is_used, other=-float("inf"))
        weight = tl.load(marks + row * 2 + 1, mask=is_used, other=0.0)
        new = tl.maximum(largest, tl.max(marked, axis=0))
        shift = tl.where(new == -float("inf"), 0.0, new)
        factors = tl.exp2(marked - shift)
        old = tl.exp2(largest - shift)
        part = tl.load(
            sums + row[:, None] * LAYER.value_dim + dims[None, :],
            mask=is_used[:, None] & is_dim[None, :],
            other=0.0,
        )
        mixed = mixed * old + tl.sum(part * factors[:, None], axis=0)
        total = total * old + tl.sum(weight * factors, axis=0)
        largest = new
    mixed = mixed / total
    if IS_GATED:
        gate = tl.load(
            gates + token * gate_strides[0] + head * gate_strides[1] + dims, mask=is_dim, other=0.0
        )
        mixed = mixed * tl.sigmoid(gate)
    tl.store(out + (token.to(tl.int64) * HEADS + head) * LAYER.value_dim + dims, mixed, mask=is_dim)
