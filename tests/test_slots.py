"""llama.cpp's slots over HTTP: saved, restored in another process, erased; wrong files refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import octavo
from octavo.engine.places import Places
from scripted_model import ScriptedModel, counting, make_engine
from serving import serving

TEXT = "The river was low that summer, and the ferryman waited. " * 6


def complete(address: str, prompt: str = TEXT) -> dict[str, Any]:
    body = {"prompt": prompt, "n_predict": 4, "temperature": 0, "cache_prompt": True}
    answer: dict[str, Any] = httpx.post(f"{address}/completion", json=body, timeout=60).json()
    return answer


def act(address: str, action: str, number: int = 0, **body: Any) -> httpx.Response:
    url = f"{address}/slots/{number}?action={action}"
    return httpx.post(url, json=body, timeout=60)


@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_saved_in_one_process_restored_in_the_next(
    arch: str, tiny_file: Callable[..., Path], tmp_path: Path
) -> None:
    """D4: also with recurrent layers, where pages alone are of no use."""
    sessions = [octavo.load(tiny_file(arch), sequences=2) for _ in range(2)]
    with serving(sessions[0], slot_folder=tmp_path) as address:
        first = complete(address)
        saved = act(address, "save", filename="chat.bin").json()
        held = httpx.get(f"{address}/slots").json()[0]["n_prompt_tokens"]
    ids = sessions[0].tokenizer.with_bos(sessions[0].tokenize(TEXT))
    assert saved["n_saved"] == held >= len(ids)
    assert saved["n_written"] == (tmp_path / "chat.bin").stat().st_size
    with serving(sessions[1], slot_folder=tmp_path) as address:
        restored = act(address, "restore", 1, filename="chat.bin").json()
        assert restored["id_slot"] == 1
        assert restored["n_restored"] == saved["n_saved"]
        assert restored["timings"]["restore_ms"] >= 0
        again = complete(address)
        assert again["content"] == first["content"]
        assert again["timings"]["cache_n"] == len(ids) - 1
        with octavo.load(tiny_file(arch), sequences=1) as cold:
            assert again["content"] == cold.generate(TEXT, max_tokens=4, temperature=0).content


def test_erase(tiny_file: Callable[..., Path], tmp_path: Path) -> None:
    session = octavo.load(tiny_file("llama"), sequences=1)
    with serving(session, slot_folder=tmp_path) as address:
        complete(address)
        assert complete(address)["timings"]["cache_n"] > 50
        assert act(address, "erase").json()["n_erased"] > 50
        assert act(address, "erase").json()["n_erased"] == 0
        assert complete(address)["timings"]["cache_n"] == 0
        act(address, "erase")
        empty = act(address, "save", filename="x.bin")
        assert (empty.status_code, list(tmp_path.iterdir())) == (400, [])


def test_wrong_requests(tiny_file: Callable[..., Path], tmp_path: Path) -> None:
    """D4: what cannot be restored is refused, and nothing is lost by it."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret").write_text("nobody may read this")
    (tmp_path / "inside" / "foreign.bin").write_bytes(b"something else")
    with serving(octavo.load(tiny_file("llama")), slot_folder=tmp_path / "inside") as address:
        complete(address)
        for name in ("../secret", "/etc/passwd", "a/b", "..", "", "a\0b", ".x", "x" * 300, "a\\b"):
            refused = act(address, "save", filename=name)
            assert refused.status_code == 400, name
            assert "filename" in refused.json()["error"]["message"]
        for name in ("foreign.bin", "missing.bin"):
            assert act(address, "restore", filename=name).status_code == 400
        assert act(address, "save", 99, filename="a.bin").status_code == 400
        assert act(address, "explode").status_code == 400
        assert complete(address)["timings"]["cache_n"] > 50  # nothing was lost
        assert os.listdir(tmp_path / "inside") == ["foreign.bin"]


def test_without_a_folder(tiny_file: Callable[..., Path]) -> None:
    with serving(octavo.load(tiny_file("llama"))) as address:
        refused = act(address, "save", filename="a.bin")
        assert refused.status_code == 501
        assert "--slot-save-path" in refused.json()["error"]["message"]


def test_places_follow_the_sequences() -> None:
    model = ScriptedModel(counting)
    with make_engine(model, max_running=2) as engine:
        for prompt in ([1, 2, 3, 4], [9, 8, 7], [1, 2, 3, 4, 5, 6]):
            engine.submit(prompt, octavo.SamplingParams(max_tokens=2, temperature=0)).ids()
        views = engine.places.views()
    assert [view.task for view in views] == [2, 1]  # the third continued the first
    assert [view.is_running for view in views] == [False, False]
    assert views[0].n_prompt == 7  # the last token was never computed
    assert len(Places(3).views()) == 3


def test_a_running_place_is_left_alone() -> None:
    model = ScriptedModel(counting)
    model.hold()
    with make_engine(model, max_running=2) as engine:
        stream = engine.submit([1, 2, 3], octavo.SamplingParams(max_tokens=9, temperature=0))
        model.allow(3)
        view = engine.places.views()[0]
        assert (view.is_running, view.n_prompt) == (True, 3)
        assert view.n_decoded >= 2
        model.free()
        stream.ids()
