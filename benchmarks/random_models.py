"""Models of real shapes with random weights, for speed: `python benchmarks/random_models.py`.

What is written is what other engines read too: complete files with a tokenizer of made-up words.
Outputs mean nothing. Shapes are those of the published models; block formats are those of their
usual files (routed experts Q4_K, dense matrices Q8_0, embedding and head Q6_K; or Q4_K_M).
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from octavo import quants
from octavo.gguf.ggml_types import by_name
from octavo.gguf.writer import write_gguf

Tensor = tuple[str, tuple[int, ...], str, Any]
PIECE_BLOCKS = 1 << 16


@cache
def pool(kind: str, std: float) -> Any:
    """Random blocks (PIECE_BLOCKS, bytes) of that format, made once."""
    return quants.random_blocks(kind, PIECE_BLOCKS, np.random.default_rng(0), std)


def random_bytes(kind: str, shape: tuple[int, ...], seed: int) -> Callable[[], Iterator[Any]]:
    """The bytes of a random weight, made when asked for: one piece, repeated in turn."""

    def pieces() -> Iterator[Any]:
        left = int(np.prod(shape)) // by_name(kind).block_elements
        rng = np.random.default_rng(seed)
        blocks = pool(kind, float(1.0 / np.sqrt(shape[-1])))
        while left > 0:
            # Another rotation each time: no two experts are the same.
            first = int(rng.integers(len(blocks)))
            for part in (blocks[first:], blocks[:first]):
                piece = part[:left]
                left -= len(piece)
                yield piece.reshape(-1)

    return pieces


class Tensors:
    """Collects a model's tensors."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []

    def add(self, name: str, kind: str, *shape: int) -> None:
        self.rows.append((name, shape, kind, random_bytes(kind, shape, len(self.rows))))

    def ones(self, name: str, n: int, value: float = 1.0) -> None:
        self.rows.append((name, (n,), "f32", np.full(n, value, np.float32).view(np.uint8)))


def tokenizer(n_vocab: int, pre: str) -> dict[str, Any]:
    """A vocabulary of the size: the 256 bytes, then made-up words, then specials."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in visible}
    names |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in names)}
    tokens = [names[b] for b in range(256)]
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += [f"w{i:x}" for i in range(n_vocab - 256 - len(specials))] + specials
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (n_vocab - len(specials)) + [3] * len(specials),
        "tokenizer.ggml.merges": ["w 0", "w 1"],
        "tokenizer.ggml.eos_token_id": n_vocab - 1,
        "tokenizer.ggml.bos_token_id": n_vocab - 3,
        "tokenizer.ggml.padding_token_id": n_vocab - 3,
        "tokenizer.ggml.add_bos_token": False,
    }


def qwen3(n_layers: int, width: int, ffn: int) -> tuple[dict[str, Any], list[Tensor]]:
    """Qwen3 dense at Q4_K_M: 16 query and 8 key heads of 128, tied embedding at Q6_K."""
    prefix = "qwen3."
    meta = {
        "general.architecture": "qwen3",
        "general.name": f"random qwen3 {width}",
        prefix + "block_count": n_layers,
        prefix + "context_length": 40960,
        prefix + "embedding_length": width,
        prefix + "feed_forward_length": ffn,
        prefix + "attention.head_count": 16,
        prefix + "attention.head_count_kv": 8,
        prefix + "attention.key_length": 128,
        prefix + "attention.value_length": 128,
        prefix + "attention.layer_norm_rms_epsilon": 1e-6,
        prefix + "rope.freq_base": 1e6,
    } | tokenizer(151936, "qwen2")
    t = Tensors()
    t.add("token_embd.weight", "q6_k", 151936, width)
    t.ones("output_norm.weight", width)
    for i in range(n_layers):
        blk = f"blk.{i}."
        better = "q6_k" if i < n_layers // 8 or i >= 7 * n_layers // 8 or i % 3 == 2 else "q4_k"
        for norm, n in (("attn_norm", width), ("ffn_norm", width)):
            t.ones(f"{blk}{norm}.weight", n)
        t.ones(blk + "attn_q_norm.weight", 128)
        t.ones(blk + "attn_k_norm.weight", 128)
        t.add(blk + "attn_q.weight", "q4_k", 2048, width)
        t.add(blk + "attn_k.weight", "q4_k", 1024, width)
        t.add(blk + "attn_v.weight", better, 1024, width)
        t.add(blk + "attn_output.weight", "q4_k", width, 2048)
        t.add(blk + "ffn_gate.weight", "q4_k", ffn, width)
        t.add(blk + "ffn_up.weight", "q4_k", ffn, width)
        t.add(blk + "ffn_down.weight", better, width, ffn)
    return meta, t.rows


def qwen35moe(n_layers: int) -> tuple[dict[str, Any], list[Tensor]]:
    """Qwen3.6-35B-A3B, or its first layers."""
    prefix = "qwen35moe."
    width = 2048
    meta = {
        "general.architecture": "qwen35moe",
        "general.name": f"random qwen35moe {n_layers} layers",
        prefix + "block_count": n_layers,
        prefix + "context_length": 262144,
        prefix + "embedding_length": width,
        prefix + "attention.head_count": 16,
        prefix + "attention.head_count_kv": 2,
        prefix + "attention.key_length": 256,
        prefix + "attention.value_length": 256,
        prefix + "attention.layer_norm_rms_epsilon": 1e-6,
        prefix + "rope.dimension_count": 64,
        prefix + "rope.dimension_sections": [11, 11, 10, 0],
        prefix + "rope.freq_base": 1e7,
        prefix + "expert_count": 256,
        prefix + "expert_used_count": 8,
        prefix + "expert_feed_forward_length": 512,
        prefix + "expert_shared_feed_forward_length": 512,
        prefix + "ssm.conv_kernel": 4,
        prefix + "ssm.state_size": 128,
        prefix + "ssm.group_count": 16,
        prefix + "ssm.time_step_rank": 32,
        prefix + "ssm.inner_size": 4096,
        prefix + "full_attention_interval": 4,
    } | tokenizer(248320, "qwen35")
    t = Tensors()
    t.add("token_embd.weight", "q6_k", 248320, width)
    t.add("output.weight", "q6_k", 248320, width)
    t.ones("output_norm.weight", width)
    for i in range(n_layers):
        _moe_block(t, f"blk.{i}.", width, attention=(i + 1) % 4 == 0)
    return meta, t.rows


def _moe_block(t: Tensors, blk: str, width: int, *, attention: bool) -> None:
    t.ones(blk + "attn_norm.weight", width)
    t.ones(blk + "post_attention_norm.weight", width)
    if attention:
        t.add(blk + "attn_q.weight", "q8_0", 8192, width)
        t.add(blk + "attn_k.weight", "q8_0", 512, width)
        t.add(blk + "attn_v.weight", "q8_0", 512, width)
        t.add(blk + "attn_output.weight", "q8_0", width, 4096)
        t.ones(blk + "attn_q_norm.weight", 256)
        t.ones(blk + "attn_k_norm.weight", 256)
    else:
        t.add(blk + "attn_qkv.weight", "q8_0", 8192, width)
        t.add(blk + "attn_gate.weight", "q8_0", 4096, width)
        t.add(blk + "ssm_alpha.weight", "f32", 32, width)
        t.add(blk + "ssm_beta.weight", "f32", 32, width)
        t.ones(blk + "ssm_dt.bias", 32)
        t.ones(blk + "ssm_a", 32, -0.5)
        t.add(blk + "ssm_conv1d.weight", "f32", 8192, 4)
        t.ones(blk + "ssm_norm.weight", 128)
        t.add(blk + "ssm_out.weight", "q8_0", width, 4096)
    t.add(blk + "ffn_gate_inp.weight", "f32", 256, width)
    t.ones(blk + "ffn_gate_inp_shexp.weight", width, 0.01)
    for part in ("gate", "up"):
        t.add(f"{blk}ffn_{part}_exps.weight", "q4_k", 256, 512, width)
        t.add(f"{blk}ffn_{part}_shexp.weight", "q8_0", 512, width)
    t.add(blk + "ffn_down_exps.weight", "q4_k", 256, width, 512)
    t.add(blk + "ffn_down_shexp.weight", "q8_0", width, 512)


def in_format(row: Tensor, kind: str) -> Tensor:
    """The tensor in another format, if it is Q4_K."""
    name, shape, old, _ = row
    if old != "q4_k":
        return row
    return name, shape, kind, random_bytes(kind, shape, zlib.crc32(name.encode()))


MODELS: dict[str, Callable[[], tuple[dict[str, Any], list[Tensor]]]] = {
    "qwen3-0.6b": lambda: qwen3(28, 1024, 3072),
    "qwen3-1.7b": lambda: qwen3(28, 2048, 6144),
    "qwen35moe-4": lambda: qwen35moe(4),
    "qwen35moe-40": lambda: qwen35moe(40),
}


def main() -> None:
    """Write the models that are asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=MODELS)
    parser.add_argument("--folder", type=Path, default=Path("build/models"))
    parser.add_argument("--q4-k-as", default="q4_k", help="format of what is Q4_K, as iq3_s")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    other = "" if args.q4_k_as == "q4_k" else f"-{args.q4_k_as}"
    for name in args.names:
        path = args.folder / f"random-{name}{other}.gguf"
        if not path.exists():
            meta, rows = MODELS[name]()
            write_gguf(path, meta, [in_format(row, args.q4_k_as) for row in rows])
        print(path)


if __name__ == "__main__":
    main()
