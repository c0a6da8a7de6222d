"""`octavo inspect` and `octavo pull`: what they say, also of files that are large or hostile."""

from __future__ import annotations

import json
import os
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gguf_raw import Raw, Row, array, scalar, string, text
from hub_server import Hub
from octavo.cli import app
from octavo.gguf.meta import Typed
from octavo.gguf.reader import open_gguf
from octavo.gguf.shards import shard_name
from octavo.gguf.writer import write_gguf
from octavo.plan.planner import DEFAULT_CONTEXT_TOKENS

N_TOKENS = 248_320
N_MERGES = 247_587


def octavo(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def inspected(*words: object) -> dict[str, Any]:
    done = octavo("inspect", *words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("arch", ["llama", "qwen35moe"])
def test_the_sums_are_those_of_the_file(tiny_file: Any, arch: str) -> None:
    path = tiny_file(arch)
    found = inspected(path, "--tensors")
    with open_gguf(path) as file:
        tensors = file.tensors.values()
        assert found["architecture"] == arch
        assert found["bytes"] == path.stat().st_size
        assert found["parameters"] == sum(t.n_elements for t in tensors)
        assert [row["name"] for row in found["tensors"]] == list(file.tensors)
        assert sum(row["tensors"] for row in found["types"]) == len(tensors)
        assert sum(row["bytes"] for row in found["types"]) == sum(t.n_bytes for t in tensors)
        assert found["memory"]["weights_bytes"] == sum(t.n_bytes for t in tensors)
        tokens = file.metadata["tokenizer.ggml.tokens"]
        assert found["tokenizer"]["tokens"] == len(tokens)
        for token in found["tokenizer"]["special"].values():
            assert token["text"] == tokens[token["id"]]
    assert found["runs_here"]
    assert found["memory"]["cache_bytes"] > 0


def test_text_and_json_say_the_same(tiny_file: Any) -> None:
    path = tiny_file("qwen35moe")
    found = inspected(path)
    shown = octavo("inspect", path, "--tensors").stdout
    for value in (path, found["architecture"], found["tokenizer"]["pre"], "token_embd.weight"):
        assert str(value) in shown
    for row in found["types"]:
        assert f"{row['type']:<8} {row['tensors']:>5} tensors" in shown


def test_the_cache_grows_with_the_context_up_to_the_default(tmp_path: Path) -> None:
    sizes = {}
    for n_context in (64, 32_768, 1 << 20):
        path = tmp_path / f"{n_context}.gguf"
        write_gguf(path, llama(n_context), [("w", (8,), "f32", bytes(32))])
        memory = inspected(path)["memory"]
        assert memory["cache_tokens"] == min(n_context, DEFAULT_CONTEXT_TOKENS)
        sizes[n_context] = memory["cache_bytes"]
    # 2 layers, 2 key and 2 value heads of 16, 2 bytes each
    assert sizes[32_768] == 32_768 * 2 * (2 + 2) * 16 * 2 == sizes[1 << 20] == 512 * sizes[64]


def llama(n_context: int) -> dict[str, Any]:
    return {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.context_length": n_context,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": 8,
    }


def test_a_set_is_one_model(tmp_path: Path) -> None:
    for i in range(2):
        keys = {"split.no": Typed("u16", i), "split.count": Typed("u16", 2)}
        rows = [(f"w{i}", (8,), "f32", bytes(32))]
        write_gguf(tmp_path / shard_name("m", i + 1, 2), {**llama(64), **keys}, rows)
    found = inspected(tmp_path)
    assert found["files"] == 2
    assert found["parameters"] == 16
    assert found["bytes"] == sum(p.stat().st_size for p in tmp_path.glob("*.gguf"))


def test_what_cannot_be_run_is_still_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(replace(Raw(), keys=((b"general.architecture", string("newarch")),)).pack())
    found = inspected(path)
    assert not found["runs_here"]
    assert "newarch" in found["reason"]
    assert found["memory"]["cache_bytes"] is None
    assert found["tokenizer"] is None
    shown = octavo("inspect", path).stdout
    assert "no: " in shown
    assert "none in the file" in shown


ODD = (
    scalar(6, "f", float("nan")), string("\x1b[31mred\x07"), string(b"\xff\xfe"), array(8, 0, b""),
    array(5, 2, struct.pack("<ii", -1, 7)), array(9, 1, array(0, 1, b"x")[4:]),
    scalar(10, "Q", 2**63), scalar(7, "B", 1), scalar(5, "i", -5), scalar(4, "I", 2**32 - 1),
)  # fmt: skip
KEYS = (
    "llama.block_count", "llama.context_length", "llama.attention.head_count",
    "llama.attention.head_count_kv", "llama.expert_count", "llama.embedding_length",
    "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id", "tokenizer.chat_template", "general.name", "general.license",
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_odd_values_do_no_harm(tmp_path: Path, key: str) -> None:
    """Any type in any key: an answer or one of our errors, and no command for the terminal."""
    path = tmp_path / "x.gguf"
    base = tmp_path / "base.gguf"
    write_gguf(base, {**llama(64), "tokenizer.ggml.model": "gpt2"}, [])
    with open_gguf(base) as file:
        known = {k: file.metadata.typed(k) for k in file.metadata if k != key}
    for value in ODD:
        write_gguf(base, known, [])
        data = base.read_bytes()
        n_keys = struct.pack("<Q", len(known) + 1)
        path.write_bytes(
            data[:16] + n_keys + text(key) + value + data[24:].rstrip(b"\0") + bytes(64)
        )
        for words in ((), ("--json",)):
            done = octavo("inspect", path, *words)
            assert done.exit_code in (0, 3), (value, done.output, done.exception)
            assert "\x1b[31m" not in done.stdout
            assert "\x07" not in done.stdout


def test_wrong_files_give_their_sentence_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_OFFLINE", "1")
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<!doctype html>")
    done = octavo("inspect", page)
    assert done.exit_code == 3
    assert "web page" in done.stderr
    assert "octavo pull" in done.stderr
    assert octavo("inspect", tmp_path / "absent.gguf").exit_code == 4
    not_here = octavo("inspect", "demo")
    assert not_here.exit_code == 5
    assert "OCTAVO_OFFLINE" in not_here.stderr


# A large file


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """21 GB of nothing behind a header like that of a 35B model: 248K tokens, 247K merges."""
    words = [b"%x" % (i * 2_654_435_761 % (1 << 32)) for i in range(N_TOKENS)]
    merges = [word[:4] + b" " + word[4:] for word in words[:N_MERGES]]
    raw = Raw(
        keys=(
            (b"general.architecture", string("qwen35moe")),
            (b"general.name", string("large")),
            (b"tokenizer.ggml.model", string("gpt2")),
            (b"tokenizer.ggml.tokens", array(8, N_TOKENS, b"".join(map(text, words)))),
            (b"tokenizer.ggml.token_type", array(5, N_TOKENS, bytes(4 * N_TOKENS))),
            (b"tokenizer.ggml.merges", array(8, N_MERGES, b"".join(map(text, merges)))),
            (b"tokenizer.ggml.eos_token_id", scalar(4, "I", N_TOKENS - 1)),
        ),
        rows=tuple(
            Row(b"blk.%d.%d.weight" % divmod(i, 19), (2048, 512, 48), 12, i * 28_311_552)
            for i in range(733)
        ),
        data=b"",
    )
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    path.write_bytes(raw.pack())
    try:
        os.truncate(path, path.stat().st_size + 733 * 28_311_552)
    except OSError as error:
        pytest.skip(f"this file system has no sparse files: {error}")
    if sys.platform == "win32" or path.stat().st_blocks * 512 > 1 << 30:
        path.unlink()
        pytest.skip("this file system has no sparse files")
    return path


def test_a_large_file_is_read_by_its_header_alone(large: Path) -> None:
    found = inspected(large)
    assert found["bytes"] > 20 * 10**9
    assert found["tokenizer"]["tokens"] == N_TOKENS
    assert found["tokenizer"]["merges"] == N_MERGES
    eos = found["tokenizer"]["special"]["eos"]
    assert eos == {"id": N_TOKENS - 1, "text": "%x" % ((N_TOKENS - 1) * 2_654_435_761 % (1 << 32))}
    # Nothing of the 21 GB was touched: no page of it was ever brought into the file.
    assert large.stat().st_blocks * 512 < 64 << 20


def test_tokens_of_a_large_file(large: Path, rng: np.random.Generator) -> None:
    with open_gguf(large) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
        every = tokens.tolist()
        assert len(every) == N_TOKENS
        for i in rng.integers(0, N_TOKENS, 100).tolist():
            assert tokens[i] == every[i] == "%x" % (i * 2_654_435_761 % (1 << 32))


def test_inspect_needs_no_heavy_library(large: Path) -> None:
    import subprocess

    code = (
        "import sys; from octavo.cli import app\n"
        f"try: app(['inspect', {str(large)!r}])\nexcept SystemExit: pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    heavy = {"torch", "tokenizers", "llguidance", "jinja2", "rich", "ssl", "http.client"}
    assert not modules & heavy


# Pull


def test_pull_prints_where_the_model_is(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "made.gguf", llama(64), [("w", (8,), "f32", bytes(32))])
    body = (tmp_path / "made.gguf").read_bytes()
    with Hub({"m-Q8_0.gguf": body}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        done = octavo("pull", "hf:o/r:Q8_0")
        assert done.exit_code == 0, done.output
        path = Path(done.stdout.strip())
        assert path.read_bytes() == body
        again = json.loads(octavo("pull", "hf:o/r:Q8_0", "--json").stdout)
        assert again == {"name": "hf:o/r:Q8_0", "path": str(path)}
        missing = octavo("pull", "hf:o/r:Q2_K")
        assert missing.exit_code == 4
        assert "m-Q8_0.gguf" in missing.stderr
    assert inspected("hf:o/r:Q8_0")["parameters"] == 8


# Remote files


def big_vocabulary(path: Path) -> bytes:
    """A header of more than 2 MB, and 4 MB of tensors behind it."""
    tokens = [f"token{i:08d}" * 2 for i in range(100_000)]
    keys = {**llama(64), "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens}
    write_gguf(path, keys, [("w", (1 << 20,), "f32", bytes(4 << 20))])
    return path.read_bytes()


@pytest.mark.parametrize("faults", [[], ["no_range"] * 9])
def test_a_remote_file_is_seen_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    path = tmp_path / "m-Q8_0.gguf"
    with Hub({"m-Q8_0.gguf": big_vocabulary(path)}, list(faults)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for name in ("hf:o/r", f"{hub.url}/m-Q8_0.gguf"):
            found = inspected(name, "--tensors")
            here = inspected(path, "--tensors")
            for each in (found, here):
                del each["path"], each["memory"]["available_bytes"]
            assert found == here
        assert all(request["Range"].startswith("bytes=0-") for request in hub.seen)
        assert not list(Path(os.environ["OCTAVO_MODELS"]).rglob("*.gguf"))


def test_a_remote_set_is_seen_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {}
    for i in range(2):
        name = shard_name("m", i + 1, 2)
        keys = {"split.no": Typed("u16", i), "split.count": Typed("u16", 2)}
        write_gguf(tmp_path / name, {**llama(64), **keys}, [(f"w{i}", (8,), "f32", bytes(32))])
        files[name] = (tmp_path / name).read_bytes()
    with Hub(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        found = inspected("hf:o/r", "--tensors")
    assert found["files"] == 2
    assert [row["name"] for row in found["tensors"]] == ["w0", "w1"]
    assert found["bytes"] == sum(map(len, files.values()))


@pytest.mark.parametrize(("fault", "code", "phrase"), [("html", 3, "web page"), ("404", 5, "404")])
def test_remote_faults_have_their_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, code: int, phrase: str
) -> None:
    with Hub({"m.gguf": big_vocabulary(tmp_path / "x.gguf")}, [fault]) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        done = octavo("inspect", "hf:o/r")
    assert done.exit_code == code
    assert phrase in done.stderr


def test_a_damaged_remote_file_is_not_fetched_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = bytearray(big_vocabulary(tmp_path / "x.gguf"))
    body[8:16] = struct.pack("<Q", 2**60)
    with Hub({"m.gguf": bytes(body)}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        done = octavo("inspect", "hf:o/r")
        assert len(hub.seen) <= 3
    assert done.exit_code == 3
    assert "tensors" in done.stderr
