"""Architectures: one file each, its stem the file's `general.architecture`.

An architecture module has `read(metadata) -> Config` and `build(config, weights) -> Model`; it is
made of the pieces in `blocks`, `decoder` and `rope`. All arithmetic is in `octavo.ops`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Literal, Protocol

from octavo import registry
from octavo.errors import UnsupportedError
from octavo.gguf.meta import Metadata
from octavo.kv.batch import Batch
from octavo.kv.layers import CacheLayer
from octavo.kv.state import LayerSpec
from octavo.models.config import Config
from octavo.models.source import FileWeights, WeightSource
from octavo.ops import Array
from octavo.ops.weight import ExpertBank
from octavo.record import dataclass
from octavo.release import program

__all__ = [
    "Config",
    "FileWeights",
    "Kind",
    "Model",
    "Output",
    "WeightSource",
    "architectures",
    "build",
    "kind",
    "read_config",
]

# Modules of this package that are pieces of architectures, not architectures.
_PIECES = frozenset({"blocks", "config", "decoder", "pooling", "rope", "source"})

Kind = Literal["embedding", "head", "trunk", "experts", "mtp"]


@dataclass(frozen=True, eq=False)
class Output:
    """What a step gives: final-norm states of its tokens, and logits of `batch.outputs`."""

    hidden: Array  # (T, D); (R, D) where only those were asked for
    logits: Array  # (R, V)


class Model(Protocol):
    """A model on its weights. Keeps nothing between calls: what a sequence has is in the cache."""

    config: Config

    def state(self) -> tuple[LayerSpec, ...]:
        """What each layer keeps per sequence: the trunk's layers, then the draft blocks'."""
        ...

    def banks(self) -> tuple[ExpertBank, ...]:
        """Routed experts of the blocks that have some: the trunk's, then the draft blocks'."""
        ...

    def forward(
        self,
        batch: Batch,
        layers: Sequence[CacheLayer],
        trace: list[Array] | None = None,
        *,
        every_hidden: bool = True,
    ) -> Output:
        """The trunk on one step's tokens. `layers` are the caches in the order of `state`.

        `trace` receives the residual stream (T, D) after each block; not in recorded steps.
        Without `every_hidden`, hidden states are those of `batch.outputs` alone, and the last
        block's feed-forward is spared for all other tokens.
        """
        ...

    def draft(self, batch: Batch, hidden: Array, layers: Sequence[CacheLayer]) -> Output:
        """The draft block: from each token and the hidden state before it, the next token.

        Row t of `hidden` (T, D) belongs to the position before token t: the trunk's `hidden` for
        the token before it, or, in a chain of drafts, the draft's own. At position 0, where there
        is none, it is zeros; that slot is filled like the others, because later ones attend to
        it. The draft block's cache holds the same positions as the trunk's.
        """
        ...


def architectures() -> tuple[str, ...]:
    """The values of `general.architecture` that can be run."""
    return tuple(n for n in registry.names("models") if n not in _PIECES)


def read_config(metadata: Metadata) -> Config:
    """The shape of the model, from metadata alone.

    Raises:
        UnsupportedError: an architecture, or a variant of one, that this version cannot run.
        FileFormatError: metadata missing or out of range.
    """
    config: Config = _module(metadata.architecture).read(metadata)
    return config


def build(metadata: Metadata, weights: WeightSource) -> Model:
    """The model of a file.

    Raises:
        UnsupportedError, FileFormatError: as `read_config`, or a tensor is missing or misshapen.
    """
    module = _module(metadata.architecture)
    model: Model = module.build(module.read(metadata), weights)
    return model


def kind(name: str, n_layers: int) -> Kind:
    """What a tensor is for, when memory is planned; `n_layers` is `Config.n_layers`."""
    block = re.match(r"blk\.(\d+)\.", name)
    if block and int(block[1]) >= n_layers:
        return "mtp"
    if name == "token_embd.weight":
        return "embedding"
    if name.startswith("output."):
        return "head"
    return "experts" if "_exps." in name else "trunk"


def _module(architecture: str) -> ModuleType:
    if architecture not in architectures():
        raise UnsupportedError(
            f"The architecture {architecture!r} is not supported",
            f"Supported are: {', '.join(architectures())}. This is {program()}: a newer one may "
            "know more, and `octavo pull demo` fetches a model that this one runs.",
        )
    return registry.find("models", architecture, "architecture")
