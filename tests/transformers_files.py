"""Random models of the `transformers` package, and the GGUF files that hold the same weights."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from octavo.gguf.writer import write_gguf

ZERO_CENTRED = ("gemma3", "qwen3next", "qwen35", "qwen35moe")  # norms multiply by 1 + weight

_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_LAYER = {
    "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.in_proj_qkvz": "qkvz",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}


def head_dim(config: Any) -> int:
    width: int = config.hidden_size // config.num_attention_heads
    return getattr(config, "head_dim", None) or width


def randomise(model: torch.nn.Module, arch: str, seed: int) -> None:
    """Give every parameter a random value, such that logits have a deviation of about 2."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            is_centred = arch in ZERO_CENTRED and "linear_attn" not in name
            noise = 0.1 * noise + (0 if is_centred else 1)
        elif name.endswith("weight") or "experts" in name:
            is_wide = "embed" in name or "lm_head" in name or "mlp.gate." in name
            noise *= (2 if is_wide else 1) / math.sqrt(parameter.shape[-1])
        parameter.data.copy_(noise)


def write(model: torch.nn.Module, config: Any, arch: str, path: Path) -> Path:
    """The model as a GGUF file with float32 weights and no vocabulary."""
    tensors = rope_divisors(config)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        tensors |= _converted(name, parameter.numpy(), config, arch)
    rows = [(n, a.shape, "f32", np.ascontiguousarray(a, np.float32)) for n, a in tensors.items()]
    keys = {f"{arch}.{key}": value for key, value in sizes(config).items()}
    write_gguf(path, {"general.architecture": arch, **keys}, rows)
    return path


def sizes(config: Any) -> dict[str, Any]:
    """The GGUF keys of a configuration, without the architecture's name."""
    width = head_dim(config)
    keys = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        **_rope_sizes(config),
    }
    optional = {
        "feed_forward_length": "intermediate_size",
        "final_logit_softcapping": "final_logit_softcapping",
        "attention.sliding_window": "sliding_window",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        "ssm.conv_kernel": "linear_conv_kernel_dim",
        "ssm.state_size": "linear_key_head_dim",
        "ssm.group_count": "linear_num_key_heads",
        "ssm.time_step_rank": "linear_num_value_heads",
    }
    for key, attribute in optional.items():
        if getattr(config, attribute, None):
            keys[key] = getattr(config, attribute)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        keys["expert_count"] = experts
    if hasattr(config, "linear_num_value_heads"):
        keys["ssm.inner_size"] = config.linear_num_value_heads * config.linear_value_head_dim
    return keys


def _rope_sizes(config: Any) -> dict[str, Any]:
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    keys = {
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(head_dim(config) * rope.get("partial_rotary_factor", 1)),
    }
    if rope["rope_type"] in ("linear", "yarn"):
        keys["rope.scaling.type"] = rope["rope_type"]
        keys["rope.scaling.factor"] = float(rope["factor"])
    if rope["rope_type"] == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    return keys


def rope_divisors(config: Any) -> dict[str, np.ndarray]:
    """Llama 3's scaling, which GGUF files hold as a divisor of each frequency."""
    rope = config.rope_parameters
    if rope.get("rope_type") != "llama3":
        return {}
    pair = np.arange(head_dim(config) // 2)
    turns = rope["original_max_position_embeddings"] / (2 * np.pi)
    turns = turns * rope["rope_theta"] ** (-2 * pair / head_dim(config))
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    unscaled = np.clip((turns - low) / (high - low), 0, 1)
    return {"rope_freqs.weight": 1 / (unscaled + (1 - unscaled) / rope["factor"])}


def _converted(name: str, value: np.ndarray, config: Any, arch: str) -> dict[str, np.ndarray]:
    new, value = _renamed(name, arch), _centred(name, value, arch)
    at, _, kind = new.rpartition("blk.")[2].partition(".")
    prefix = f"blk.{at}."
    if kind.startswith("qkvz"):
        qkv, z = _split_qkvz(value, config)
        return {f"{prefix}attn_qkv.weight": qkv, f"{prefix}attn_gate.weight": z}
    if kind.startswith("ffn_gate_up_exps") and arch != "qwen35moe":  # that one keeps it fused
        gate, up = np.split(value, 2, axis=1)
        return {f"{prefix}ffn_gate_exps.weight": gate, f"{prefix}ffn_up_exps.weight": up}
    if kind == "ssm_a":
        value = -np.exp(value)
    elif kind.startswith("ssm_conv1d"):
        value = value[:, 0]
    elif kind.startswith("ffn_gate_inp_shexp"):
        value = value[0]
    elif arch == "llama" and re.match("attn_[qk]", kind):
        # rotate-half to adjacent pairs: the halves of each head are interleaved.
        halves = value.reshape(-1, 2, head_dim(config) // 2, *value.shape[1:])
        value = halves.swapaxes(1, 2).reshape(value.shape)
    if arch in ("qwen35", "qwen35moe"):
        value = _tiled(kind, value, config)
    return {new: value}


def _renamed(name: str, arch: str) -> str:
    parts = re.fullmatch(r"model\.layers\.(\d+)\.(.+?)(\.weight|\.bias)?", name)
    if parts is None:
        return _TOP[name.removesuffix(".weight")] + ".weight"
    layer, kind, ending = parts.groups()
    if kind == "post_attention_layernorm":
        new = "post_attention_norm" if arch in ZERO_CENTRED else "ffn_norm"
    else:
        new = _LAYER[kind]
    if ending is None and "experts" in kind:
        ending = ".weight"
    return f"blk.{layer}.{new}{ending or ''}"


def _centred(name: str, value: np.ndarray, arch: str) -> np.ndarray:
    is_centred = arch in ZERO_CENTRED and "norm" in name and "linear_attn" not in name
    return value + 1 if is_centred else value


def _split_qkvz(value: np.ndarray, config: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows per key head: its q, its k, then v and z of its value heads."""
    n_heads, key = config.linear_num_key_heads, config.linear_key_head_dim
    own = config.linear_num_value_heads // n_heads * config.linear_value_head_dim
    per_head = value.reshape(n_heads, -1, value.shape[1])
    parts = np.split(per_head, [key, 2 * key, 2 * key + own], axis=1)
    q, k, v, z = (part.reshape(-1, value.shape[1]) for part in parts)
    return np.concatenate([q, k, v]), z


def _tiled(kind: str, value: np.ndarray, config: Any) -> np.ndarray:
    """Value heads from grouped (h = key head * r + j) to tiled (j * key heads + key head)."""

    def reorder(rows: np.ndarray) -> np.ndarray:
        n_keys = config.linear_num_key_heads
        shared = config.linear_num_value_heads // n_keys
        heads = rows.reshape(n_keys, shared, -1, *rows.shape[1:])
        return heads.swapaxes(0, 1).reshape(rows.shape)

    if re.match("attn_gate|ssm_(alpha|beta|a$|dt)", kind):
        return reorder(value)
    if re.match("attn_qkv|ssm_conv1d", kind):
        n_qk = 2 * config.linear_num_key_heads * config.linear_key_head_dim
        return np.concatenate([value[:n_qk], reorder(value[n_qk:])])
    if kind.startswith("ssm_out"):
        return reorder(value.T).T
    return value
