"""The pieces that architectures are made of. Fields carry GGUF's tensor names.

A block adds two branches to the residual stream. The addition is left to the next norm, which
does it in the same pass: so a block takes and gives the pair (stream, branch still to be added).
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from octavo import ops
from octavo.kv.batch import Batch
from octavo.kv.layers import AttentionLayer, CacheLayer, RecurrentLayer
from octavo.kv.state import AttentionSpec, RecurrentSpec
from octavo.models.config import Config
from octavo.models.source import WeightSource, as_floats
from octavo.ops import Array, Ids
from octavo.ops.weight import ExpertBank, RecurWeights, RopeTable, RouteRule, Weight
from octavo.record import dataclass


class Mixer(Protocol):
    """Attention or delta net: x (T, D), normalised -> (T, D)."""

    def __call__(self, x: Array, batch: Batch, layer: CacheLayer) -> Array: ...


class FeedForward(Protocol):
    """x (T, D), normalised -> (T, D)."""

    def __call__(self, x: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class Attention:
    """Grouped-query attention; q/k norms and an output gate where the architecture has them.

    With a gate, the rows of `attn_q` are per head: its query, then its gate.
    """

    attn_q: Weight
    attn_k: Weight
    attn_v: Weight
    attn_output: Weight
    attn_q_norm: Weight | None
    attn_k_norm: Weight | None
    spec: AttentionSpec
    rope: RopeTable
    n_heads: int
    eps: float
    is_gated: bool

    def __call__(self, x: Array, batch: Batch, layer: CacheLayer) -> Array:
        assert isinstance(layer, AttentionLayer), "an attention block needs an attention cache"
        n = batch.n_tokens
        q, k, v = ops.linear(x, self.attn_q, self.attn_k, self.attn_v)
        q = q.reshape(n, self.n_heads, -1)
        k = k.reshape(n, self.spec.n_kv_heads, -1)
        v = v.reshape(n, self.spec.n_kv_heads, -1)
        gate = q[:, :, self.spec.key_dim :] if self.is_gated else None
        q = q[:, :, : self.spec.key_dim]
        norms = None
        if self.attn_q_norm is not None and self.attn_k_norm is not None:
            norms = self.attn_q_norm, self.attn_k_norm
        q, k = ops.rope(q, k, batch.positions, self.rope, norms, self.eps)
        return ops.linear(ops.attend(q, k, v, layer, batch, gate), self.attn_output)


@dataclass(frozen=True, eq=False)
class DeltaNet:
    """Gated delta net: projections, short convolution and recurrence, output projection."""

    attn_qkv: Weight
    attn_gate: Weight
    ssm_alpha: Weight
    ssm_beta: Weight
    recur: RecurWeights
    ssm_out: Weight

    def __call__(self, x: Array, batch: Batch, layer: CacheLayer) -> Array:
        assert isinstance(layer, RecurrentLayer), "a delta-net block needs a recurrent state"
        qkv, z, alpha, beta = ops.linear(
            x, self.attn_qkv, self.attn_gate, self.ssm_alpha, self.ssm_beta
        )
        return ops.linear(ops.recur(qkv, z, alpha, beta, self.recur, layer, batch), self.ssm_out)


@dataclass(frozen=True, eq=False)
class Dense:
    """The feed-forward layer of a dense model."""

    ffn_gate: Weight
    ffn_up: Weight
    ffn_down: Weight
    kind: str

    def __call__(self, x: Array) -> Array:
        return ops.glu(x, self.ffn_gate, self.ffn_up, self.ffn_down, self.kind)


@dataclass(frozen=True, eq=False)
class SharedExpert:
    """The expert that every token passes, weighted by a sigmoid where there is a gate vector."""

    ffn_gate_shexp: Weight
    ffn_up_shexp: Weight
    ffn_down_shexp: Weight
    ffn_gate_inp_shexp: Weight

    def __call__(self, x: Array) -> Array:
        return ops.glu(
            x,
            self.ffn_gate_shexp,
            self.ffn_up_shexp,
            self.ffn_down_shexp,
            "silu",
            self.ffn_gate_inp_shexp,
        )


@dataclass(frozen=True, eq=False)
class Moe:
    """Routed experts, plus a shared one where the architecture has it."""

    ffn_gate_inp: Weight
    bank: ExpertBank
    rule: RouteRule
    shared: SharedExpert | None

    def __call__(self, x: Array) -> Array:
        ids, weights = ops.route(x, self.ffn_gate_inp, self.rule)
        beside = None if self.shared is None else partial(self.shared, x)
        return ops.experts(x, self.bank, ids, weights, beside)


@dataclass(frozen=True, eq=False)
class Block:
    """Norm, mixer, norm, feed-forward. The `after` norms act on a branch before it is added."""

    norm: Weight
    mixer: Mixer
    ffn_norm: Weight
    ffn: FeedForward
    eps: float
    after_mixer: Weight | None = None
    after_ffn: Weight | None = None

    def __call__(
        self,
        stream: Array,
        branch: Array | None,
        batch: Batch,
        layer: CacheLayer,
        only: Ids | None = None,
    ) -> tuple[Array, Array]:
        """(stream, branch) before -> after; the residual stream is their sum.

        With `only`, just those rows go on after the mixer: what the last block's feed-forward
        would do to the others, nobody reads.
        """
        if branch is None:
            x = ops.norm(stream, self.norm, self.eps)
        else:
            x, stream = ops.norm(branch, self.norm, self.eps, stream)
        mixed = self.mixer(x, batch, layer)
        if only is not None and len(only) == 0:
            return mixed[:0], mixed[:0]
        if only is not None:
            mixed = ops.take(mixed, only, self.norm.backend)
            stream = ops.take(stream, only, self.norm.backend)
        if self.after_mixer is not None:
            mixed = ops.norm(mixed, self.after_mixer, self.eps)
        x, stream = ops.norm(mixed, self.ffn_norm, self.eps, stream)
        branch = self.ffn(x)
        if self.after_ffn is not None:
            branch = ops.norm(branch, self.after_ffn, self.eps)
        return stream, branch


def norm_weight(weights: WeightSource, name: str, width: int) -> Weight:
    """The weight of a norm, as float32 whatever its format."""
    return as_floats(weights(f"{name}.weight", (width,)))


def attention(
    config: Config,
    weights: WeightSource,
    i: int,
    rope: RopeTable,
    *,
    qk_norm: bool = False,
    is_gated: bool = False,
) -> Attention:
    """The attention of block `i`, whose spec is `config.layers[i]`."""
    spec = config.layers[i]
    assert isinstance(spec, AttentionSpec), "block i is not an attention block"
    d, q_rows = config.n_embd, config.n_heads * spec.key_dim
    gate_rows = config.n_heads * spec.value_dim if is_gated else 0
    at = f"blk.{i}"

    def head_norm(name: str) -> Weight | None:
        return norm_weight(weights, f"{at}.{name}", spec.key_dim) if qk_norm else None

    return Attention(
        attn_q=weights(f"{at}.attn_q.weight", (q_rows + gate_rows, d)),
        attn_k=weights(f"{at}.attn_k.weight", (spec.n_kv_heads * spec.key_dim, d)),
        attn_v=weights(f"{at}.attn_v.weight", (spec.n_kv_heads * spec.value_dim, d)),
        attn_output=weights(f"{at}.attn_output.weight", (d, config.n_heads * spec.value_dim)),
        attn_q_norm=head_norm("attn_q_norm"),
        attn_k_norm=head_norm("attn_k_norm"),
        spec=spec,
        rope=rope,
        n_heads=config.n_heads,
        eps=config.norm_eps,
        is_gated=is_gated,
    )


def delta_net(
    config: Config, weights: WeightSource, i: int, alpha: Weight, beta: Weight
) -> DeltaNet:
    """The delta net of block `i`; alpha and beta (value heads, D) are stored in two ways."""
    spec = config.layers[i]
    assert isinstance(spec, RecurrentSpec), "block i is not a delta-net block"
    d, v_heads = config.n_embd, spec.n_value_heads
    inner = v_heads * spec.value_dim
    at = f"blk.{i}"
    small = RecurWeights(
        conv=as_floats(weights(f"{at}.ssm_conv1d.weight", (spec.n_channels, spec.conv_kernel))),
        a=as_floats(weights(f"{at}.ssm_a", (v_heads,))),
        dt=as_floats(weights(f"{at}.ssm_dt.bias", (v_heads,))),
        norm=norm_weight(weights, f"{at}.ssm_norm", spec.value_dim),
        eps=config.norm_eps,
    )
    return DeltaNet(
        attn_qkv=weights(f"{at}.attn_qkv.weight", (spec.n_channels, d)),
        attn_gate=weights(f"{at}.attn_gate.weight", (inner, d)),
        ssm_alpha=alpha,
        ssm_beta=beta,
        recur=small,
        ssm_out=weights(f"{at}.ssm_out.weight", (d, inner)),
    )


def feed_forward(config: Config, weights: WeightSource, i: int, kind: str = "silu") -> FeedForward:
    """The dense layer of block `i`, or its experts where the model has them."""
    if config.experts is not None:
        return _moe(config, weights, i, kind)
    d, f = config.n_embd, config.n_ff
    return Dense(
        ffn_gate=weights(f"blk.{i}.ffn_gate.weight", (f, d)),
        ffn_up=weights(f"blk.{i}.ffn_up.weight", (f, d)),
        ffn_down=weights(f"blk.{i}.ffn_down.weight", (d, f)),
        kind=kind,
    )


def _moe(config: Config, weights: WeightSource, i: int, kind: str) -> Moe:
    experts = config.experts
    assert experts is not None, "a model without experts"
    d, f, n = config.n_embd, experts.n_ff, experts.n_experts
    at = f"blk.{i}"
    # Some files hold gate and up in one tensor, the gate's rows first.
    fused = weights.optional(f"{at}.ffn_gate_up_exps.weight", (n, 2 * f, d))
    gate = fused or weights(f"{at}.ffn_gate_exps.weight", (n, f, d))
    up = None if fused else weights(f"{at}.ffn_up_exps.weight", (n, f, d))
    down = weights(f"{at}.ffn_down_exps.weight", (n, d, f))
    return Moe(
        ffn_gate_inp=weights(f"{at}.ffn_gate_inp.weight", (n, d)),
        bank=ExpertBank(gate, up, down, kind, down.backend),
        rule=experts.rule,
        shared=_shared_expert(config, weights, at, experts.n_ff_shared),
    )


def _shared_expert(
    config: Config, weights: WeightSource, at: str, n_ff: int
) -> SharedExpert | None:
    if n_ff == 0:
        return None
    d = config.n_embd
    return SharedExpert(
        ffn_gate_shexp=weights(f"{at}.ffn_gate_shexp.weight", (n_ff, d)),
        ffn_up_shexp=weights(f"{at}.ffn_up_shexp.weight", (n_ff, d)),
        ffn_down_shexp=weights(f"{at}.ffn_down_shexp.weight", (d, n_ff)),
        ffn_gate_inp_shexp=as_floats(weights(f"{at}.ffn_gate_inp_shexp.weight", (d,))),
    )
