"""The plan: its arithmetic against what is really allocated, and its choices for known machines."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo import models
from octavo.errors import MemoryPlanError, SettingError, UnsupportedError
from octavo.gguf.reader import open_gguf
from octavo.kv.cache import Cache
from octavo.ops import reference
from octavo.plan import hardware, memory, planner
from octavo.plan.hardware import Hardware
from octavo.plan.plan import Plan
from octavo.plan.planner import Wishes, make_plan
from plan_headers import machine, qwen36_35b, smollm2

ARCHITECTURES = ["llama", "gemma3", "qwen3moe", "qwen3next", "qwen35moe"]


def brief(plan: Plan) -> tuple[str, int, int, bool]:
    return plan.weights, plan.context, plan.sequences, plan.fits


# (available GB, of total GB, huge pages) -> weights, context, sequences, all in memory
CHOICES_35B = [
    ((60.0, 64, True), ("map", 32_768, 4, True)),
    ((30.0, 32, True), ("map", 32_768, 4, True)),
    ((27.0, 32, True), ("map", 32_768, 2, True)),
    ((26.0, 32, True), ("map", 32_768, 1, True)),
    ((25.6, 32, True), ("map", 16_384, 1, True)),
    ((24.5, 32, True), ("map", 32_768, 1, False)),
    ((14.0, 16, True), ("map", 32_768, 1, False)),
    ((2.5, 16, True), ("map", 8_192, 1, False)),
    ((30.0, 32, False), ("map", 32_768, 4, True)),
]
CHOICES_SMOLLM2 = [
    ((30.0, 32, True), ("read", 8192, 4, True)),
    ((30.0, 32, False), ("map", 8192, 4, True)),
    ((1.2, 4, True), ("read", 8192, 2, True)),
    ((0.96, 4, True), ("read", 8192, 1, True)),
    ((0.78, 4, True), ("map", 8192, 1, False)),
]


@pytest.mark.parametrize(("here", "expected"), CHOICES_35B)
def test_choices_for_35b(
    here: tuple[float, int, bool], expected: tuple[str, int, int, bool]
) -> None:
    plan = make_plan(qwen36_35b(), Wishes(), machine(*here))
    assert brief(plan) == expected
    assert plan.own_bytes <= plan.room_bytes


@pytest.mark.parametrize(("here", "expected"), CHOICES_SMOLLM2)
def test_choices_for_a_small_model(
    here: tuple[float, int, bool], expected: tuple[str, int, int, bool]
) -> None:
    assert brief(make_plan(smollm2(), Wishes(), machine(*here))) == expected


def test_known_bytes_of_35b() -> None:
    """Figures that were worked out apart from this program."""
    config = models.read_config(qwen36_35b().metadata)
    assert memory.slot_bytes(config.layers) == 65_863_680
    assert memory.page_bytes(config.layers, "f16") == 64 * 20_480
    assert memory.page_bytes(config.layers, "q8_0") == 64 * 10_880
    kinds = memory.weight_bytes(qwen36_35b().tensors.values(), config.n_layers)
    one_expert = 2 * 512 * 2048 * 144 // 256 + 512 * 2048 * 176 // 256
    assert kinds["experts"] == 40 * 256 * one_expert
    assert kinds["head"] == kinds["embedding"] == 248_320 * 2048 // 32 * 34
    read = memory.read_bytes_per_token(list(qwen36_35b().tensors.values()), config)
    assert read == 40 * 8 * one_expert + kinds["head"] + kinds["trunk"]


def test_a_tied_head_is_read_although_the_file_has_only_the_embedding() -> None:
    file = smollm2()
    config = models.read_config(file.metadata)
    tensors = list(file.tensors.values())
    assert memory.read_bytes_per_token(tensors, config) == sum(t.n_bytes for t in tensors)


def test_a_small_model_gets_all_it_knows() -> None:
    plan = make_plan(smollm2(), Wishes(), machine(30))
    assert brief(plan) == ("read", 8192, 4, True)
    assert (plan.n_pages, plan.n_slots, plan.state_bytes) == (4 * 128, 0, 0)
    assert plan.threads == 8
    assert plan.prefix_bytes == plan.cache_bytes


def test_wishes_are_honoured() -> None:
    wishes = Wishes(
        context=1000,
        sequences=3,
        batch=64,
        cache_format="q8_0",
        weights="map",
        draft_tokens=2,
        snapshots=5,
        threads=3,
    )
    plan = make_plan(qwen36_35b(), wishes, machine(60, 64))
    assert brief(plan) == ("map", 1000, 3, True)
    assert (plan.batch_tokens, plan.cache_format, plan.threads) == (64, "q8_0", 3)
    assert (plan.n_pages, plan.n_slots, plan.n_snapshots) == (48, 3 * 3 + 5, 5)
    assert plan.weights_reason == "as asked"
    assert plan.context_reason.startswith("as asked")


@pytest.mark.parametrize(
    ("wishes", "here", "words"),
    [
        (Wishes(context=262_144, sequences=4), machine(14, 16), r"cache 21\.5 GB.*14\.0 GB are"),
        (Wishes(weights="read"), machine(14, 16), r"weights, read 2\d\.\d GB"),
        (Wishes(), machine(2.0, 16), r"states"),
        (Wishes(sequences=500), machine(30), r"states \d+\.\d GB"),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers(
    wishes: Wishes, here: Hardware, words: str
) -> None:
    with pytest.raises(MemoryPlanError, match=words) as caught:
        make_plan(qwen36_35b(), wishes, here)
    assert caught.value.hint


@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("available_gb", [3.0, 5.9])
def test_the_context_that_a_refusal_names_does_fit(sequences: int, available_gb: float) -> None:
    here = machine(available_gb, 8)
    with pytest.raises(MemoryPlanError) as caught:
        make_plan(qwen36_35b(), Wishes(context=262_144, sequences=sequences), here)
    found = re.search(r"A context of ([\d,]+) tokens", caught.value.hint)
    assert found, caught.value.hint
    fitting = int(found[1].replace(",", ""))
    make_plan(qwen36_35b(), Wishes(context=fitting, sequences=sequences), here)
    with pytest.raises(MemoryPlanError):
        make_plan(qwen36_35b(), Wishes(context=fitting + 1, sequences=sequences), here)


def test_wrong_wishes() -> None:
    with pytest.raises(SettingError, match="8,193.*8,192"):
        make_plan(smollm2(), Wishes(context=8193), machine(30))
    with pytest.raises(UnsupportedError, match="cache format 'q3'"):
        make_plan(smollm2(), Wishes(cache_format="q3"), machine(30))
    for name in ("context", "sequences", "batch", "threads"):
        with pytest.raises(SettingError, match=f"{name} is 0"):
            Wishes(**{name: 0})
    with pytest.raises(SettingError, match="weights is 'gpu'"):
        Wishes(weights="gpu")
    assert Wishes(draft_tokens=0, snapshots=0).draft_tokens == 0


def test_slow_formats_are_named() -> None:
    plan = make_plan(qwen36_35b(), Wishes(), machine(60, 64), {"q8_0", "q4_k"})
    assert plan.slow_formats == ("f32", "q5_k")
    assert "so slow: f32, q5_k" in plan.table()
    assert make_plan(qwen36_35b(), Wishes(), machine(60, 64)).slow_formats == ()


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What people see; change it on purpose."""
    monkeypatch.setattr(planner, "cache_formats", lambda: ("f16", "q8_0"))
    assert make_plan(qwen36_35b(), Wishes(), machine(26)).table() == TABLE_35B


TABLE_35B = """\
Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf (qwen35moe)
weights, mapped      21.6 GB  above 4.0 GB a copy would delay the start
  embedding         540.3 MB
  head              540.3 MB
  trunk               1.1 GB
  experts            19.5 GB
cache               672.4 MB  f16, 32,768 tokens
states              856.2 MB  13 recurrent states, 8 for snapshots
scratch             140.0 MB  steps of up to 512 tokens
total                23.3 GB  fits: 23.4 GB of 26.0 GB available, 2.6 GB left to the system
context: 32,768 tokens (the default; the model knows 262,144)
biggest context that fits: 40,768 in f16, 76,864 in q8_0
a token reads 2.2 GB of weights, and what the cache holds
threads: 8, instructions: avx2"""


def test_the_dictionary_is_json_and_complete() -> None:
    plan = make_plan(qwen36_35b(), Wishes(), machine(26))
    found = json.loads(json.dumps(plan.as_dict()))
    assert {field.name for field in dataclasses.fields(plan)} <= found.keys()
    assert found["total_bytes"] == plan.total_bytes
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.context = 1  # type: ignore[misc]


@pytest.mark.parametrize("cache_format", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_cache_takes_what_was_planned(
    architecture: str, cache_format: str, tiny_file: Callable[..., Path]
) -> None:
    with open_gguf(tiny_file(architecture)) as file:
        plan = make_plan(
            file, Wishes(context=100, sequences=2, cache_format=cache_format), machine(30)
        )
        config = models.read_config(file.metadata)
        assert plan.file_bytes == sum(t.n_bytes for t in file.tensors.values())
    cache = Cache(
        config.layers,
        n_pages=plan.n_pages,
        n_slots=plan.n_slots,
        format=plan.cache_format,
        backend=reference,
        context=plan.context,
    )
    assert cache.n_bytes == plan.cache_bytes + plan.state_bytes
    for _ in range(2):
        cache.open().reserve(100)


def test_this_machine() -> None:
    here = hardware.probe()
    assert 0 < here.available_bytes <= here.memory_bytes
    assert here.n_threads >= 1


def test_a_container_has_what_its_limit_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(hardware, "_CONTAINER_LIMIT", limit)
    whole = hardware.probe().memory_bytes
    limit.write_text("max\n")
    assert hardware.probe().memory_bytes == whole
    limit.write_text("1000000\n")
    assert hardware.probe().memory_bytes == 1_000_000
    assert hardware.probe().available_bytes <= 1_000_000


def test_cores_that_are_not_allowed_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware.psutil, "cpu_count", lambda logical: 64)
    monkeypatch.setattr(hardware.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert hardware.probe().n_threads == 3
    monkeypatch.setattr(hardware.psutil, "cpu_count", lambda logical: None)
    assert hardware.probe().n_threads == 3
    monkeypatch.setenv("OCTAVO_THREADS", "5")
    assert hardware.probe().n_threads == 5


def test_sizes_for_people() -> None:
    sizes = 0, 999, 1000, 21_345_678_901
    assert [memory.text(n) for n in sizes] == ["0 B", "999 B", "1.0 kB", "21.3 GB"]


def octavo(*arguments: str) -> SimpleNamespace:
    command = [sys.executable, "-m", "octavo", "plan", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)


def test_the_command(tiny_file: Callable[..., Path]) -> None:
    path = str(tiny_file("qwen35moe"))
    shown = octavo(path, "-c", "128", "--cache-format", "q8_0")
    assert shown.code == 0, shown.err
    assert "q8_0, 4 x 128 tokens" in shown.out
    found = json.loads(octavo(path, "--json", "--parallel", "2").out)
    assert (found["architecture"], found["sequences"]) == ("qwen35moe", 2)
    refused = octavo(path, "-c", "100000")
    assert refused.code == SettingError.exit_code
    assert "100,000" in refused.err
