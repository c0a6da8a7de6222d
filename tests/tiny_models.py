"""Tiny random GGUF files of every architecture, whole: weights, vocabulary, chat template.

The tensors are those that the architecture itself asks for, so a new architecture needs only its
sizes here. Random weights are scaled so that logits have a standard deviation of about 2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octavo import models, quants
from octavo.gguf.ggml_types import by_name
from octavo.gguf.meta import Metadata, StringArray, Typed
from octavo.gguf.writer import write_gguf
from octavo.ops import reference
from octavo.ops.weight import Weight
from tiny_vocabulary import byte_level, sentencepiece

_DENSE = {
    "block_count": 3,
    "context_length": 512,
    "embedding_length": 256,
    "feed_forward_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 10_000.0,
}
_DELTA = {
    "block_count": 4,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "rope.dimension_count": 16,
    "rope.freq_base": 1e7,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 32,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 128,
    "full_attention_interval": 4,
}
_EXPERTS = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 64}

# Sizes where they differ from _DENSE.
SIZES: dict[str, dict[str, Any]] = {
    "llama": {"attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": 64},
    "qwen2": {
        "embedding_length": 160,
        "feed_forward_length": 352,
        "attention.head_count": 5,
        "attention.head_count_kv": 1,
    },
    "qwen3": {"embedding_length": 128, "attention.key_length": 64, "attention.value_length": 64},
    "qwen3moe": {
        "embedding_length": 128,
        "attention.key_length": 64,
        "attention.value_length": 64,
        **_EXPERTS,
    },
    "qwen3next": {
        "embedding_length": 128,
        **_DELTA,
        **_EXPERTS,
        "expert_shared_feed_forward_length": 96,
    },
    "qwen35": {**_DELTA, "ssm.time_step_rank": 6, "ssm.inner_size": 192},
    "qwen35moe": {
        **_DELTA,
        **_EXPERTS,
        "expert_feed_forward_length": 256,
        "expert_shared_feed_forward_length": 64,
    },
    "gemma3": {
        "block_count": 7,
        "embedding_length": 128,
        "feed_forward_length": 320,
        "attention.head_count_kv": 1,
        "attention.key_length": 64,
        "attention.value_length": 64,
        "attention.sliding_window": 24,
        "rope.freq_base": 1e6,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    },
}
_TIED = ("qwen2", "qwen3", "qwen35", "gemma3")
_PRE = {"llama": "smollm", "qwen35": "qwen35", "qwen35moe": "qwen35"}


def make_tiny(
    arch: str,
    path: Path,
    *,
    seed: int = 0,
    types: str | Mapping[str, str] | None = None,
    mtp: bool = False,
    vocab: int | None = None,
    changes: Mapping[str, Any] | None = None,
    optional: str = "",
) -> Path:
    """Write a tiny model of architecture `arch` to `path` and return that.

    Args:
        types: block format of the matrices: one for all, or by a regular expression that is
            searched in the tensor's name. Where a row does not divide into its blocks, or nothing
            is said, q8_0 and q4_0, and k-quants where rows allow them.
        mtp: add a draft block (qwen3next, qwen35, qwen35moe).
        vocab: pad the vocabulary with unused tokens to this size.
        changes: metadata to set; the architecture's own keys without its name, and None to
            remove one.
        optional: regular expression of tensors to add that a file may leave out.
    """
    metadata = _values(arch, mtp, vocab, changes or {})
    untied = "" if arch in _TIED else r"^output\.weight|"
    recorder = Recorder(seed, f"{untied}shared_head_norm|{optional or '$^'}", arch == "qwen2")
    models.build(as_metadata(metadata), recorder)
    rows = []
    for weight in recorder.made.values():
        kind = _type_of(weight, types)
        data = quants.pack(kind, weight.floats())
        rows.append((weight.name, weight.shape, kind, data))
    write_gguf(path, metadata, rows)
    return path


def as_metadata(values: Mapping[str, Any]) -> Metadata:
    """Metadata as it would be read back from a file."""
    return Metadata({key: Typed(_kind_of(value), _stored(value)) for key, value in values.items()})


class Recorder:
    """A weight source that makes what it is asked for, and remembers it."""

    def __init__(self, seed: int, optional: str, has_bias: bool) -> None:
        self.backend = reference
        self.made: dict[str, Weight] = {}
        self._rng = np.random.default_rng(seed)
        self._optional = optional
        self._has_bias = has_bias

    def __call__(self, name: str, shape: tuple[int, ...]) -> Weight:
        if name not in self.made:
            values = self._random(name, shape).astype(np.float32)
            self.made[name] = Weight(
                name, "f32", shape, values.reshape(-1).view(np.uint8), reference
            )
            if self._has_bias and re.search(r"attn_[qkv]\.weight$", name):
                self(name.replace(".weight", ".bias"), shape[:1])
        return self.made[name]

    def optional(self, name: str, shape: tuple[int, ...]) -> Weight | None:
        wanted = name in self.made or re.search(self._optional, name)
        return self(name, shape) if wanted else None

    def _random(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        noise = self._rng.standard_normal(shape)
        if name.endswith("norm.weight"):
            return 1 + 0.1 * noise
        if name.endswith("ssm_a"):
            return -np.exp(noise)
        if name.endswith(".bias"):
            return 0.3 * noise
        if name == "rope_freqs.weight":
            return np.linspace(1, 8, shape[0])
        # A tied embedding is the head too; 2 / sqrt(D) there gives logits of deviation 2.
        is_wide = re.search(r"^output\.|^token_embd|ffn_gate_inp\.", name)
        return noise * (2 if is_wide else 1) / np.sqrt(shape[-1])


def tiny_metadata(
    arch: str, *, mtp: bool = False, changes: Mapping[str, Any] | None = None
) -> Metadata:
    """The metadata of `make_tiny`."""
    return as_metadata(_values(arch, mtp, None, changes or {}))


def _values(arch: str, mtp: bool, vocab: int | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    sizes = {**_DENSE, **SIZES[arch]}
    if "expert_count" in sizes:
        del sizes["feed_forward_length"]
    if mtp:
        sizes["block_count"] += 1
        sizes["nextn_predict_layers"] = 1
    words = sentencepiece(vocab) if arch == "gemma3" else byte_level(_PRE.get(arch, "qwen2"), vocab)
    values = {
        "general.architecture": arch,
        "general.type": "model",
        "general.name": f"tiny {arch}",
        **{f"{arch}.{key}": value for key, value in sizes.items()},
        **words,
    }
    for key, value in changes.items():
        is_whole = key.startswith(("general.", "tokenizer."))
        values[key if is_whole else f"{arch}.{key}"] = value
    return {key: value for key, value in values.items() if value is not None}


def _type_of(weight: Weight, types: str | Mapping[str, str] | None) -> str:
    is_small = len(weight.shape) == 1 or re.search(r"norm|conv1d|ffn_gate_inp", weight.name)
    wanted = "f32" if is_small else _usual_type(weight.name)
    if isinstance(types, str):
        wanted = "f32" if is_small else types
    elif types:
        wanted = next((t for name, t in types.items() if re.search(name, weight.name)), wanted)
    block = by_name(wanted).block_elements
    if weight.shape[-1] % block:
        wanted = "q4_0" if "k" in wanted or "iq" in wanted else "f32"
    return wanted


def _usual_type(name: str) -> str:
    if re.search(r"ffn_(gate|up)", name):
        return "q4_k"
    if re.search(r"ffn_down|attn_v", name):
        return "q6_k"
    return "q8_0"


def _kind_of(value: Any) -> str:
    if isinstance(value, list):
        return f"[{_kind_of(value[0])}]"
    return {bool: "bool", int: "u32", float: "f32", str: "str"}[type(value)]


def _stored(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if not isinstance(value[0], str):
        return np.array(value)
    items = [len(item.encode()).to_bytes(8, "little") + item.encode() for item in value]
    return StringArray(b"".join(items), np.cumsum([0, *map(len, items)]))
