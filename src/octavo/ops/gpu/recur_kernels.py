"""The gated delta rule token by token, and what its two forms share.

`SPEC` is the layer's `RecurrentSpec`; DK and DV are its head widths, filled up to powers of two.
`before` (S, kernel - 1, channels) keeps what the convolution saw before the step: the slot that it
comes from may be the first that is written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.ops.gpu import relay


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
def value_head_of(key_head, nth, SPEC: tl.constexpr):
    """Value head number `nth` of those that read a key head."""
    SHARED: tl.constexpr = SPEC.n_value_heads // SPEC.n_key_heads
    found = nth * SPEC.n_key_heads + key_head if SPEC.tiled else key_head * SHARED + nth
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
def _query_and_key(qkv, args, key_head, SPEC: tl.constexpr, DK: tl.constexpr):
    """A token's query and key after the convolution, (2, DK).

    Both as one array: of arrays smaller than the program, Triton would have each thread load all
    that it multiplies with the state.
    """
    i = tl.arange(0, DK)[None, :]
    part = tl.arange(0, 2)[:, None]
    channels = (part * SPEC.n_key_heads + key_head) * SPEC.key_dim + i
    return _convolved(qkv, *args, channels, (i < SPEC.key_dim) & (part < 2), SPEC)


@triton.jit
def _at_length_1(both, eps):
    """The rows of (2, DK), each at length 1."""
    part = tl.arange(0, 2)[:, None]
    both = both / tl.sqrt(tl.sum(both * both, axis=1) + eps)[:, None]
    first = tl.sum(tl.where(part == 0, both, 0.0), axis=0)
    return first, tl.sum(tl.where(part == 1, both, 0.0), axis=0)


@triton.jit
def _put_windows(memory, place, windows, at, is_key, is_value, SPEC: tl.constexpr):
    """Store windows of query, key and value, of channels `at`, as number `place` in memory."""
    put_window(memory, place, windows[0], at[0], is_key, SPEC)
    put_window(memory, place, windows[1], at[1], is_key, SPEC)
    put_window(memory, place, windows[2], at[2], is_value, SPEC)


@triton.jit
def _store_windows(
    qkv, stride, before, conv, state_slots, sequence, begin, end, at, is_key, is_value,
    SPEC: tl.constexpr,
):  # fmt: skip
    """Store the windows of the convolution that tokens begin:end are asked for."""
    q_at, k_at, v_at = at
    for token in range(begin, end):
        target = tl.load(state_slots + token)
        if target >= 0:
            args = qkv, stride, before, sequence, token, begin
            q_window = window_after(*args, q_at, is_key, SPEC)
            k_window = window_after(*args, k_at, is_key, SPEC)
            v_window = window_after(*args, v_at, is_value, SPEC)
            windows = q_window, k_window, v_window
            _put_windows(conv, target, windows, at, is_key, is_value, SPEC)


@triton.jit
def _is_last(counter, SPEC: tl.constexpr, COLUMNS: tl.constexpr):
    """Whether all other programs of the key head have come here; their outputs may then be read."""
    GROUPS: tl.constexpr = (SPEC.value_dim + COLUMNS - 1) // COLUMNS  # Triton 3.6 has no cdiv here
    N_PROGRAMS: tl.constexpr = SPEC.n_value_heads // SPEC.n_key_heads * GROUPS
    tl.debug_barrier()
    is_last = tl.atomic_add(counter, 1) == N_PROGRAMS - 1
    if is_last:
        tl.store(counter, 0)
    return is_last


@triton.jit
def _gated_norms(
    out, z, z_stride, norm, eps, key_head, begin, end, SPEC: tl.constexpr, DV: tl.constexpr
):
    """Normalise and gate what `out` holds for tokens begin:end and a key head's value heads."""
    SHARED: tl.constexpr = SPEC.n_value_heads // SPEC.n_key_heads
    ROWS: tl.constexpr = 8
    j = tl.arange(0, DV)[None, :]
    for first in range(begin * SHARED, end * SHARED, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        token = (row // SHARED).to(tl.int64)
        head = value_head_of(key_head, row % SHARED, SPEC)
        is_there = (row < end * SHARED) & (j < SPEC.value_dim)
        at = head * SPEC.value_dim + j
        # In the tile's shape: one row of it would have to be passed between threads.
        weight = tl.load(norm + row * 0 + j, mask=is_there, other=0.0)
        gate = tl.load(z + token * z_stride + at, mask=is_there, other=0.0)
        own = out + token * (SPEC.n_value_heads * SPEC.value_dim) + at
        # Not from the processor's own cache: other processors have written it.
        x = tl.load(own, mask=is_there, other=0.0, cache_modifier=".cg")
        x = x / tl.sqrt(tl.sum(x * x, axis=1) / SPEC.value_dim + eps)[:, None]
        tl.store(own, x * weight * silu(gate), mask=is_there)


@triton.jit
def _store_state(held, state, state_slots, token, place, is_place, FLOATS: tl.constexpr):
    """Store the state after `token` if it is asked for."""
    target = tl.load(state_slots + token)
    if target >= 0:
        tl.store(state + target.to(tl.int64) * FLOATS + place, held, mask=is_place)


@triton.jit
def recur_tokens(
    qkv, z, alpha, beta, taps, a, dt, norm, conv, state, before, counters,
    starts, n_past, slots, state_slots, out, strides, eps,
    SPEC: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """COLUMNS of a value head's state, in a sequence: from the convolution to the gated norm.

    Programs of one key head share its window of the convolution, and those of one value head its
    norm: whoever comes last of a key head's programs does both. None waits for another.
    """
    relay.take_over()
    head = tl.program_id(0)
    sequence = tl.program_id(2)
    begin = tl.load(starts + sequence)
    end = tl.load(starts + sequence + 1)
    slot = tl.load(slots + sequence)
    has_past = tl.load(n_past + sequence) > 0
    if begin >= end:
        return
    i, j = tl.arange(0, DK), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_key, is_value = i < SPEC.key_dim, j < SPEC.value_dim
    place = ((head * SPEC.key_dim + i) * SPEC.value_dim)[:, None] + j[None, :]
    is_place = is_key[:, None] & is_value[None, :]
    FLOATS: tl.constexpr = SPEC.n_value_heads * SPEC.key_dim * SPEC.value_dim
    is_held = (i < only(SPEC.key_dim, has_past))[:, None] & is_value[None, :]
    held = tl.load(state + slot.to(tl.int64) * FLOATS + place, mask=is_held, other=0.0)
    key_head = key_head_of(head, SPEC)
    q_at = key_head * SPEC.key_dim + i
    k_at = q_at + SPEC.n_key_heads * SPEC.key_dim
    at = q_at, k_at, value_channel(head, SPEC) + j
    # Loaded with the state, and stored after the tokens, which need not wait for them.
    q_window = window_before(conv, slot, has_past, at[0], is_key, SPEC)
    k_window = window_before(conv, slot, has_past, at[1], is_key, SPEC)
    v_window = window_before(conv, slot, has_past, at[2], is_value, SPEC)
    a_head, dt_head = tl.load(a + head), tl.load(dt + head)
    for token in range(begin, end):
        if token > begin:
            _store_state(held, state, state_slots, token - 1, place, is_place, FLOATS)
        held = _one_token(
            held, qkv, alpha, beta, taps, conv, out, strides, eps, a_head, dt_head,
            token, begin, slot, has_past, head, key_head, at[2], j, is_value, SPEC, DK,
        )  # fmt: skip
    windows = q_window, k_window, v_window
    _put_windows(before, sequence, windows, at, is_key, is_value, SPEC)
    is_last = _is_last(counters + sequence * SPEC.n_key_heads + key_head, SPEC, COLUMNS)
    # Not before the count, which has to wait for all that was stored.
    _store_state(held, state, state_slots, end - 1, place, is_place, FLOATS)
    if is_last:
        _gated_norms(out, z, strides[1], norm, eps, key_head, begin, end, SPEC, DV)
    if SPEC.conv_kernel > 1:
        is_key = i < only(SPEC.key_dim, is_last)
        _store_windows(
            qkv, strides[0], before, conv, state_slots, sequence, begin, end, at, is_key, is_value,
            SPEC,
        )  # fmt: skip


@triton.jit
def _one_token(
    held, qkv, alpha, beta, taps, conv, out, strides, eps, a, dt,
    token, begin, slot, has_past, head, key_head, v_at, j, is_value,
    SPEC: tl.constexpr, DK: tl.constexpr,
):  # fmt: skip
    """Stores the token's output before its norm; gives the state (DK, columns j) after it."""
    SCALE: tl.constexpr = SPEC.key_dim**-0.5
    row = tl.cast(token, tl.int64)
    args = strides[0], taps, conv, slot, token, begin, has_past
    # All is loaded before the first sum over threads, which would have later loads wait for it.
    decay = tl.exp(log_decay(tl.load(alpha + row * strides[2] + head), a, dt))
    rate = tl.sigmoid(tl.load(beta + row * strides[3] + head))
    both = _query_and_key(qkv, args, key_head, SPEC, DK)
    v = _convolved(qkv, *args, v_at, is_value, SPEC)
    q, k = _at_length_1(both, eps)
    q *= SCALE
    read = decay * tl.sum(held * k[:, None], axis=0)
    asked = decay * tl.sum(held * q[:, None], axis=0)
    write = rate * (v - read)
    at = (row * SPEC.n_value_heads + head) * SPEC.value_dim + j
    tl.store(out + at, asked + tl.sum(k * q, axis=0) * write, mask=is_value)
    return held * decay + k[:, None] * write[None, :]
