"""Prefixes that outlive the program: what is saved and when, what is found, what is ignored."""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import octavo
from octavo.engine import engine as engine_module
from octavo.kv.cache import Cache
from octavo.kv.prefix import PrefixStore
from octavo.kv.shelf import Shelf
from octavo.kv.state import LayerSpec
from serve_process import serve_process
from test_prefix import ATTENTION, BACKEND, RECURRENT, ask, ids

SYSTEM = "The river was low that summer, and the ferryman waited. " * 14


def make(folder: Path, *specs: LayerSpec, n_pages: int = 16, model: str = "m" * 32, **more: Any):
    cache = Cache(specs, n_pages=n_pages, n_slots=8, format="f32", backend=BACKEND)
    shelf = Shelf(folder, cache, model, **{"budget_bytes": 1 << 30, "least_tokens": 20, **more})
    return cache, PrefixStore(cache, 1 << 30, 4, shelf)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("specs", [(ATTENTION,), (ATTENTION, RECURRENT)])
def test_what_one_program_saved_the_next_one_finds(
    specs: tuple[LayerSpec, ...], tmp_path: Path
) -> None:
    _, store = make(tmp_path, *specs)
    ask(store, ids(range(100)), marks=(60,))
    store.save()
    assert len(files(tmp_path)) == 1
    _, later = make(tmp_path, *specs)
    assert ask(later, ids(range(100), 7, 8))[0] == 100
    _, other = make(tmp_path, *specs)
    assert ask(other, ids(range(70), 7))[0] == (60 if len(specs) == 2 else 70)
    assert other.shelf is not None
    assert other.shelf.n_restored == 1


def test_nothing_is_read_for_a_small_gain(tmp_path: Path) -> None:
    _, store = make(tmp_path, ATTENTION)
    ask(store, ids(range(100)))
    store.save()
    _, later = make(tmp_path, ATTENTION)
    ask(later, ids(range(85), 500))  # from the file
    assert ask(later, ids(range(95), 600))[0] == 95
    assert later.shelf is not None
    assert later.shelf.n_restored == 1


def test_short_ones_are_not_saved_and_longer_ones_replace_their_beginnings(tmp_path: Path) -> None:
    _, store = make(tmp_path, ATTENTION)
    ask(store, ids(range(10)))
    store.save()
    assert files(tmp_path) == []
    for n in (50, 80, 80, 120):
        ask(store, ids(range(n)))
        store.save()
        assert len(files(tmp_path)) == 1
    assert store.shelf is not None
    assert store.shelf.n_saved == 3
    assert [path.stat().st_mode & 0o077 for path in files(tmp_path)] == [0] or os.name == "nt"


def test_what_is_evicted_is_saved_and_comes_back(tmp_path: Path) -> None:
    _, store = make(tmp_path, ATTENTION, n_pages=4)
    ask(store, ids(range(200)))
    ask(store, ids(range(1000, 1200)))  # takes the pages of the first
    assert len(store) == 1
    assert ask(store, ids(range(200), 5))[0] == 200


def test_the_budget_holds_over_all_models_and_the_oldest_go(tmp_path: Path) -> None:
    page = 64 * 8 * 4
    for number, model in enumerate(("a" * 32, "b" * 32, "c" * 32)):
        _, store = make(tmp_path, ATTENTION, model=model, budget_bytes=5 * page + 3000)
        ask(store, ids(range(120)))
        store.save()
        for path in files(tmp_path):
            if path.parent.name.startswith(model[:4]):
                os.utime(path, (number, number))
    assert [path.parent.name[0] for path in files(tmp_path)] == ["b", "c"]
    ask(store, ids(range(1000, 1000 + 6 * 64)))  # larger than the budget
    store.save()
    assert len(files(tmp_path)) == 2


def test_damaged_and_foreign_files_are_ignored_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, store = make(tmp_path, ATTENTION)
    ask(store, ids(range(100)))
    store.save()
    (good,) = files(tmp_path)
    data = good.read_bytes()
    (good.parent / "foreign.kv").write_bytes(b"something else")
    (good.parent / "short.kv").write_bytes(data[:-100])
    broken = bytearray(data)
    broken[-40] ^= 1  # seen only when the pages are read
    good.write_bytes(broken)
    _, later = make(tmp_path, ATTENTION)
    for _ in range(2):
        assert ask(later, ids(range(100), 7))[0] in (0, 100)
    text = caplog.text
    assert text.count("is ignored") == 3
    assert all(name in text for name in ("foreign.kv", "short.kv", good.name))
    assert len(files(tmp_path)) == 3


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    _, store = make(tmp_path / "file" / "sub", ATTENTION)
    ask(store, ids(range(100)))
    store.save()
    assert "was not saved" in caplog.text


def test_saving_is_given_up_when_somebody_asks(tmp_path: Path) -> None:
    _, store = make(tmp_path, ATTENTION, ATTENTION)
    ask(store, ids(range(100)))
    answers = iter([True, True, False])
    store.save(lambda: next(answers))
    assert files(tmp_path) == []
    store.save()
    assert len(files(tmp_path)) == 1


def test_another_program_deleted_the_file(tmp_path: Path) -> None:
    _, store = make(tmp_path, ATTENTION)
    ask(store, ids(range(100)))
    store.save()
    _, later = make(tmp_path, ATTENTION)
    ask(later, ids(range(5)))  # it knows of the file now
    files(tmp_path)[0].unlink()
    assert ask(later, ids(range(100)))[0] == 5


def test_an_idle_engine_saves(
    tiny_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "SAVE_SECONDS", 0.01)
    saved: queue.SimpleQueue[bool] = queue.SimpleQueue()
    plain = Shelf.save

    def save(*args: Any) -> bool:
        done = plain(*args)
        saved.put(done)
        return done

    monkeypatch.setattr(Shelf, "save", save)
    with octavo.load(tiny_file("llama"), sequences=1, cache_dir=tmp_path) as session:
        session.generate(SYSTEM, max_tokens=1)
        assert saved.get(timeout=20)
        assert len(files(tmp_path)) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent Ctrl-C alone there")
@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_a_restarted_server_goes_on_where_it_was(
    arch: str, tiny_file: Callable[..., Path], tmp_path: Path
) -> None:
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Say it."}]
    body: dict[str, Any] = {"max_tokens": 4, "temperature": 0, "enable_thinking": False}
    replies = []
    for turn in ("", " Again."):
        chat[1]["content"] += turn
        with serve_process(tiny_file(arch), "-np", "1", "--cache-dir", str(tmp_path)) as server:
            url = f"{server.address}/v1/chat/completions"
            replies.append(httpx.post(url, json=body | {"messages": chat}, timeout=60).json())
    first, second = (reply["usage"] for reply in replies)
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    # A recurrent model goes on from its snapshot after the system message.
    assert second["prompt_tokens_details"]["cached_tokens"] > 256
    with octavo.load(tiny_file(arch), sequences=1) as fresh:
        messages = [{"role": m["role"], "content": m["content"]} for m in chat]
        thinks = fresh.template is not None and fresh.template.reasoning_tags
        cold = fresh.chat(messages, max_tokens=4, temperature=0, thinking=False if thinks else None)
    assert replies[1]["choices"][0]["message"]["content"] == cold.content
