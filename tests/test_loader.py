"""Weights read by the plan: the file's bytes, in aligned memory, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model_steps import Steps
from octavo import arena
from octavo.engine import loader
from octavo.errors import FileFormatError, MemoryPlanError
from octavo.gguf.reader import GGUFFile, open_gguf
from octavo.gguf.writer import write_gguf
from octavo.ops import reference
from octavo.plan.hardware import Hardware
from octavo.plan.plan import Place, Plan
from octavo.plan.planner import Wishes, make_plan

MACHINE = Hardware(32 * 10**9, 30 * 10**9, 2, "", True)


def plan_of(file: GGUFFile, weights: Place = "read") -> Plan:
    return make_plan(file, Wishes(context=64, sequences=1, weights=weights), MACHINE)


def write_tensors(path: Path, sizes: list[int], shard: tuple[int, int] | None = None) -> Path:
    rng = np.random.default_rng(len(sizes))
    keys: dict[str, object] = {"general.architecture": "llama"}
    first = 0
    if shard is not None:
        first = 100 * shard[0]
        keys |= {"split.no": shard[0], "split.count": shard[1]}
    tensors = [
        (f"t{first + i}", (n,), "i8", rng.integers(0, 256, n, np.uint8).tobytes())
        for i, n in enumerate(sizes)
    ]
    write_gguf(path, keys, tensors)
    return path


def check_whole(file: GGUFFile) -> loader.TensorsInMemory:
    read = loader.read_tensors(file, lambda done, total: None)
    assert read.tensors.keys() == file.tensors.keys()
    for name in file.tensors:
        data = read.data(name)
        np.testing.assert_array_equal(data, file.data(name))
        assert data.ctypes.data % loader.ALIGNMENT_BYTES == 0
    return read


@pytest.mark.parametrize("chunk_bytes", [7, 64, 1 << 24])
def test_every_tensor_is_read_and_aligned(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_CHUNK_BYTES", chunk_bytes)
    path = write_tensors(tmp_path / "a.gguf", [1, 7, 33, 64, 257, 1, 4096])
    with open_gguf(path) as file:
        read = check_whole(file)
    assert read.data("t4").shape == (257,)  # the memory is ours: the file is closed


def test_shards_are_read(tmp_path: Path) -> None:
    for i in range(3):
        write_tensors(tmp_path / f"m-0000{i + 1}-of-00003.gguf", [50 + i, 700], (i, 3))
    with open_gguf(tmp_path) as file:
        assert len(file.tensors) == 6
        check_whole(file)


def test_progress_rises_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_CHUNK_BYTES", 100)
    seen: list[tuple[int, int]] = []
    with open_gguf(write_tensors(tmp_path / "a.gguf", [1000, 1, 999])) as file:
        loader.read_tensors(file, lambda done, total: seen.append((done, total)))
    done = [d for d, _ in seen]
    assert {total for _, total in seen} == {2000}
    assert done == sorted(done)
    assert done[-1] == 2000
    assert len(done) == 21


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "a.gguf", [1000, 1000])
    with open_gguf(path) as file:
        other = path.with_name("b.gguf")
        other.write_bytes(path.read_bytes()[:-500])
        other.replace(path)
        with pytest.raises(FileFormatError, match=r"a\.gguf became shorter"):
            loader.read_tensors(file, lambda done, total: None)


def test_a_failing_progress_bar_ends_the_reading(tmp_path: Path) -> None:
    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with (
        open_gguf(write_tensors(tmp_path / "a.gguf", [1000] * 20)) as file,
        pytest.raises(KeyboardInterrupt),
    ):
        loader.read_tensors(file, fail)
    assert threading.active_count() == before


def test_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(n_bytes: int) -> None:
        raise MemoryError

    monkeypatch.setattr(arena, "allocate", refuse)
    with (
        open_gguf(write_tensors(tmp_path / "a.gguf", [1000])) as file,
        pytest.raises(MemoryPlanError, match=r"no 1\.0 kB for the weights of a\.gguf"),
    ):
        loader.read_tensors(file, lambda done, total: None)


@pytest.mark.parametrize("architecture", ["llama", "qwen35moe"])
def test_read_and_mapped_models_compute_the_same(
    architecture: str, tiny_file: Callable[..., Path]
) -> None:
    path = tiny_file(architecture)
    logits = []
    for weights in ("read", "map"):
        with open_gguf(path) as file:
            plan = plan_of(file, weights)
        totals: list[tuple[int, int]] = []
        model = loader.load_model(
            path, plan, reference, lambda done, total, seen=totals: seen.append((done, total))
        )
        assert totals[-1] == (plan.file_bytes, plan.file_bytes)
        logits.append(Steps(model, reference).run(np.array([3, 1, 4, 1, 5])).logits)
    np.testing.assert_array_equal(logits[0], logits[1])


def test_an_open_file_stays_open(tiny_file: Callable[..., Path]) -> None:
    with open_gguf(tiny_file("llama")) as file:
        for weights in ("read", "map"):
            loader.load_model(file, plan_of(file, weights), reference)
            assert file.tensors


def test_fingerprints_tell_files_apart(tiny_file: Callable[..., Path], tmp_path: Path) -> None:
    def mark(path: Path) -> str:
        with open_gguf(path) as file:
            return loader.fingerprint(file)

    path = tiny_file("llama")
    copy = tmp_path / "copy.gguf"
    data = path.read_bytes()
    copy.write_bytes(data)
    assert mark(copy) == mark(path)
    with open_gguf(path) as file:
        start = file.tensors["token_embd.weight"].offset
    copy.write_bytes(data[:start] + bytes([data[start] ^ 1]) + data[start + 1 :])
    assert mark(copy) != mark(path)
    assert mark(tiny_file("qwen2")) != mark(path)
    assert mark(write_tensors(tmp_path / "none.gguf", [])) != mark(path)


PEAK = """
import resource, sys
from octavo.engine import loader
from octavo.gguf.reader import open_gguf

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

with open_gguf(sys.argv[1]) as file:
    before = peak()
    tensors = loader.read_tensors(file, lambda done, total: None)
    print(peak() - before, file.n_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told in KiB only by Linux")
def test_reading_takes_the_file_and_no_more(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "a.gguf", [10 << 20, 30 << 20, 1, 25 << 20])
    command = [sys.executable, "-c", PEAK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    taken, n_bytes = map(int, done.stdout.split())
    assert taken <= 1.1 * n_bytes


def test_no_tensor_at_all(tmp_path: Path) -> None:
    with open_gguf(write_tensors(tmp_path / "a.gguf", [])) as file:
        assert check_whole(file).memory.size == 0


def test_the_plan_is_obeyed(tiny_file: Callable[..., Path]) -> None:
    with open_gguf(tiny_file("llama")) as file:
        plan = plan_of(file, "map")
        model = loader.load_model(file, plan, reference)
        read = loader.load_model(file, replace(plan, weights="read"), reference)
        embeddings = [m.token_embd.data for m in (model, read)]  # type: ignore[attr-defined]
        assert not embeddings[0].flags.writeable
        assert embeddings[1].flags.writeable
