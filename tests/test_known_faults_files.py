"""Known faults of other servers around files and vectors: tests named after their cases.

Each way into a file is tried: what one of them refuses, all of them have to.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import octavo
from octavo.cli import app
from octavo.errors import FileFormatError, UnsupportedError
from octavo.gguf.reader import open_gguf
from octavo.gguf.shards import shard_name
from octavo.gguf.writer import write_gguf
from octavo.release import program
from octavo.server.fleet import Fleet
from octavo.server.resident import Resident
from octavo.text import bounds
from serving import END, PLAIN, ScriptedSession, serving
from test_gguf import FAULTS, OTHERS

ODD_NAME = "模型 файл 😀 a'b"


def command(*words: str | Path) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


# F: what is wrong with a file.


def cut(data: bytes) -> bytes:
    return data[:-1000]


def renamed(data: bytes) -> bytes:
    return data.replace(b"qwen35moe", b"qwen99moe")


def without_experts(data: bytes) -> bytes:
    return data.replace(b"blk.1.ffn_up_exps.weight", b"blk.1.ffn_no_exps.weight")


def of_unknown_type(data: bytes) -> bytes:
    """The type stands behind the tensor's name, its number of dimensions, and these."""
    at = data.index(b"blk.1.ffn_up_exps.weight") + len("blk.1.ffn_up_exps.weight")
    (n_dims,) = struct.unpack_from("<I", data, at)
    at += 4 + 8 * n_dims
    return data[:at] + struct.pack("<I", 99) + data[at + 4 :]


WRONG: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "truncated": (cut, "cut short", "architecture|type"),
    "architecture": (renamed, "architecture 'qwen99moe' is not supported", "cut short|download"),
    "layout": (without_experts, r"ffn_up_exps", "cut short|download"),
    "type": (of_unknown_type, "type number 99", "cut short|architecture"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_F5_J4_what_is_wrong_with_a_file_is_told_apart(
    kind: str, tiny_file: Callable[..., Path], tmp_path: Path
) -> None:
    """Cut short, not known here, and of another layout ask for different things to be done."""
    change, says, never = WRONG[kind]
    path = tmp_path / "model.gguf"
    path.write_bytes(change(tiny_file("qwen35moe").read_bytes()))
    with pytest.raises(FileFormatError, match=says) as caught:
        octavo.load(path, context=64)
    assert isinstance(caught.value, UnsupportedError) is (kind in ("architecture", "type"))
    assert not re.search(never, caught.value.message)
    if kind == "architecture":
        assert "qwen35moe" in caught.value.hint  # what can be run instead
        assert program() in caught.value.hint  # what is too old, if that is the reason
        assert "octavo pull" in caught.value.hint


def test_F5_no_other_model_answers_for_one_that_is_broken(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    other = ScriptedSession(PLAIN, *[f"I am the other.{END}"] * 2)
    residents = [
        Resident(lambda report, plan: other, "other"),
        Resident(lambda report, plan: octavo.load(broken), "broken"),
    ]
    with serving(Fleet(residents)) as address:
        body = {"messages": [{"role": "user", "content": "Who are you?"}]}
        url = f"{address}/v1/chat/completions"
        failed = httpx.post(url, json=body | {"model": "broken"}, timeout=60)
        assert failed.status_code == 500
        assert "broken.gguf" in failed.json()["error"]["message"]
        assert not other.asked
        assert httpx.post(url, json=body | {"model": "other"}, timeout=60).status_code == 200


# J: shards, and files that are something else.


def split_in_three(path: Path, folder: Path) -> list[Path]:
    folder.mkdir()
    with open_gguf(path) as file:
        rows = [
            (t.name, t.shape, t.type_name, file.data(t.name).tobytes())
            for t in file.tensors.values()
        ]
        plain = {key: file.metadata.typed(key) for key in file.metadata}
    paths = [folder / shard_name("a model", i + 1, 3) for i in range(3)]
    for i, place in enumerate(paths):
        split = {"split.no": i, "split.count": 3, "split.tensors.count": len(rows)}
        write_gguf(place, {**(plain if i == 0 else {}), **split}, rows[i::3])
    return paths


def test_J1_any_part_of_a_split_model_is_the_model(
    tiny_file: Callable[..., Path], tmp_path: Path
) -> None:
    whole = tiny_file("llama")
    with octavo.load(whole, context=64) as session:
        expected = session.generate("The river", max_tokens=8, temperature=0).content
    folder = tmp_path / ODD_NAME
    parts = split_in_three(whole, folder)
    for given in (*parts, folder):
        with octavo.load(given, context=64) as session:
            assert session.generate("The river", max_tokens=8, temperature=0).content == expected
    parts[1].unlink()
    for given in (parts[0], parts[2], folder):
        with pytest.raises(FileFormatError, match=parts[1].name):
            octavo.load(given)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("name", ["inspect", "plan", "run"])
def test_J2_what_is_no_model_is_told_by_every_command(name: str, kind: str, tmp_path: Path) -> None:
    content, says = OTHERS[kind]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    done = command(name, path, *(("-p", "x") if name == "run" else ()))
    assert done.exit_code == 3, done.output
    assert re.search(says, done.stderr)
    assert "Traceback" not in done.output
    assert len(done.stderr.strip().splitlines()) <= 3


# K: vectors.


@pytest.fixture(scope="module")
def embedder(tiny_file: Callable[..., Path]) -> Path:
    return tiny_file("qwen3", changes={"pooling_type": 3})


def test_K1_vectors_over_http_are_right_in_every_form(embedder: Path) -> None:
    """In order, each as if alone, of length 1; what cannot be had is refused by name."""
    texts = [f"{n} rivers " * (n % 7 + 1) for n in range(32)]
    with serving(octavo.load(embedder, context=64, sequences=2)) as address:

        def post(**body: Any) -> httpx.Response:
            return httpx.post(f"{address}/v1/embeddings", json=body, timeout=60)

        def vectors(**body: Any) -> np.ndarray:
            return np.array([row["embedding"] for row in post(**body).json()["data"]])

        rows = vectors(input=texts)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
        for n in (0, 13, 31):
            np.testing.assert_allclose(vectors(input=texts[n])[0], rows[n], atol=2e-3)
        assert len({tuple(row) for row in rows}) == 32
        data = post(input=texts[:2], encoding_format="base64").json()["data"]
        raw = np.stack([np.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in data])
        np.testing.assert_allclose(raw, rows[:2], atol=2e-3)
        cut_rows = vectors(input=texts[3], dimensions=8)[0]
        np.testing.assert_allclose(cut_rows, rows[3][:8] / np.linalg.norm(rows[3][:8]), atol=5e-3)
        for wrong, says in (
            ({"input": "river " * 200}, "maximum context length is 64"),
            ({"input": "x", "dimensions": 10**6}, "dimensions"),
            ({"input": [[10**7]]}, "10000000"),
        ):
            refused = post(**wrong)
            assert refused.status_code == 400
            assert says in refused.json()["error"]["message"]


@pytest.mark.parametrize(("number", "kind"), [(None, "none"), (1, "mean"), (2, "cls"), (3, "last")])
def test_K1_properties_say_how_vectors_are_made(
    number: int | None, kind: str, tiny_file: Callable[..., Path]
) -> None:
    path = tiny_file("qwen3", changes={"pooling_type": number} if number else {})
    with octavo.load(path, context=64) as session, serving(session) as address:
        found = httpx.get(f"{address}/props").json()
        listed = httpx.get(f"{address}/v1/models").json()["data"][0]["meta"]
        assert (found["pooling_type"], found["n_embd"]) == (kind, session.n_embd)
        assert listed["n_embd"] == session.n_embd
        asked = httpx.post(f"{address}/v1/embeddings", json={"input": "x"}, timeout=60)
        if number is None:
            assert asked.status_code == 400
            assert "embedding model" in asked.json()["error"]["message"]
        else:
            assert len(asked.json()["data"][0]["embedding"]) == session.n_embd


# L: names.


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_L1_names_of_any_script_are_opened_whatever_the_locale(
    locale: str, tiny_file: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    model = folder / "модель.gguf"
    model.write_bytes(tiny_file("llama").read_bytes())
    environment = {
        **os.environ,
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "LC_ALL": locale,
        "LANG": locale,
        **{name: str(folder / name) for name in ("OCTAVO_CACHE", "OCTAVO_MODELS", "TMPDIR")},
    }
    words = ["run", str(model), "-p", "你好", "-n", "3", "--temp", "0", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "octavo", *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b'"completion_tokens": 3' in done.stdout


# M: hostile files and templates.


@pytest.mark.parametrize("fault", FAULTS)
def test_M1_M2_hostile_headers_are_refused_on_every_way_in(fault: str, tmp_path: Path) -> None:
    """There is one reader, and nothing is handed on before it has checked it."""
    raw, says = FAULTS[fault]
    path = tmp_path / "model.gguf"
    path.write_bytes(raw.pack())
    with pytest.raises(FileFormatError, match=says):
        octavo.load(path)
    for name in ("inspect", "plan"):
        done = command(name, path)
        assert done.exit_code == 3, (name, done.output)


HOSTILE = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "endless": "{% for i in range(10**9) %}{% for j in range(10**9) %}{% endfor %}{% endfor %}",
    "recursion": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "long": "{{ 'x' * 10**9 }}",
}
RENDERED = {
    "/v1/chat/completions": "messages",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "messages",
    "/v1/responses": "input",
    "/v1/responses/input_tokens": "input",
    "/apply-template": "messages",
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_M4_a_hostile_template_gets_nothing_by_any_route(
    attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_SECONDS", 0.2)
    question = [{"role": "user", "content": "x"}]
    with serving(ScriptedSession(HOSTILE[attack])) as address:
        for path, field in RENDERED.items():
            refused = httpx.post(address + path, json={field: question}, timeout=60)
            assert refused.status_code == 400, path
            assert "template" in refused.json()["error"]["message"]


def test_M8_no_request_makes_the_server_fetch_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are known when it starts; what is fetched is decided on the command line."""
    asked: list[Any] = []
    session = ScriptedSession(PLAIN, context=4096)
    residents = [Resident(lambda report, plan: session, name) for name in "ab"]
    with serving(Fleet(residents)) as address, httpx.Client(base_url=address) as client:
        client.get("/health")  # the connection of this client is there from now on
        for name in ("getaddrinfo", "create_connection"):
            monkeypatch.setattr(socket, name, lambda *given, **more: asked.append(given))
        for model in ("hf:evil/model", "http://127.0.0.1:1/x.gguf", "../../etc/passwd", "demo"):
            for path in ("/v1/models/load", "/models/load", "/v1/chat/completions"):
                body = {"model": model, "messages": [{"role": "user", "content": "x"}]}
                assert client.post(path, json=body, timeout=60).status_code == 404
        assert asked == []
