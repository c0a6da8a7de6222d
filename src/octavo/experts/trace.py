"""Made-up routing with the locality of real models, where none can be recorded.

Each block draws its experts by preferences that drift, raised for those it used lately. The
strengths are fitted to what others published of models of this kind: 45 % of a token's experts are
used by the next one, 80 % within eight, half within two; and a pool whose counts fade slowly finds
81 % with a third of the experts, 41 % with a fifteenth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.record import dataclass


@dataclass(frozen=True)
class Locality:
    """How strongly routing repeats, as additions to log-probabilities."""

    taste: float = 0.7  # spread of a block's preferences among its experts
    drift_tokens: float = 400.0  # until half of a preference is another one
    repeat: float = 3.6  # for an expert used by the last token
    recent: float = 2.6  # for one used two to eight tokens ago
    recent_tokens: int = 8


def make_trace(
    n_tokens: int,
    n_blocks: int = 40,
    n_experts: int = 256,
    n_used: int = 8,
    *,
    seed: int = 0,
    locality: Locality | None = None,
) -> NDArray[np.int32]:
    """Experts of each token: (tokens, blocks, used) int32, distinct within a block."""
    how = locality or Locality()
    random = np.random.default_rng(seed)
    shape = n_blocks, n_experts
    taste = random.normal(size=shape)
    keep = 0.5 ** (1 / how.drift_tokens)
    last = np.full(shape, -(1 << 20))
    trace = np.empty((n_tokens, n_blocks, n_used), np.int32)
    rows = np.arange(n_blocks)[:, None]
    for t in range(n_tokens):
        taste = keep * taste + np.sqrt(1 - keep**2) * random.normal(size=shape)
        age = t - last
        raised = np.where(age == 1, how.repeat, 0.0)
        raised += np.where((age > 1) & (age <= how.recent_tokens), how.recent, 0.0)
        # The largest sums with Gumbel noise are a draw without replacement.
        sums = how.taste * taste + raised + random.gumbel(size=shape)
        trace[t] = np.argpartition(-sums, n_used - 1, axis=1)[:, :n_used]
        last[rows, trace[t]] = t
    return trace
