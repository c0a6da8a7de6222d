"""What a model keeps per sequence, declared layer by layer: attention pages or a recurrent state.

The model states these as data; `kv/cache.py` allocates them, the planner counts their bytes,
and the back ends read and write them. Nothing here allocates.
"""

from __future__ import annotations

from octavo.record import dataclass

PAGE_TOKENS = 64  # tokens a cache page holds, in every format and on every back end


@dataclass(frozen=True)
class AttentionSpec:
    """Keys and values of one attention layer.

    `scale` multiplies q.k; `window` is the number of latest positions that a token sees
    (itself included), 0 for all.
    """

    n_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    window: int = 0


@dataclass(frozen=True)
class RecurrentSpec:
    """A gated delta-rule layer: the last raw convolution inputs and one matrix a value head.

    `tiled` says how value head j finds its key head: j mod n_key_heads (qwen35) if true,
    j // (n_value_heads / n_key_heads) (qwen3next) if false.
    """

    n_key_heads: int
    n_value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    tiled: bool

    @property
    def n_channels(self) -> int:
        """Channels of the short convolution: q, k and v side by side."""
        return 2 * self.n_key_heads * self.key_dim + self.n_value_heads * self.value_dim

    @property
    def conv_shape(self) -> tuple[int, int]:
        """(kernel - 1, channels): inputs before the convolution, oldest first, float32."""
        return self.conv_kernel - 1, self.n_channels

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """(value heads, key dim, value dim), float32."""
        return self.n_value_heads, self.key_dim, self.value_dim

    @property
    def n_bytes(self) -> int:
        """Bytes of one sequence's state in this layer."""
        conv = self.conv_shape[0] * self.conv_shape[1]
        heads, key_dim, value_dim = self.state_shape
        return 4 * (conv + heads * key_dim * value_dim)


LayerSpec = AttentionSpec | RecurrentSpec
