"""The gated delta rule in chunks of 64 tokens (Gated DeltaNet, arXiv 2412.06464).

Within a chunk let G be the running sum of the log decays, K and V its keys and values, S the state
before it, and A[t, s] = beta_t e^(G_t - G_s) k_t . k_s for s < t. What the tokens write along their
keys is then U - W S, where U and W are (I + A)^-1 times beta V and beta e^G K. So all but the pass
of the state from chunk to chunk is done for all chunks at once, as products of matrices in half
precision with float32 sums: four kernels, `convolve`, `solve`, `pass_state` and `read_out`.

Scratch memory is for a run of chunks, `first_chunk` and following, counted through all sequences;
its rows are those of the chunks, 64 each. Letter R: rows of a run.
"""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu.pieces import find_piece
from octavo.ops.gpu.recur_kernels import (
    key_head_of,
    log_decay,
    only,
    put_window,
    silu,
    value_channel,
    window_after,
    window_before,
)

CHUNK_TOKENS = 64
_C = tl.constexpr(CHUNK_TOKENS)


@triton.jit
def _rows_of(chunk):
    """Rows of the scratch memory that belong to a chunk of the run."""
    return tl.cast(chunk, tl.int64) * _C + tl.arange(0, _C)


@triton.jit
def convolve(
    qkv, taps, conv, before, mixed, starts, n_past, slots, n_sequences, first_chunk, stride, eps,
    SPEC: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Convolution and SiLU of one head's queries, keys or values, the former two at length 1.

    `mixed` (R, channels), half.
    """
    KERNEL: tl.constexpr = SPEC.conv_kernel
    N_KEYS: tl.constexpr = 2 * SPEC.n_key_heads
    part = tl.program_id(0)
    sequence, chunk = find_piece(starts, n_sequences, first_chunk + tl.program_id(1), _C)
    if sequence < 0:
        return
    begin = tl.load(starts + sequence)
    end = tl.load(starts + sequence + 1)
    is_key = part < N_KEYS
    width = tl.where(is_key, SPEC.key_dim, SPEC.value_dim)
    i = tl.arange(0, D)
    channels = tl.where(is_key, part * SPEC.key_dim, value_channel(part - N_KEYS, SPEC)) + i
    is_channel = i < width
    rows = begin + chunk * _C + tl.arange(0, _C)
    if chunk == 0:
        slot = tl.load(slots + sequence)
        has_past = tl.load(n_past + sequence) > 0
        window = window_before(conv, slot, has_past, channels, is_channel, SPEC)
        put_window(before, sequence, window, channels, is_channel, SPEC)
        tl.debug_barrier()
    total = tl.zeros((_C, D), tl.float32)
    for tap in tl.static_range(KERNEL):
        factor = tl.load(taps + channels * KERNEL + tap, mask=is_channel, other=0.0)
        source = rows - (KERNEL - 1) + tap
        is_new = (source >= begin) & (source < end)
        at = qkv + tl.cast(source, tl.int64)[:, None] * stride + channels[None, :]
        x = tl.load(at, mask=is_new[:, None] & is_channel[None, :], other=0.0)
        if tap < KERNEL - 1:
            kept = sequence * (KERNEL - 1) + source - begin + KERNEL - 1
            at = before + kept[:, None] * SPEC.n_channels + channels[None, :]
            is_old = (source < begin)[:, None] & is_channel[None, :]
            x += tl.load(at, mask=is_old, other=0.0)
        total += factor[None, :] * x
    total = silu(total)
    length = tl.sqrt(tl.sum(total * total, axis=1) + eps)
    total = total / tl.where(is_key, length, 1.0)[:, None]
    at = mixed + _rows_of(tl.program_id(1))[:, None] * SPEC.n_channels + channels[None, :]
    tl.store(at, total.to(tl.float16), mask=(rows < end)[:, None] & is_channel[None, :])


@triton.jit
def _next_wanted(targets, last):
    """The first token after `last` of a chunk whose state is wanted, and its slot.

    Where there is none the slot is -1, which no store may follow.
    """
    i = tl.arange(0, _C)
    token = tl.min(tl.where((targets >= 0) & (i > last), i, _C), axis=0)
    return token, tl.max(tl.where(i == token, targets, -1), axis=0)


@triton.jit
def _inverse(a):
    """(I + a)^-1 of a strictly lower triangular (C, C), by blocks of 1, 2, 4 ... rows.

    Of two blocks on the diagonal, inverted, the block below between them is -second a first.
    """
    i = tl.arange(0, _C)[:, None]
    j = tl.arange(0, _C)[None, :]
    is_below = (i // 2 == j // 2) & (i > j)
    found = tl.where(i == j, 1.0, 0.0) - tl.where(is_below, a, 0.0)
    for level in tl.static_range(1, 6):
        is_below = (i >> (level + 1) == j >> (level + 1)) & (i >> level > j >> level)
        between = tl.where(is_below, a, 0.0).to(tl.float16)
        half = found.to(tl.float16)
        found -= tl.dot(tl.dot(half, between).to(tl.float16), half)
    return found


@triton.jit
def solve(
    qkv, mixed, alpha, beta, a, dt, conv, before, written, along, decays,
    starts, state_slots, n_sequences, first_chunk, strides,
    SPEC: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """U, W and G of a chunk's value head, and the windows of the convolution that are wanted.

    `written` (R, V, dv) and `along` (R, V, dk), half; `decays` (R, V).
    """
    head = tl.program_id(0)
    sequence, chunk = find_piece(starts, n_sequences, first_chunk + tl.program_id(1), _C)
    if sequence < 0:
        return
    begin = tl.load(starts + sequence)
    end = tl.load(starts + sequence + 1)
    first = begin + chunk * _C
    rows = first + tl.arange(0, _C)
    is_row = rows < end
    given = rows.to(tl.int64)
    at = _rows_of(tl.program_id(1))
    raw = tl.load(alpha + given * strides[1] + head, mask=is_row, other=0.0)
    logs = log_decay(raw, tl.load(a + head), tl.load(dt + head))
    sums = tl.cumsum(tl.where(is_row, logs, 0.0), axis=0)
    tl.store(decays + at * SPEC.n_value_heads + head, sums, mask=is_row)
    rate = tl.sigmoid(tl.load(beta + given * strides[2] + head, mask=is_row, other=0.0))
    key_head = key_head_of(head, SPEC)
    i, j = tl.arange(0, DK), tl.arange(0, DV)
    is_key = is_row[:, None] & (i < SPEC.key_dim)[None, :]
    is_value = is_row[:, None] & (j < SPEC.value_dim)[None, :]
    k_at = at[:, None] * SPEC.n_channels + (SPEC.n_key_heads + key_head) * SPEC.key_dim + i
    k = tl.load(mixed + k_at, mask=is_key, other=0.0)
    order = tl.arange(0, _C)
    decay = tl.exp(tl.minimum(sums[:, None] - sums[None, :], 0.0))
    products = tl.dot(k, tl.trans(k)) * decay * rate[:, None]
    inverse = _inverse(tl.where(order[:, None] > order[None, :], products, 0.0)).to(tl.float16)
    scaled = k.to(tl.float32) * (rate * tl.exp(sums))[:, None]
    w = tl.dot(inverse, scaled.to(tl.float16))
    w_at = (at[:, None] * SPEC.n_value_heads + head) * SPEC.key_dim + i
    tl.store(along + w_at, w.to(tl.float16), mask=is_key)
    v_at = at[:, None] * SPEC.n_channels + value_channel(head, SPEC) + j
    v = tl.load(mixed + v_at, mask=is_value, other=0.0).to(tl.float32) * rate[:, None]
    u_at = (at[:, None] * SPEC.n_value_heads + head) * SPEC.value_dim + j
    u = tl.dot(inverse, v.to(tl.float16))
    tl.store(written + u_at, u.to(tl.float16), mask=is_value)
    targets = tl.load(state_slots + rows, mask=is_row, other=-1)
    token = -1
    for _ in range(tl.sum((targets >= 0).to(tl.int32), axis=0)):
        token, target = _next_wanted(targets, token)
        args = qkv, strides[0], before, sequence, first + token, begin
        is_own = i < only(SPEC.key_dim, (head < SPEC.n_key_heads) & (target >= 0))
        is_put = j < only(SPEC.value_dim, target >= 0)
        q_here = head * SPEC.key_dim + i
        k_here = q_here + SPEC.n_key_heads * SPEC.key_dim
        v_here = value_channel(head, SPEC) + j
        q_window = window_after(*args, q_here, is_own, SPEC)
        k_window = window_after(*args, k_here, is_own, SPEC)
        v_window = window_after(*args, v_here, is_put, SPEC)
        put_window(conv, target, q_window, q_here, is_own, SPEC)
        put_window(conv, target, k_window, k_here, is_own, SPEC)
        put_window(conv, target, v_window, v_here, is_put, SPEC)


@triton.jit
def _first_chunk(starts, sequence):
    """The number of a sequence's first chunk, and its tokens begin:end."""
    index = 0
    begin = tl.load(starts)
    for s in range(sequence):
        after = tl.load(starts + s + 1)
        index += (after - begin + _C - 1) // _C
        begin = after
    return index, begin, tl.load(starts + sequence + 1)


@triton.jit
def _head_at(number, head, SPEC: tl.constexpr):
    """Where the head of a state begins, of the states that lie in a row."""
    HEAD_FLOATS: tl.constexpr = SPEC.key_dim * SPEC.value_dim
    return (tl.cast(number, tl.int64) * SPEC.n_value_heads + head) * HEAD_FLOATS


@triton.jit
def pass_state(
    mixed, written, along, decays, state, states, carried, starts, n_past, slots, state_slots,
    first_chunk, n_chunks, SPEC: tl.constexpr, DK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Take some columns of a sequence's state through its chunks, and store the last.

    `written` becomes what the tokens write; `states` (chunks, V, dk, dv), half, the states before.
    `carried` (2, V, dk, dv) holds what a sequence takes from the run before, and into the next.
    """
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    index, begin, end = _first_chunk(starts, sequence)
    n_own = (end - begin + _C - 1) // _C
    low = tl.maximum(first_chunk - index, 0)
    high = tl.minimum(first_chunk + n_chunks - index, n_own)
    if low >= high:
        return
    i = tl.arange(0, DK)
    is_key = (i < SPEC.key_dim)[:, None]
    is_column = (columns < SPEC.value_dim)[None, :]
    place = i[:, None] * SPEC.value_dim + columns[None, :]
    turn = first_chunk // n_chunks % 2
    if low > 0:
        own = carried + _head_at(turn, head, SPEC) + place
        held = tl.load(own, mask=is_key & is_column, other=0.0)
    else:
        has_past = tl.load(n_past + sequence) > 0
        is_held = (i < only(SPEC.key_dim, has_past))[:, None] & is_column
        own = state + _head_at(tl.load(slots + sequence), head, SPEC) + place
        held = tl.load(own, mask=is_held, other=0.0)
    k_first = (SPEC.n_key_heads + key_head_of(head, SPEC)) * SPEC.key_dim
    for chunk in range(low, high):
        local = index + chunk - first_chunk
        at = _rows_of(local)
        n = tl.minimum(end - begin - chunk * _C, _C)
        is_row = tl.arange(0, _C) < n
        half = held.to(tl.float16)
        tl.store(states + _head_at(local, head, SPEC) + place, half, mask=is_key & is_column)
        w_at = (at[:, None] * SPEC.n_value_heads + head) * SPEC.key_dim + i[None, :]
        is_w = is_row[:, None] & (i < SPEC.key_dim)[None, :]
        w = tl.load(along + w_at, mask=is_w, other=0.0)
        k_at = at[None, :] * SPEC.n_channels + k_first + i[:, None]
        k = tl.load(mixed + k_at, mask=is_row[None, :] & is_key, other=0.0)
        u_at = (at[:, None] * SPEC.n_value_heads + head) * SPEC.value_dim + columns[None, :]
        is_u = is_row[:, None] & is_column
        u = tl.load(written + u_at, mask=is_u, other=0.0)
        sums = tl.load(decays + at * SPEC.n_value_heads + head, mask=is_row, other=0.0)
        last = tl.cast(local, tl.int64) * _C + n - 1
        all_of_it = tl.load(decays + last * SPEC.n_value_heads + head)
        writes = u.to(tl.float32) - tl.dot(w, half)
        tl.store(written + u_at, writes.to(tl.float16), mask=is_u)
        writes *= tl.exp(tl.minimum(all_of_it - sums, 0.0))[:, None]
        held = tl.dot(k, writes.to(tl.float16), acc=held * tl.exp(all_of_it))
    if high < n_own:
        tl.store(carried + _head_at(1 - turn, head, SPEC) + place, held, mask=is_key & is_column)
    else:
        target = tl.load(state_slots + end - 1)
        if target >= 0:
            tl.store(state + _head_at(target, head, SPEC) + place, held, mask=is_key & is_column)


@triton.jit
def read_out(
    mixed, written, decays, states, z, norm, state, out, starts, state_slots, n_sequences,
    first_chunk, z_stride, eps, SPEC: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Outputs of a chunk's value head, normalised and gated, and states wanted within it."""
    head = tl.program_id(0)
    sequence, chunk = find_piece(starts, n_sequences, first_chunk + tl.program_id(1), _C)
    if sequence < 0:
        return
    end = tl.load(starts + sequence + 1)
    first = tl.load(starts + sequence) + chunk * _C
    rows = first + tl.arange(0, _C)
    is_row = rows < end
    at = _rows_of(tl.program_id(1))
    i, j = tl.arange(0, DK), tl.arange(0, DV)
    is_key = is_row[:, None] & (i < SPEC.key_dim)[None, :]
    is_value = is_row[:, None] & (j < SPEC.value_dim)[None, :]
    q_at = at[:, None] * SPEC.n_channels + key_head_of(head, SPEC) * SPEC.key_dim + i[None, :]
    q = tl.load(mixed + q_at, mask=is_key, other=0.0)
    k = tl.load(mixed + q_at + SPEC.n_key_heads * SPEC.key_dim, mask=is_key, other=0.0)
    sums = tl.load(decays + at * SPEC.n_value_heads + head, mask=is_row, other=0.0)
    place = i[:, None] * SPEC.value_dim + j[None, :]
    is_place = (i < SPEC.key_dim)[:, None] & (j < SPEC.value_dim)[None, :]
    own = states + _head_at(tl.program_id(1), head, SPEC)
    held = tl.load(own + place, mask=is_place, other=0.0)
    v_at = (at[:, None] * SPEC.n_value_heads + head) * SPEC.value_dim + j[None, :]
    writes = tl.load(written + v_at, mask=is_value, other=0.0)
    order = tl.arange(0, _C)
    decay = tl.exp(tl.minimum(sums[:, None] - sums[None, :], 0.0))
    local = tl.where(order[:, None] >= order[None, :], tl.dot(q, tl.trans(k)) * decay, 0.0)
    result = tl.dot(q, held) * tl.exp(sums)[:, None]
    result = tl.dot(local.to(tl.float16), writes, acc=result) * SPEC.key_dim**-0.5
    size = tl.sqrt(tl.sum(result * result, axis=1) / SPEC.value_dim + eps)
    weight = tl.load(norm + j, mask=j < SPEC.value_dim, other=0.0)
    given = rows.to(tl.int64)[:, None]
    z_at = given * z_stride + head * SPEC.value_dim + j[None, :]
    gate = silu(tl.load(z + z_at, mask=is_value, other=0.0))
    z_at = (given * SPEC.n_value_heads + head) * SPEC.value_dim + j[None, :]
    tl.store(out + z_at, result / size[:, None] * weight[None, :] * gate, mask=is_value)
    is_asked = is_row & (rows < end - 1)
    targets = tl.load(state_slots + rows, mask=is_asked, other=-1)
    token = -1
    for _ in range(tl.sum((targets >= 0).to(tl.int32), axis=0)):
        token, target = _next_wanted(targets, token)
        until = tl.sum(tl.where(order == token, sums, 0.0), axis=0)
        fades = tl.where(order <= token, tl.exp(tl.minimum(until - sums, 0.0)), 0.0)
        faded = (writes.to(tl.float32) * fades[:, None]).to(tl.float16)
        then = tl.dot(tl.trans(k), faded, acc=held.to(tl.float32) * tl.exp(until))
        is_wanted = (i < only(SPEC.key_dim, target >= 0))[:, None] & (j < SPEC.value_dim)[None, :]
        tl.store(state + _head_at(target, head, SPEC) + place, then, mask=is_wanted)
