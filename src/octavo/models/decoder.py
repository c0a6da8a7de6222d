"""A decoder-only model: embedding, blocks, final norm, head; and a draft block beside it."""

from __future__ import annotations

from collections.abc import Sequence

from octavo import ops
from octavo.kv.batch import Batch
from octavo.kv.layers import CacheLayer
from octavo.kv.state import LayerSpec
from octavo.models import Output
from octavo.models.blocks import Block, Moe, norm_weight
from octavo.models.config import Config
from octavo.models.source import WeightSource
from octavo.ops import Array, Ids
from octavo.ops.weight import ExpertBank, Weight
from octavo.record import dataclass


@dataclass(frozen=True, eq=False)
class DraftBlock:
    """Multi-token prediction: token and hidden state, joined, through one block of its own."""

    embed_tokens: Weight
    enorm: Weight
    hnorm: Weight
    eh_proj: Weight
    block: Block
    shared_head_norm: Weight
    shared_head_head: Weight


class Decoder:
    """Implements `models.Model`."""

    def __init__(
        self,
        config: Config,
        weights: WeightSource,
        blocks: Sequence[Block],
        drafter: DraftBlock | None = None,
    ) -> None:
        self.config = config
        self.token_embd = _embedding(config, weights)
        self.blk = tuple(blocks)
        self.output_norm = norm_weight(weights, "output_norm", config.n_embd)
        self.output = _head(config, weights)
        self.drafter = drafter

    def state(self) -> tuple[LayerSpec, ...]:
        return self.config.layers

    def banks(self) -> tuple[ExpertBank, ...]:
        blocks = self.blk if self.drafter is None else (*self.blk, self.drafter.block)
        return tuple(block.ffn.bank for block in blocks if isinstance(block.ffn, Moe))

    def forward(
        self,
        batch: Batch,
        layers: Sequence[CacheLayer],
        trace: list[Array] | None = None,
        *,
        every_hidden: bool = True,
    ) -> Output:
        assert trace is None or every_hidden, "a trace has the rows of all tokens"
        stream = ops.embed(self.token_embd, batch.ids, self.config.embedding_scale)
        branch: Array | None = None
        is_one = batch.n_tokens == len(batch.outputs) == 1  # nothing to choose when decoding
        is_lean = not every_hidden and not is_one
        for i, block in enumerate(self.blk):
            only = batch.outputs if is_lean and block is self.blk[-1] else None
            stream, branch = block(stream, branch, batch, layers[i], only)
            if trace is not None:
                trace.append(ops.add(stream, branch, self.output.backend))
        assert branch is not None, "a model has at least one block"
        rows = None if is_lean or is_one else batch.outputs
        return self._finish(stream, branch, self.output_norm, self.output, rows)

    def draft(self, batch: Batch, hidden: Array, layers: Sequence[CacheLayer]) -> Output:
        d = self.drafter
        assert d is not None, "this model has no draft block; config.n_mtp says so"
        eps = self.config.norm_eps
        token = ops.norm(ops.embed(d.embed_tokens, batch.ids), d.enorm, eps)
        before = ops.norm(hidden, d.hnorm, eps)
        joined = ops.concat(token, before, d.eh_proj.backend)
        stream = ops.linear(joined, d.eh_proj)
        stream, branch = d.block(stream, None, batch, layers[len(self.blk)])
        return self._finish(stream, branch, d.shared_head_norm, d.shared_head_head, batch.outputs)

    def _finish(
        self, stream: Array, branch: Array, norm: Weight, head: Weight, rows: Ids | None
    ) -> Output:
        """Final norm, and the head on `rows`; None: on all."""
        no_logits = stream[:0, :1].reshape(0, self.config.n_vocab)
        if len(stream) == 0:
            return Output(stream, no_logits)
        hidden, _ = ops.norm(branch, norm, self.config.norm_eps, stream)
        if rows is not None and len(rows) == 0:
            return Output(hidden, no_logits)
        wanted = hidden if rows is None else ops.take(hidden, rows, head.backend)
        logits = ops.linear(wanted, head)
        if self.config.logit_softcap:
            logits = ops.softcap(logits, self.config.logit_softcap, head.backend)
        return Output(hidden, logits)


def draft_block(config: Config, weights: WeightSource, block: Block) -> DraftBlock:
    """The draft block around `block`, which is number `config.n_layers`.

    A file may leave out its embedding, head and head norm: then they are the trunk's.
    """
    d, v = config.n_embd, config.n_vocab
    at = f"blk.{config.n_layers}.nextn"
    own_norm = weights.optional(f"{at}.shared_head_norm.weight", (d,)) is not None
    return DraftBlock(
        embed_tokens=weights.optional(f"{at}.embed_tokens.weight", (v, d))
        or _embedding(config, weights),
        enorm=norm_weight(weights, f"{at}.enorm", d),
        hnorm=norm_weight(weights, f"{at}.hnorm", d),
        eh_proj=weights(f"{at}.eh_proj.weight", (d, 2 * d)),
        block=block,
        shared_head_norm=norm_weight(
            weights, f"{at}.shared_head_norm" if own_norm else "output_norm", d
        ),
        shared_head_head=weights.optional(f"{at}.shared_head_head.weight", (v, d))
        or _head(config, weights),
    )


def _embedding(config: Config, weights: WeightSource) -> Weight:
    return weights("token_embd.weight", (config.n_vocab, config.n_embd))


def _head(config: Config, weights: WeightSource) -> Weight:
    """The head; a file without one shares the embedding's matrix."""
    head = weights.optional("output.weight", (config.n_vocab, config.n_embd))
    return head or _embedding(config, weights)
