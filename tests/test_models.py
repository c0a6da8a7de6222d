"""Architectures on tiny random files: the same numbers however a text is cut and batched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_steps import Steps, load
from octavo import models, ops, quants
from octavo.errors import FileFormatError, RequestError, UnsupportedError
from octavo.gguf.reader import open_gguf
from octavo.gguf.writer import write_gguf
from octavo.kv.state import AttentionSpec, RecurrentSpec
from octavo.models.config import Rope
from octavo.models.pooling import pool, vector
from octavo.models.rope import table
from octavo.models.source import take_rows
from octavo.ops import reference
from octavo.ops.weight import Weight
from tiny_models import SIZES, Recorder, as_metadata, make_tiny, tiny_metadata

ARCHITECTURES = models.architectures()
HYBRIDS = ("qwen35", "qwen35moe", "qwen3next")
TinyFile = Callable[..., Path]
N = 100  # tokens: more than a cache page, more than gemma3's window


@pytest.fixture(params=ARCHITECTURES)
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(arch: str, tiny_file: TinyFile) -> models.Model:
    return load(tiny_file(arch), reference)


def random_ids(model: models.Model, n: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, model.config.n_vocab, n)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-3, rtol=0)


def test_every_architecture_has_a_tiny_model() -> None:
    assert set(ARCHITECTURES) == set(SIZES)


def test_logits_are_spread_and_change_with_every_token(model: models.Model) -> None:
    ids = random_ids(model, N)
    trace: list[np.ndarray] = []
    output = Steps(model, reference).run(ids, trace)
    assert output.logits.shape == (N, model.config.n_vocab)
    assert output.hidden.shape == (N, model.config.n_embd)
    assert 1 < output.logits.std() < 4
    assert [t.shape for t in trace] == [output.hidden.shape] * model.config.n_layers
    ids[N - 10] = (ids[N - 10] + 1) % model.config.n_vocab
    changed = np.abs(Steps(model, reference).run(ids).logits - output.logits).max(axis=1)
    assert (changed[: N - 10] < 1e-4).all()
    assert (changed[N - 10 :] > 1e-3).all()


@pytest.mark.parametrize("pieces", [[1] * N, [7, 1, 33, 59], [64, 36]])
def test_pieces_are_the_whole(model: models.Model, pieces: list[int]) -> None:
    ids = random_ids(model, N)
    whole = Steps(model, reference).run(ids).logits
    steps = Steps(model, reference)
    parts = [steps.run(part).logits for part in np.split(ids, np.cumsum(pieces)[:-1])]
    close(np.concatenate(parts), whole)


def test_a_batch_is_its_sequences(model: models.Model) -> None:
    texts = [random_ids(model, n, seed=n) for n in (70, 3, 1)]
    together = Steps(model, reference, n_sequences=3)
    first = together.run_together({0: texts[0][:30], 1: texts[1]})
    second = together.run_together({2: texts[2], 0: texts[0][30:]})
    found = {0: [first[0], second[1]], 1: [first[1]], 2: [second[0]]}
    for s, ids in enumerate(texts):
        close(np.concatenate(found[s]), Steps(model, reference).run(ids).logits)


def test_only_wanted_logits_are_computed(model: models.Model) -> None:
    ids = random_ids(model, 9)
    steps = Steps(model, reference)
    whole = steps.run(ids)
    after = steps.run(ids[:1]).logits
    for rows in ([], [8], [3, 0]):
        steps = Steps(model, reference)
        batch = replace(steps.batch({0: ids}), outputs=np.array(rows, np.int32))
        output = model.forward(batch, steps.layers)
        assert output.logits.shape == (len(rows), model.config.n_vocab)
        close(output.logits, whole.logits[rows])
        close(output.hidden, whole.hidden)
        steps = Steps(model, reference)
        lean = model.forward(batch, steps.layers, every_hidden=False)
        close(lean.logits, whole.logits[rows])
        close(lean.hidden, whole.hidden[rows])
        steps.past[0] = len(ids)
        close(steps.run(ids[:1]).logits, after)


def test_a_recorded_step_is_the_step(model: models.Model) -> None:
    ids = random_ids(model, 12)
    expected = Steps(model, reference).run(ids).logits[8:]
    steps = Steps(model, reference)
    steps.run(ids[:8])
    batch = steps.batch({0: ids[8:9]})
    captured = ops.capture(lambda: model.forward(batch, steps.layers), reference)
    logits = captured.result.logits
    close(logits[0], expected[0])
    for position in range(9, 12):
        batch.ids[0] = ids[position]
        batch.positions[0] = batch.n_past[0] = position
        captured.replay()
        close(logits[0], expected[position - 8])


@pytest.mark.parametrize("arch", HYBRIDS)
def test_drafts_in_pieces_are_the_whole(arch: str, tiny_file: TinyFile) -> None:
    model = load(tiny_file(arch, mtp=True), reference)
    assert model.config.n_mtp == 1
    assert len(model.state()) == model.config.n_layers + 1
    ids = random_ids(model, 80)
    steps = Steps(model, reference)
    hidden = steps.run(ids).hidden
    before = np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]])
    whole = steps.draft(ids, before)
    assert 1 < whole.logits.std() < 4
    again = Steps(model, reference)
    cuts = [1, 8, 66]
    parts = zip(np.split(ids, cuts), np.split(before, cuts), strict=True)
    close(np.concatenate([again.draft(*part).logits for part in parts]), whole.logits)


@pytest.mark.parametrize("arch", HYBRIDS)
def test_the_trunk_does_not_depend_on_the_draft_block(arch: str, tiny_file: TinyFile) -> None:
    with_drafter = load(tiny_file(arch, mtp=True), reference)
    without = load(tiny_file(arch), reference)
    assert without.config.n_mtp == 0
    assert with_drafter.config.n_layers == without.config.n_layers
    assert with_drafter.state()[:-1] == without.state()


def test_states_say_the_kind_of_each_layer() -> None:
    hybrid = models.read_config(tiny_metadata("qwen35moe"))
    kinds = [type(spec) for spec in hybrid.layers]
    assert kinds == [RecurrentSpec] * 3 + [AttentionSpec]
    named = tiny_metadata(
        "qwen35moe", changes={"attention.recurrent_layers": [False, True, True, False]}
    )
    kinds = [type(spec) for spec in models.read_config(named).layers]
    assert kinds == [AttentionSpec, RecurrentSpec, RecurrentSpec, AttentionSpec]
    windows = [spec.window for spec in models.read_config(tiny_metadata("gemma3")).layers]
    assert windows == [24, 24, 24, 24, 24, 0, 24]


def test_gemma3_forgets_what_left_the_window(tiny_file: TinyFile) -> None:
    path = tiny_file("gemma3", changes={"block_count": 1})
    model = load(path, reference)
    ids = random_ids(model, 60)
    before = Steps(model, reference).run(ids).logits
    ids[10] += 1
    changed = np.abs(Steps(model, reference).run(ids).logits - before).max(axis=1) > 1e-5
    assert changed.nonzero()[0].tolist() == list(range(10, 10 + 24))


def test_a_fused_bank_is_its_halves(tiny_file: TinyFile, tmp_path: Path) -> None:
    apart = tiny_file("qwen35moe", types="q8_0")
    with open_gguf(apart) as file:
        tensors = {n: (t.shape, t.type_name, file.data(n)) for n, t in file.tensors.items()}
        for i in range(4):
            gate, up = (tensors.pop(f"blk.{i}.ffn_{x}_exps.weight") for x in ("gate", "up"))
            shape = (gate[0][0], 2 * gate[0][1], gate[0][2])
            data = np.hstack([x[2].reshape(gate[0][0], -1) for x in (gate, up)])
            tensors[f"blk.{i}.ffn_gate_up_exps.weight"] = (shape, "q8_0", data)
        fused = tmp_path / "fused.gguf"
        write_gguf(fused, file.metadata, [(n, *rest) for n, rest in tensors.items()])
    one, two = load(apart, reference), load(fused, reference)
    ids = random_ids(one, 9)
    close(Steps(two, reference).run(ids).logits, Steps(one, reference).run(ids).logits)


def test_all_block_formats_make_a_model(tiny_file: TinyFile) -> None:
    ids = np.arange(5)
    exact = Steps(load(tiny_file("llama", types="f32"), reference), reference).run(ids).logits
    for types in ("q8_0", "q6_k", "bf16"):
        rounded = Steps(load(tiny_file("llama", types=types), reference), reference).run(ids).logits
        assert 0 < np.abs(rounded - exact).mean() < 0.3


@pytest.mark.parametrize("format", ["f32", "q8_0", "q4_k", "iq4_xs"])
def test_rows_of_a_weight(rng: np.random.Generator, format: str) -> None:
    values = rng.standard_normal((6, 256), np.float32)
    whole = Weight("w", format, (6, 256), quants.pack(format, values).reshape(-1), reference)
    part = take_rows(whole, np.array([5, 0, 2]), "part")
    expected = quants.unpack(format, whole.data, whole.shape)[[5, 0, 2]]
    assert np.array_equal(quants.unpack(format, part.data, part.shape), expected)


def test_small_tensors_of_other_formats(tmp_path: Path) -> None:
    """Norms and biases are float32 in ordinary files, but a file may hold them otherwise."""
    path = make_tiny("qwen2", tmp_path / "a.gguf")
    with open_gguf(path) as file:
        tensors = []
        for name, info in file.tensors.items():
            values = quants.unpack(info.type_name, file.data(name), info.shape)
            kind = "f16" if len(info.shape) == 1 else "f32"
            tensors.append((name, info.shape, kind, quants.pack(kind, values)))
        write_gguf(tmp_path / "b.gguf", file.metadata, tensors)
    one, two = load(path, reference), load(tmp_path / "b.gguf", reference)
    ids = random_ids(one, 9)
    np.testing.assert_allclose(
        Steps(two, reference).run(ids).logits, Steps(one, reference).run(ids).logits, atol=0.05
    )


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones() -> None:
    plain = Rope(64, 1e6)
    scaled = replace(plain, scaling="yarn", factor=4.0, original_context=1024)
    weights = Recorder(0, "$^", False)
    ratio = table(plain, weights).frequencies / table(scaled, weights).frequencies
    turns = 1024 * table(plain, weights).frequencies / (2 * np.pi)
    assert np.allclose(ratio[turns > 32], 1)
    assert np.allclose(ratio[turns < 0.5], 4)
    assert (np.diff(ratio) >= -1e-5).all()
    assert table(scaled, weights).magnitude == pytest.approx(1 + 0.1 * np.log(4))
    linear = table(replace(plain, scaling="linear", factor=8.0), weights)
    assert np.allclose(linear.frequencies * 8, table(plain, weights).frequencies)


def test_kinds_of_tensors() -> None:
    recorder = Recorder(0, "output.weight", False)
    metadata = tiny_metadata("qwen35moe", mtp=True)
    model = models.build(metadata, recorder)
    kinds = {name: models.kind(name, model.config.n_layers) for name in recorder.made}
    assert kinds["token_embd.weight"] == "embedding"
    assert kinds["output.weight"] == "head"
    assert kinds["output_norm.weight"] == "trunk"
    assert kinds["blk.3.attn_q.weight"] == "trunk"
    assert kinds["blk.0.ffn_down_exps.weight"] == "experts"
    assert kinds["blk.0.ffn_down_shexp.weight"] == "trunk"
    assert kinds["blk.4.ffn_down_exps.weight"] == kinds["blk.4.nextn.eh_proj.weight"] == "mtp"


@pytest.mark.parametrize("name", ["", "config", "blocks", "../llama", "llama4"])
def test_unknown_architectures_are_named(name: str) -> None:
    with pytest.raises(UnsupportedError, match="architecture") as error:
        models.read_config(as_metadata({"general.architecture": name}))
    assert "qwen35moe" in error.value.hint
    assert "blocks," not in error.value.hint


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"block_count": None}, "block_count"),
        ({"block_count": 10**9}, "block_count is 1000000000"),
        ({"attention.head_count": 0}, "head_count is 0"),
        ({"attention.head_count_kv": 3}, "cannot share 3"),
        ({"attention.head_count_kv": [2, 2, 1]}, "differs between layers"),
        ({"embedding_length": "wide"}, "embedding_length"),
        ({"rope.scaling.type": "longrope"}, "longrope"),
        ({"rope.freq_base": 0.0}, "freq_base is 0.0"),
        ({"rope.dimension_count": 66}, "dimension_count is 66"),
        ({"rope.dimension_count": 33}, "even"),
        ({"pooling_type": 9}, "pooling_type 9"),
        ({"expert_count": 4, "expert_used_count": 5}, "expert_used_count is 5"),
        ({"tokenizer.ggml.tokens": None}, "vocab_size"),
    ],
)
def test_wrong_metadata_is_named(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(FileFormatError, match=error):
        models.read_config(tiny_metadata("llama", changes=changes))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"ssm.inner_size": 130}, "inner 130"),
        ({"ssm.group_count": 4}, "key heads 4"),
        ({"nextn_predict_layers": 2}, "2 draft blocks"),
        ({"nextn_predict_layers": 1, "block_count": 1}, "without its model"),
        ({"attention.recurrent_layers": [True]}, "names 1 layers"),
    ],
)
def test_wrong_hybrid_metadata_is_named(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(FileFormatError, match=error):
        models.read_config(tiny_metadata("qwen35", changes=changes))


def test_wrong_tensors_are_named(arch: str, tiny_file: TinyFile) -> None:
    with open_gguf(tiny_file(arch)) as file:
        weights = models.FileWeights(file, reference)
        file.tensors.pop("blk.2.ffn_norm.weight", None)
        file.tensors.pop("blk.2.post_attention_norm.weight", None)
        with pytest.raises(FileFormatError, match="lacks the tensor 'blk.2"):
            models.build(file.metadata, weights)
    with open_gguf(tiny_file(arch)) as file:
        shape = file.tensors["token_embd.weight"].shape
        broken = file.tensors["token_embd.weight"]._replace(shape=(shape[0] - 1, shape[1]))
        file.tensors["token_embd.weight"] = broken
        found, expected = str(broken.shape), str(shape)
        with pytest.raises(FileFormatError, match="'token_embd.weight' has the shape") as error:
            models.build(file.metadata, models.FileWeights(file, reference))
        assert found in error.value.message
        assert expected in error.value.message


def test_early_embedding_files_pool_the_last_token() -> None:
    changes: dict[str, Any] = {"general.name": "Qwen3 Embedding 0.6B"}
    assert models.read_config(tiny_metadata("qwen3", changes=changes)).pooling == "last"
    changes["pooling_type"] = 1
    assert models.read_config(tiny_metadata("qwen3", changes=changes)).pooling == "mean"
    assert models.read_config(tiny_metadata("qwen3")).pooling == ""


def test_pooling(rng: np.random.Generator) -> None:
    hidden = rng.standard_normal((7, 33), np.float32)
    np.testing.assert_allclose(pool(hidden, "mean"), np.ones(7) @ hidden / 7, atol=1e-6)
    assert np.array_equal(pool(hidden, "cls"), hidden[0])
    assert np.array_equal(pool(hidden, "last"), hidden[6])
    with pytest.raises(UnsupportedError, match="pooling is 'none'"):
        pool(hidden, "")
    last = hidden[6]
    assert np.array_equal(vector(last, normalise=False), last)
    np.testing.assert_allclose(vector(last, 5) * np.linalg.norm(last[:5]), last[:5], atol=1e-6)
    assert np.linalg.norm(vector(last)) == pytest.approx(1)
    assert not vector(np.zeros(4, np.float32)).any()
    for dimensions in (0, 34):
        with pytest.raises(RequestError, match=f"{dimensions} dimensions"):
            vector(last, dimensions)
