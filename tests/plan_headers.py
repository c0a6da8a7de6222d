"""Models as the planner sees them, without weights, and made-up machines."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from octavo.gguf.ggml_types import by_name
from octavo.gguf.header import TensorInfo
from octavo.gguf.meta import Metadata, Typed
from octavo.plan.hardware import Hardware

GB = 10**9


class Header:
    """A model as the planner sees it: no weights."""

    def __init__(
        self, name: str, keys: dict[str, object], tensors: dict[str, tuple[str, tuple[int, ...]]]
    ) -> None:
        self.path = Path(name)
        architecture = str(keys.pop("architecture"))
        kinds = {int: "u32", float: "f32"}
        entries = {f"{architecture}.{key}": Typed(kinds[type(v)], v) for key, v in keys.items()}
        self.metadata = Metadata({"general.architecture": Typed("str", architecture)} | entries)
        self.tensors = {
            name: TensorInfo(name, shape, t.id, t.name, t.n_bytes(int(np.prod(shape))), 0, 0)
            for name, (kind, shape) in tensors.items()
            for t in [by_name(kind)]
        }


KEYS_35B: dict[str, object] = {
    "block_count": 40,
    "context_length": 262_144,
    "embedding_length": 2048,
    "vocab_size": 248_320,
    "attention.head_count": 16,
    "attention.head_count_kv": 2,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 64,
    "rope.freq_base": 1e7,
    "expert_count": 256,
    "expert_used_count": 8,
    "expert_feed_forward_length": 512,
    "expert_shared_feed_forward_length": 512,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 128,
    "ssm.group_count": 16,
    "ssm.time_step_rank": 32,
    "ssm.inner_size": 4096,
    "full_attention_interval": 4,
}


def qwen36_35b() -> Header:
    """Shapes and types of Qwen3.6-35B-A3B, UD-Q4_K_XL, rounded to what matters for bytes."""
    keys: dict[str, object] = {**KEYS_35B, "architecture": "qwen35moe"}
    tensors = {
        "token_embd.weight": ("q8_0", (248_320, 2048)),
        "output.weight": ("q8_0", (248_320, 2048)),
        "output_norm.weight": ("f32", (2048,)),
    }
    for i in range(40):
        at = f"blk.{i}."
        tensors[at + "ffn_gate_exps.weight"] = "q4_k", (256, 512, 2048)
        tensors[at + "ffn_up_exps.weight"] = "q4_k", (256, 512, 2048)
        tensors[at + "ffn_down_exps.weight"] = "q5_k", (256, 2048, 512)
        tensors[at + "ffn_gate_inp.weight"] = "f32", (256, 2048)
        if i % 4 == 3:
            tensors[at + "attn_q.weight"] = "q8_0", (8192, 2048)
        else:
            tensors[at + "attn_qkv.weight"] = "q8_0", (8192, 2048)
            tensors[at + "attn_gate.weight"] = "q8_0", (4096, 2048)
    return Header("Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf", keys, tensors)


def smollm2() -> Header:
    keys: dict[str, object] = {
        "architecture": "llama",
        "block_count": 30,
        "context_length": 8192,
        "embedding_length": 576,
        "feed_forward_length": 1536,
        "vocab_size": 49_152,
        "attention.head_count": 9,
        "attention.head_count_kv": 3,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": 64,
        "rope.freq_base": 1e5,
    }
    tensors = {"token_embd.weight": ("q8_0", (49_152, 576))}
    for i in range(30):
        for name, shape in (("attn_q", (576, 576)), ("ffn_down", (576, 1536))):
            tensors[f"blk.{i}.{name}.weight"] = "q4_1", shape
    return Header("SmolLM2-135M-Instruct-Q4_1.gguf", keys, tensors)


def machine(available_gb: float, total_gb: float = 32, huge_pages: bool = True) -> Hardware:
    return Hardware(int(total_gb * GB), int(available_gb * GB), 8, "avx2", huge_pages)


def random_35b() -> Header:
    """The 35B shape with all its tensors, as benchmarks/random_models.py writes it: 20.5 GB."""
    keys: dict[str, object] = {**KEYS_35B, "architecture": "qwen35moe"}
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "token_embd.weight": ("q6_k", (248_320, 2048)),
        "output.weight": ("q6_k", (248_320, 2048)),
        "output_norm.weight": ("f32", (2048,)),
    }
    for i in range(40):
        own = ATTENTION_35B if i % 4 == 3 else RECURRENT_35B
        tensors |= {f"blk.{i}.{name}": t for name, t in (BLOCK_35B | own).items()}
    return Header("random-qwen35moe-40.gguf", keys, tensors)


BLOCK_35B: dict[str, tuple[str, tuple[int, ...]]] = {
    "attn_norm.weight": ("f32", (2048,)),
    "post_attention_norm.weight": ("f32", (2048,)),
    "ffn_gate_inp.weight": ("f32", (256, 2048)),
    "ffn_gate_inp_shexp.weight": ("f32", (2048,)),
    "ffn_gate_exps.weight": ("q4_k", (256, 512, 2048)),
    "ffn_up_exps.weight": ("q4_k", (256, 512, 2048)),
    "ffn_down_exps.weight": ("q4_k", (256, 2048, 512)),
    "ffn_gate_shexp.weight": ("q8_0", (512, 2048)),
    "ffn_up_shexp.weight": ("q8_0", (512, 2048)),
    "ffn_down_shexp.weight": ("q8_0", (2048, 512)),
}
ATTENTION_35B: dict[str, tuple[str, tuple[int, ...]]] = {
    "attn_q.weight": ("q8_0", (8192, 2048)),
    "attn_k.weight": ("q8_0", (512, 2048)),
    "attn_v.weight": ("q8_0", (512, 2048)),
    "attn_output.weight": ("q8_0", (2048, 4096)),
    "attn_q_norm.weight": ("f32", (256,)),
    "attn_k_norm.weight": ("f32", (256,)),
}
RECURRENT_35B: dict[str, tuple[str, tuple[int, ...]]] = {
    "attn_qkv.weight": ("q8_0", (8192, 2048)),
    "attn_gate.weight": ("q8_0", (4096, 2048)),
    "ssm_alpha.weight": ("f32", (32, 2048)),
    "ssm_beta.weight": ("f32", (32, 2048)),
    "ssm_dt.bias": ("f32", (32,)),
    "ssm_a": ("f32", (32,)),
    "ssm_conv1d.weight": ("f32", (8192, 4)),
    "ssm_norm.weight": ("f32", (128,)),
    "ssm_out.weight": ("q8_0", (2048, 4096)),
}
