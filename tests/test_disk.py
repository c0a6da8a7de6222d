"""Timelines saved to files and restored; damaged and foreign files."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import CacheFullError, ContextFullError, FileFormatError, NotFoundError
from octavo.kv import disk
from octavo.kv.cache import Cache, Timeline
from octavo.kv.prefix import PrefixStore
from octavo.kv.state import AttentionSpec, LayerSpec, RecurrentSpec
from octavo.ops import reference

ATTENTION = AttentionSpec(1, 4, 4, 1.0)
RECURRENT = RecurrentSpec(1, 2, 4, 4, conv_kernel=2, tiled=True)
HYBRID = (ATTENTION, RECURRENT, ATTENTION)


def make_cache(
    specs: tuple[LayerSpec, ...] = HYBRID, format: str = "f16", n_pages: int = 4, n_slots: int = 3
) -> Cache:
    return Cache(specs, n_pages=n_pages, n_slots=n_slots, format=format, backend=reference)


def make_timeline(cache: Cache, n_tokens: int = 70) -> Timeline:
    rng = np.random.default_rng(3)
    other = cache.open()  # so that pages and slots of the timeline do not begin at the first
    other.reserve(1)
    timeline = cache.open()
    timeline.reserve(n_tokens)
    timeline.advance(rng.integers(0, 1000, n_tokens))
    for layer in cache.attention:
        layer.data[:] = rng.integers(0, 256, layer.data.shape)
    for state in cache.recurrent:
        state.state[:] = rng.standard_normal(state.state.shape)
        state.conv[:] = rng.standard_normal(state.conv.shape)
    other.close()
    return timeline


def contents(timeline: Timeline) -> list[bytes]:
    cache = timeline.cache
    pages = [layer.data[page].tobytes() for layer in cache.attention for page in timeline.pages]
    slots = {**timeline.snapshots}
    if timeline.slot >= 0:
        slots[timeline.n_tokens] = timeline.slot
    states = [layer.state[slots[n]].tobytes() for layer in cache.recurrent for n in sorted(slots)]
    convs = [layer.conv[slots[n]].tobytes() for layer in cache.recurrent for n in sorted(slots)]
    return [timeline.ids.tobytes(), *pages, *states, *convs]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "chat.kv"
    disk.save(make_timeline(make_cache()), path, "model-1")
    return path


@pytest.mark.parametrize("n_tokens", [1, 63, 64, 65, 128])
@pytest.mark.parametrize("specs", [HYBRID, (ATTENTION,), (RECURRENT,)])
@pytest.mark.parametrize("format", ["f32", "f16", "q8_0"])
def test_what_is_saved_is_restored(
    specs: tuple[LayerSpec, ...], format: str, n_tokens: int, tmp_path: Path
) -> None:
    timeline = make_timeline(make_cache(specs, format), n_tokens)
    disk.save(timeline, tmp_path / "chat.kv", "model-1")
    cache = make_cache(specs, format)
    restored = disk.restore(cache, tmp_path / "chat.kv", "model-1")
    assert contents(restored) == contents(timeline)
    assert restored.reachable(n_tokens) == n_tokens
    assert [p.name for p in tmp_path.iterdir()] == ["chat.kv"]
    restored.close()
    assert cache.pages.n_free == 4


def test_snapshots_are_saved_and_the_newest_restored(tmp_path: Path) -> None:
    cache = make_cache()
    timeline = make_timeline(cache)
    timeline.keep(40, cache.take_slot())
    timeline.keep(20, cache.take_slot())
    disk.save(timeline, tmp_path / "chat.kv", "m")
    assert disk.restore(make_cache(), tmp_path / "chat.kv", "m").snapshots.keys() == {20, 40, 70}
    few = disk.restore(make_cache(n_slots=2), tmp_path / "chat.kv", "m")
    assert few.snapshots.keys() == {40, 70}
    assert contents(few)[-1] == contents(timeline)[-1]


def test_a_restored_timeline_is_reused(saved: Path) -> None:
    cache = make_cache()
    store = PrefixStore(cache, 1 << 30, n_snapshots=2)
    timeline = disk.restore(cache, saved, "model-1")
    prompt = np.append(timeline.ids, np.int32(5))
    store.keep(timeline)
    assert store.find(prompt).n_reused == 70


def test_files_of_something_else_are_refused(saved: Path) -> None:
    cases = (
        (make_cache(), "model-2", "another model file"),
        (make_cache(format="q8_0"), "model-1", "another cache format"),
        (make_cache((ATTENTION, RECURRENT)), "model-1", "another shape"),
    )
    for cache, fingerprint, words in cases:
        with pytest.raises(FileFormatError, match=words):
            disk.restore(cache, saved, fingerprint)
        assert cache.pages.n_free == 4


def test_too_long_for_the_context_or_the_cache(saved: Path) -> None:
    with pytest.raises(ContextFullError, match="70 tokens"):
        disk.restore(make_cache(n_pages=1), saved, "model-1")
    cache = make_cache()
    running = cache.open()
    running.reserve(3 * 64)
    with pytest.raises(CacheFullError):
        disk.restore(cache, saved, "model-1")
    assert (cache.pages.n_free, cache.slots.n_free) == (1, 2)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        disk.restore(make_cache(), tmp_path / "none.kv", "m")
    with pytest.raises(NotFoundError):
        disk.restore(make_cache(), tmp_path, "m")
    with pytest.raises(NotFoundError):
        disk.save(make_timeline(make_cache()), tmp_path / "none" / "chat.kv", "m")


def test_a_failed_save_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("octavo.kv.disk.os.fsync", fail)
    with pytest.raises(NotFoundError, match="No space left"):
        disk.save(make_timeline(make_cache()), saved, "model-1")
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["chat.kv"]


def refuse(path: Path, damaged: bytes) -> None:
    """Only our error, and nothing stays taken."""
    path.write_bytes(damaged)
    cache = make_cache()
    with pytest.raises(FileFormatError) as caught:
        disk.restore(cache, path, "model-1")
    assert caught.value.hint
    assert (cache.pages.n_free, cache.slots.n_free) == (4, 3)


def test_every_cut_is_noticed(saved: Path) -> None:
    data = saved.read_bytes()
    for n in (*range(0, len(data), 97), len(data) - 1):
        refuse(saved, data[:n])
    refuse(saved, data + b"\0")


def test_every_changed_byte_is_noticed(saved: Path) -> None:
    data = saved.read_bytes()
    for place in range(0, len(data), 13):
        refuse(saved, data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])


@pytest.mark.parametrize(
    "changes",
    [
        {"n_tokens": 0},
        {"n_tokens": -1},
        {"n_tokens": 2**31},
        {"n_tokens": 10**30},
        {"n_tokens": "70"},
        {"n_tokens": True},
        {"n_tokens": 69},
        {"snapshots": None},
        {"snapshots": [0]},
        {"snapshots": [70, 70]},
        {"snapshots": [70, 20]},
        {"snapshots": [71]},
        {"snapshots": ["70"]},
        {"snapshots": []},
        {"binding": []},
        {"binding": {}},
    ],
)
def test_a_description_with_a_right_checksum_is_not_trusted(
    changes: dict[str, object], saved: Path
) -> None:
    data = saved.read_bytes()
    _, _, n_bytes, _ = disk._START.unpack_from(data)
    at = disk._START.size
    description = json.loads(data[at : at + n_bytes]) | changes
    refuse(saved, with_description(json.dumps(description).encode(), data[at + n_bytes :]))


def with_description(description: bytes, rest: bytes) -> bytes:
    crc = zlib.crc32(description)
    start = disk._START.pack(disk.MAGIC, disk.VERSION, len(description), crc)
    return start + description + rest


@pytest.mark.parametrize("description", [b"", b"[]", b"null", b"{", b"[" * 100_000, b"\xff"])
def test_a_description_that_is_no_description(description: bytes, saved: Path) -> None:
    refuse(saved, with_description(description, b""))


def test_a_newer_version_is_named(saved: Path) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[:8] + (2).to_bytes(4, "little") + data[12:])
    with pytest.raises(FileFormatError, match="version 2"):
        disk.restore(make_cache(), saved, "model-1")


def test_negative_ids_are_refused(tmp_path: Path) -> None:
    timeline = make_cache((ATTENTION,)).open()
    timeline.reserve(2)
    timeline.advance([1, -5])
    disk.save(timeline, tmp_path / "chat.kv", "m")
    with pytest.raises(FileFormatError, match="negative"):
        disk.restore(make_cache((ATTENTION,)), tmp_path / "chat.kv", "m")
