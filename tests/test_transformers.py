"""The architectures against the `transformers` package, on tiny random configurations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import models
from octavo.ops import reference

torch = pytest.importorskip("torch", reason="torch is not installed: pip install .[compare]")
transformers = pytest.importorskip(
    "transformers", minversion="5.0", reason="transformers 5 is not installed"
)

from model_steps import Steps, load  # noqa: E402
from transformers_files import randomise, write  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
HEAD = {"head_dim": 32}
EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 48,
    "norm_topk_prob": True,
}
DELTA = {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 4,
    "shared_expert_intermediate_size": 80,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
GEMMA = {
    "num_hidden_layers": 7,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 24,
    "rope_parameters": GEMMA_ROPE,
}


@dataclass(frozen=True)
class Case:
    arch: str
    family: str  # prefix of the classes in transformers
    options: dict[str, Any] = field(default_factory=dict)
    config: str = "Config"


CASES = {
    "llama": Case("llama", "Llama", {"tie_word_embeddings": False}),
    "llama-3": Case("llama", "Llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
    "mixtral": Case("llama", "Mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen2": Case("qwen2", "Qwen2", {"tie_word_embeddings": True}),
    "qwen3": Case("qwen3", "Qwen3", HEAD),
    "qwen3-yarn": Case("qwen3", "Qwen3", {**HEAD, "rope_parameters": YARN}),
    "qwen3moe": Case("qwen3moe", "Qwen3Moe", {**HEAD, **EXPERTS}),
    "qwen3next": Case("qwen3next", "Qwen3Next", {**DELTA, **EXPERTS}),
    "qwen35": Case("qwen35", "Qwen3_5", DELTA, "TextConfig"),
    "qwen35moe": Case("qwen35moe", "Qwen3_5Moe", {**DELTA, **EXPERTS}, "TextConfig"),
    "gemma3": Case("gemma3", "Gemma3", GEMMA, "TextConfig"),
    "gemma3-softcap": Case(
        "gemma3", "Gemma3", {**GEMMA, "final_logit_softcapping": 3.0}, "TextConfig"
    ),
}


def test_every_architecture_is_compared() -> None:
    assert {case.arch for case in CASES.values()} == set(models.architectures())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_logits_and_blocks(case: Case, tmp_path: Path) -> None:
    config = getattr(transformers, case.family + case.config)(**{**SIZES, **case.options})
    config._attn_implementation = "eager"
    other = getattr(transformers, f"{case.family}ForCausalLM")(config).float().eval()
    randomise(other, case.arch, seed=5)
    model = load(write(other, config, case.arch, tmp_path / "a.gguf"), reference)
    ids = np.random.default_rng(2).integers(0, config.vocab_size, 100)
    with torch.no_grad():
        expected = other(torch.from_numpy(ids)[None], output_hidden_states=True, use_cache=False)
    trace: list[np.ndarray] = []
    output = Steps(model, reference).run(ids, trace)
    states = [state[0].numpy() for state in expected.hidden_states]
    for i, (found, state) in enumerate(zip(trace[:-1], states[1:-1], strict=True)):
        np.testing.assert_allclose(found, state, atol=1e-3, rtol=0, err_msg=f"block {i}")
    np.testing.assert_allclose(output.hidden, states[-1], atol=1e-3, rtol=0)
    np.testing.assert_allclose(output.logits, expected.logits[0].numpy(), atol=1e-3, rtol=0)
    assert expected.logits.std() > 1
