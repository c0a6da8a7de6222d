"""The gated delta rule token by token, and what its two forms share.

`SPEC` is the layer's `RecurrentSpec`; DK and DV are its head widths, filled up to powers of two.
`before` (S, kernel - 1, channels) keeps what the convolution saw before the step: the slot that it
comes from may be the first that is written.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def log_decay(alpha, a, dt):
    """Logarithm of what a token leaves of the state."""
    x = alpha + dt
    return a * (tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x))))


@triton.jit
def only(n, condition):
    """n if the condition holds, else 0: a mask `i < only(n, c)` is one that c, a scalar, rules."""
    return tl.where(condition, n, 0)


@triton.jit
def key_head_of(head, SPEC: tl.constexpr):
    """The key head that a value head reads."""
    SHARED: tl.constexpr = SPEC.n_value_heads // SPEC.n_key_heads
    found = head % SPEC.n_key_heads if SPEC.tiled else head // SHARED
    return found


@triton.jit
def value_channel(head, SPEC: tl.constexpr):
    """The first channel of a value head."""
    return 2 * SPEC.n_key_heads * SPEC.key_dim + head * SPEC.value_dim


@triton.jit
def _window_rows(SPEC: tl.constexpr):
    """Rows of a window, (rows, 1); those from kernel - 1 on are beyond it."""
    ROWS: tl.constexpr = 4 if SPEC.conv_kernel <= 5 else 16
    return tl.arange(0, ROWS)[:, None]


@triton.jit
def window_before(conv, slot, has_past, channels, is_channel, SPEC: tl.constexpr):
    """What the convolution saw before the step; zeros where there was nothing."""
    rows = _window_rows(SPEC)
    is_held = is_channel[None, :] & (rows < only(SPEC.conv_kernel - 1, has_past))
    at = (slot.to(tl.int64) * (SPEC.conv_kernel - 1) + rows) * SPEC.n_channels
    return tl.load(conv + at + channels[None, :], mask=is_held, other=0.0)


@triton.jit
def window_after(
    qkv, stride, before, sequence, token, begin, channels, is_channel, SPEC: tl.constexpr
):
    """The last inputs of the convolution, after `token`."""
    rows = _window_rows(SPEC)
    source = token - (SPEC.conv_kernel - 2) + rows
    is_there = is_channel[None, :] & (rows < SPEC.conv_kernel - 1)
    at = qkv + source.to(tl.int64) * stride + channels[None, :]
    x = tl.load(at, mask=is_there & (source >= begin), other=0.0)
    kept = sequence * (SPEC.conv_kernel - 1) + source - begin + SPEC.conv_kernel - 1
    at = before + kept * SPEC.n_channels + channels[None, :]
    return x + tl.load(at, mask=is_there & (source < begin), other=0.0)


@triton.jit
def put_window(memory, place, window, channels, is_channel, SPEC: tl.constexpr):
    """Store a window as number `place` of those in memory."""
    rows = _window_rows(SPEC)
    is_there = is_channel[None, :] & (rows < SPEC.conv_kernel - 1)
    at = (tl.cast(place, tl.int64) * (SPEC.conv_kernel - 1) + rows) * SPEC.n_channels
    tl.store(memory + at + channels[None, :], window, mask=is_there)


@triton.jit
def _convolved(
    qkv, stride, taps, conv, slot, token, begin, has_past, channels, is_channel, SPEC: tl.constexpr
):
    """Some channels of a token after convolution and SiLU, in the shape of `channels`."""
    KERNEL: tl.constexpr = SPEC.conv_kernel
    total = channels * 0.0
    for tap in tl.static_range(KERNEL):
        row = token - (KERNEL - 1) + tap
        factor = tl.load(taps + channels * KERNEL + tap, mask=is_channel, other=0.0)
        is_new = is_channel & (channels < only(SPEC.n_channels, row >= begin))
        x = tl.load(qkv + tl.cast(row, tl.int64) * stride + channels, mask=is_new, other=0.0)
        if tap < KERNEL - 1:
            old = slot.to(tl.int64) * (KERNEL - 1) + row - begin + KERNEL - 1
            is_old = is_channel & (channels < only(SPEC.n_channels, (row < begin) & has_past))
            x += tl.load(conv + old * SPEC.n_channels + channels, mask=is_old, other=0.0)
        total += factor * x
    return silu(total)


@triton.jit
def _query_and_key(qkv, args, key_head, eps, SPEC: tl.constexpr, DK: tl.constexpr):
    """A token's query and key at length 1, (DK,) each.

    Both as one array: of arrays smaller than the program, Triton would have each thread load all
    that it multiplies with the state.
    """
    stride, taps, conv, slot, token, begin, has_past = args
    i = tl.arange(0, DK)[None, :]
    part = tl.arange(0, 2)[:, None]
    channels = (part * SPEC.n_key_heads + key_head) * SPEC.key_dim + i
    is_channel = (i < SPEC.key_dim) & (part < 2)
    x = _convolved(
        qkv, stride, taps, conv, slot, token, begin, has_past, channels, is_channel, SPEC
    )
    x = x / tl.sqrt(tl.sum(x * x, axis=1) + eps)[:, None]
    q = tl.sum(tl.where(part == 0, x, 0.0), axis=0)
    return q, tl.sum(tl.where(part == 1, x, 0.0), axis=0)


@triton.jit
def _store_windows(
    qkv, stride, before, conv, state_slots, sequence, begin, end,
    q_at, k_at, v_at, is_key, is_value, SPEC: tl.constexpr,
):  # fmt: skip
    """Store the windows of the convolution that tokens begin:end are asked for."""
    for token in range(begin, end):
        target = tl.load(state_slots + token)
        if target >= 0:
            args = qkv, stride, before, sequence, token, begin
            q_window = window_after(*args, q_at, is_key, SPEC)
            k_window = window_after(*args, k_at, is_key, SPEC)
            v_window = window_after(*args, v_at, is_value, SPEC)
            put_window(conv, target, q_window, q_at, is_key, SPEC)
            put_window(conv, target, k_window, k_at, is_key, SPEC)
            put_window(conv, target, v_window, v_at, is_value, SPEC)


@triton.jit
def recur_tokens(
    qkv, z, alpha, beta, taps, a, dt, norm, conv, state, before, counters,
    starts, n_past, slots, state_slots, out, strides, eps,
    SPEC: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """A value head of a sequence: convolution, norms, gates, state and gated norm in one.

    Value heads of one key head share its window of the convolution: whoever comes last stores it.
    """
    head = tl.program_id(0)
    sequence = tl.program_id(1)
    begin = tl.load(starts + sequence)
    end = tl.load(starts + sequence + 1)
    slot = tl.load(slots + sequence)
    has_past = tl.load(n_past + sequence) > 0
    if begin >= end:
        return
    i, j = tl.arange(0, DK), tl.arange(0, DV)
    is_key, is_value = i < SPEC.key_dim, j < SPEC.value_dim
    place = (i * SPEC.value_dim)[:, None] + j[None, :]
    is_place = is_key[:, None] & is_value[None, :]
    HEAD_FLOATS: tl.constexpr = SPEC.key_dim * SPEC.value_dim
    own = (slot.to(tl.int64) * SPEC.n_value_heads + head) * HEAD_FLOATS
    is_held = (i < only(SPEC.key_dim, has_past))[:, None] & is_value[None, :]
    held = tl.load(state + own + place, mask=is_held, other=0.0)
    key_head = key_head_of(head, SPEC)
    q_first = key_head * SPEC.key_dim
    k_first = q_first + SPEC.n_key_heads * SPEC.key_dim
    v_first = value_channel(head, SPEC)
    # All are loaded before the first is stored, which would wait for it alone.
    q_window = window_before(conv, slot, has_past, q_first + i, is_key, SPEC)
    k_window = window_before(conv, slot, has_past, k_first + i, is_key, SPEC)
    v_window = window_before(conv, slot, has_past, v_first + j, is_value, SPEC)
    put_window(before, sequence, q_window, q_first + i, is_key, SPEC)
    put_window(before, sequence, k_window, k_first + i, is_key, SPEC)
    put_window(before, sequence, v_window, v_first + j, is_value, SPEC)
    a_head, dt_head = tl.load(a + head), tl.load(dt + head)
    weight = tl.load(norm + j, mask=is_value, other=0.0)
    for token in range(begin, end):
        held = _one_token(
            held, qkv, z, alpha, beta, taps, conv, out, strides, eps, a_head, dt_head, weight,
            token, begin, slot, has_past, head, key_head, SPEC, DK, DV,
        )  # fmt: skip
        target = tl.load(state_slots + token)
        if target >= 0:
            at = (target.to(tl.int64) * SPEC.n_value_heads + head) * HEAD_FLOATS
            tl.store(state + at + place, held, mask=is_place)
    if SPEC.conv_kernel > 1:
        tl.debug_barrier()
        counter = counters + sequence * SPEC.n_key_heads + key_head
        n_done = tl.atomic_add(counter, 1)
        is_last = n_done == SPEC.n_value_heads // SPEC.n_key_heads - 1
        if is_last:
            tl.store(counter, 0)
        is_key = i < only(SPEC.key_dim, is_last)
        _store_windows(
            qkv, strides[0], before, conv, state_slots, sequence, begin, end,
            q_first + i, k_first + i, v_first + j, is_key, is_value, SPEC,
        )  # fmt: skip


@triton.jit
def _one_token(
    held, qkv, z, alpha, beta, taps, conv, out, strides, eps, a, dt, weight,
    token, begin, slot, has_past, head, key_head,
    SPEC: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Stores the token's output; gives the state (DK, DV) after it."""
    SCALE: tl.constexpr = SPEC.key_dim**-0.5
    j = tl.arange(0, DV)
    is_value = j < SPEC.value_dim
    args = strides[0], taps, conv, slot, token, begin, has_past
    q, k = _query_and_key(qkv, args, key_head, eps, SPEC, DK)
    q *= SCALE
    v = _convolved(qkv, *args, value_channel(head, SPEC) + j, is_value, SPEC)
    row = tl.cast(token, tl.int64)
    decay = tl.exp(log_decay(tl.load(alpha + row * strides[2] + head), a, dt))
    rate = tl.sigmoid(tl.load(beta + row * strides[3] + head))
    read = decay * tl.sum(held * k[:, None], axis=0)
    asked = decay * tl.sum(held * q[:, None], axis=0)
    write = rate * (v - read)
    result = asked + tl.sum(k * q, axis=0) * write
    at = head * SPEC.value_dim + j
    gate = tl.load(z + row * strides[1] + at, mask=is_value, other=0.0)
    result = result / tl.sqrt(tl.sum(result * result, axis=0) / SPEC.value_dim + eps)
    at += row * (SPEC.n_value_heads * SPEC.value_dim)
    tl.store(out + at, result * weight * silu(gate), mask=is_value)
    return held * decay + k[:, None] * write[None, :]
