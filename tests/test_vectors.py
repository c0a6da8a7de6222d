"""The models against an independent engine: logits, block outputs, drafts and embeddings.

The reference back end is compared strictly with that engine's results on exact weights. A back
end that rounds activations is compared in distribution: it may not be further from those results
than the engine itself is when it rounds.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from model_steps import Steps, load
from octavo.models import Model
from octavo.models.pooling import pool, vector
from octavo.ops import reference

NAMES = (
    "gemma3-swa",
    "llama-float",
    "llama-iquant",
    "llama-kquant",
    "llama-legacy",
    "llama-moe",
    "qwen2-tied",
    "qwen3-embed",
    "qwen3-kquant",
    "qwen3-yarn",
    "qwen35-dense",
    "qwen35moe-fused",
    "qwen35moe-iq",
    "qwen35moe-mtp",
    "qwen35moe-mxfp4",
    "qwen35moe-ud",
    "qwen3moe-q",
    "qwen3next-q",
)
# The engine's GELU goes through a table in half precision.
LOGITS_TOLERANCE = {"gemma3-swa": 3e-2}
BLOCK_TOLERANCE = {"gemma3-swa": 5e-2}
ROUNDING_BACKENDS = ("cpu",)
# Real files, with the mean difference of log-probabilities that exact arithmetic may have.
REAL = {"smollm2-135m-instruct-q4_1": 1e-4, "gemma-3-270m-q4_k_m": 3e-3}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ROUNDING_BACKENDS)
def backend(request: pytest.FixtureRequest) -> ModuleType:
    try:
        return importlib.import_module(f"octavo.ops.{request.param}")
    except ImportError as error:
        pytest.skip(f"octavo.ops.{request.param} cannot be imported: {error}")


@cache
def known(folder: Path, name: str) -> dict[str, Any]:
    with np.load(folder / "logits" / f"{name}.npz") as file:
        return dict(file)


@cache
def exact_model(folder: Path, name: str) -> Model:
    return load(folder / "models" / f"{name}.gguf", reference)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    assert found.shape == expected.shape, f"{what}: {found.shape}, {expected.shape} expected"
    difference = float(np.abs(found - expected).max())
    assert difference <= tolerance, f"{what}: off by {difference:.2g}, {tolerance:.0e} allowed"


def test_every_file_is_tested(vectors: Path) -> None:
    assert sorted(json.loads((vectors / "models.json").read_text())) == sorted(NAMES)


def test_logits(vectors: Path, name: str) -> None:
    data = known(vectors, name)
    for s in range(3):
        steps = Steps(exact_model(vectors, name), reference)
        logits = steps.run(data[f"seq{s}_ids"]).logits[data[f"seq{s}_pos"]]
        close(
            logits, data[f"seq{s}_logits_f32w"], LOGITS_TOLERANCE.get(name, 1e-3), f"sequence {s}"
        )


def test_block_outputs(vectors: Path, name: str) -> None:
    data = known(vectors, name)
    trace: list[np.ndarray] = []
    Steps(exact_model(vectors, name), reference).run(data["seq1_ids"], trace)
    assert len(trace) == len(data["seq1_layer_output_f32w"])
    for i, expected in enumerate(data["seq1_layer_output_f32w"]):
        found = trace[i][data["seq1_layer_pos"]]
        close(found, expected, BLOCK_TOLERANCE.get(name, 2e-4), f"block {i}")


@pytest.mark.parametrize("s", [0, 1, 2])
def test_greedy_continuation(vectors: Path, name: str, s: int) -> None:
    """Token by token through the cache; near-ties end the comparison."""
    data = known(vectors, name)
    steps = Steps(exact_model(vectors, name), reference)
    logits = steps.run(data[f"seq{s}_ids"]).logits[-1]
    sure = 2 * LOGITS_TOLERANCE.get(name, 1e-3)
    margins = data[f"seq{s}_greedy_f32w_margin"]
    for expected, margin in zip(data[f"seq{s}_greedy_f32w"], margins, strict=True):
        if margin < sure:
            break
        assert logits.argmax() == expected
        logits = steps.run(np.array([expected])).logits[0]


def test_hidden_states_and_draft_logits(vectors: Path) -> None:
    data = known(vectors, "qwen35moe-mtp")
    steps = Steps(exact_model(vectors, "qwen35moe-mtp"), reference)
    ids = data["seq1_ids"]
    hidden = steps.run(ids).hidden
    close(hidden, data["seq1_hidden_f32w"], 1e-3, "hidden states")
    before = np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]])
    close(steps.draft(ids, before).logits, data["mtp_logits_f32w"], 1e-3, "draft logits")


def test_chained_drafts(vectors: Path) -> None:
    data = known(vectors, "qwen35moe-mtp")
    steps = Steps(exact_model(vectors, "qwen35moe-mtp"), reference)
    trunk = steps.run(data["seq1_ids"])
    before = np.concatenate([np.zeros_like(trunk.hidden[:1]), trunk.hidden[:-1]])
    steps.draft(data["seq1_ids"], before)
    token, hidden = trunk.logits[-1].argmax(), trunk.hidden[-1:]
    assert token == data["mtp_draft_first_f32w"][0]
    for i, expected in enumerate(data["mtp_draft_ids_f32w"]):
        output = steps.draft(np.array([token]), hidden)
        close(output.logits, data["mtp_draft_logits_f32w"][i : i + 1], 1e-3, f"draft {i}")
        token, hidden = output.logits[0].argmax(), output.hidden
        assert token == expected


def embedding(model: Model, backend: ModuleType, ids: np.ndarray) -> np.ndarray:
    hidden = Steps(model, backend, format="f16" if backend is not reference else "f32").run(ids)
    return vector(pool(hidden.hidden, model.config.pooling))


def texts(data: dict[str, Any]) -> list[np.ndarray]:
    """The token ids of all texts whose vectors are known, in their order."""
    n_texts = len(data["text_vectors"])
    return [data[f"seq{s}_ids"] for s in range(3)] + [data[f"text{t}_ids"] for t in range(n_texts)]


def test_embedding_vectors(vectors: Path) -> None:
    data = known(vectors, "qwen3-embed")
    model = exact_model(vectors, "qwen3-embed")
    expected = np.concatenate([data["seq_vectors_f32w"], data["text_vectors_f32w"]])
    for ids, known_vector in zip(texts(data), expected, strict=True):
        close(embedding(model, reference, ids), known_vector, 1e-5, f"{len(ids)} tokens")


def divergence(expected: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Mean KL divergence from `expected`, and how often the best token is the same."""

    def log_softmax(x: np.ndarray) -> np.ndarray:
        x = x - x.max(axis=-1, keepdims=True).astype(np.float64)
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

    p, q = log_softmax(expected), log_softmax(found)
    same = expected.argmax(axis=-1) == found.argmax(axis=-1)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean()), float(same.mean())


def not_further(expected: np.ndarray, found: np.ndarray, rival: np.ndarray) -> None:
    kl, same = divergence(expected, found)
    rival_kl, rival_same = divergence(expected, rival)
    assert kl <= 1.5 * rival_kl + 1e-3
    # 0.05, and one standard error of a share counted over so few positions
    noise = (rival_same * (1 - rival_same) / len(expected)) ** 0.5
    assert same >= rival_same - 0.05 - noise


def test_rounded_logits(vectors: Path, name: str, backend: ModuleType) -> None:
    data = known(vectors, name)
    model = load(vectors / "models" / f"{name}.gguf", backend)
    found = [
        Steps(model, backend, format="f16").run(data[f"seq{s}_ids"]).logits[data[f"seq{s}_pos"]]
        for s in range(3)
    ]
    exact, rival = (
        np.concatenate([data[f"seq{s}_logits{suffix}"] for s in range(3)])
        for suffix in ("_f32w", "")
    )
    not_further(exact, np.concatenate(found), rival)


def test_rounded_drafts(vectors: Path, backend: ModuleType) -> None:
    data = known(vectors, "qwen35moe-mtp")
    steps = Steps(load(vectors / "models" / "qwen35moe-mtp.gguf", backend), backend, format="f16")
    hidden = np.array(steps.run(data["seq1_ids"]).hidden)
    before = np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]])
    found = steps.draft(data["seq1_ids"], before).logits
    not_further(data["mtp_logits_f32w"], found, data["mtp_logits"])


def test_rounded_embedding_vectors(vectors: Path, backend: ModuleType) -> None:
    data = known(vectors, "qwen3-embed")
    model = load(vectors / "models" / "qwen3-embed.gguf", backend)
    found = np.stack([embedding(model, backend, ids) for ids in texts(data)])
    exact, rival = (
        np.concatenate([data[f"seq_vectors{suffix}"], data[f"text_vectors{suffix}"]])
        for suffix in ("_f32w", "")
    )
    distance = np.linalg.norm(found - exact, axis=1)
    rival_distance = np.linalg.norm(rival - exact, axis=1)
    assert distance.mean() <= 1.5 * rival_distance.mean() + 1e-3


def log_probability_error(model: Model, backend: ModuleType, data: dict[str, Any]) -> float:
    """Mean difference of the log-probabilities that the tokens of a known text get."""
    ids = data["mixed_ids"]
    steps = Steps(model, backend, format="f32" if backend is reference else "f16")
    logits = steps.run(ids).logits[:-1].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    found = logits[np.arange(len(ids) - 1), ids[1:]] - np.log(np.exp(logits).sum(axis=1))
    return float(np.abs(found - data["mixed_next_logprob_f32w"][:-1]).mean())


@pytest.mark.weights
@pytest.mark.parametrize("stem", REAL)
def test_real_models(vectors: Path, real_file: Callable[[str], Path], stem: str) -> None:
    with np.load(vectors / "real" / f"{stem}.npz") as file:
        error = log_probability_error(
            load(real_file(f"{stem}.gguf"), reference), reference, dict(file)
        )
    assert error < REAL[stem]


@pytest.mark.weights
@pytest.mark.parametrize("stem", REAL)
def test_real_models_rounded(
    vectors: Path, real_file: Callable[[str], Path], stem: str, backend: ModuleType
) -> None:
    with np.load(vectors / "real" / f"{stem}.npz") as file:
        error = log_probability_error(load(real_file(f"{stem}.gguf"), backend), backend, dict(file))
    assert error < 0.15
