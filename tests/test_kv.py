"""Cache formats, pages, slots and timelines."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from octavo import arena, registry
from octavo.errors import CacheFullError, ContextFullError, UnsupportedError
from octavo.kv import formats
from octavo.kv.cache import NULL_PAGE, Cache, Timeline, pages_of
from octavo.kv.layers import AttentionLayer, RecurrentLayer
from octavo.kv.pool import Pool
from octavo.kv.state import PAGE_TOKENS, AttentionSpec, LayerSpec, RecurrentSpec
from octavo.ops import reference

BACKEND = reference
ATTENTION = AttentionSpec(n_kv_heads=2, key_dim=48, value_dim=40, scale=1.0)
RECURRENT = RecurrentSpec(2, 4, 8, 16, conv_kernel=4, tiled=True)
SHAPES = [(1, 1, 1), (2, 32, 32), (3, 33, 7), (1, 257, 64), (2, 48, 40)]  # heads, d, dv


def make_cache(*specs: LayerSpec, n_pages: int = 8, n_slots: int = 4, **more: int) -> Cache:
    return Cache(
        specs or (ATTENTION,),
        n_pages=n_pages,
        n_slots=n_slots,
        format="f32",
        backend=BACKEND,
        **more,
    )


def make_layer(name: str, heads: int, d: int, dv: int, n_pages: int = 2) -> AttentionLayer:
    spec = AttentionSpec(heads, d, dv, 1.0)
    data = np.full((n_pages, formats.page_bytes(name, spec)), 0xAA, np.uint8)
    return AttentionLayer(spec, name, data, BACKEND)


def key_value(n: int, heads: int, d: int, dv: int, seed: int = 1) -> tuple:
    rng = np.random.default_rng(seed)
    k, v = (rng.standard_normal((n, heads, w), np.float32) for w in (d, dv))
    return k * 10 ** rng.uniform(-3, 3, (n, 1, 1)).astype(np.float32), v


def quantised_plainly(x: np.ndarray) -> np.ndarray:
    """q8_0 by the book, number by number, in Python."""
    result = np.empty(x.shape, np.float32)
    for index in np.ndindex(*x.shape[:-1]):
        for start in range(0, x.shape[-1], 32):
            group = x[index][start : start + 32]
            scale = np.float32(np.float16(np.float32(max(abs(group))) / np.float32(127)))
            inverse = np.float32(1) / scale if scale else np.float32(0)
            numbers = [max(-127, min(127, round(float(np.float32(a * inverse))))) for a in group]
            result[index][start : start + 32] = [np.float32(q) * scale for q in numbers]
    return result


def test_every_format_is_found() -> None:
    assert set(registry.names("kv.formats")) >= {"f32", "f16", "q8_0"}
    with pytest.raises(UnsupportedError, match="cache format 'q9'"):
        formats.find("q9")


def test_every_format_has_its_native_twin() -> None:
    twins = Path(__file__).parents[1] / "csrc" / "kv"
    assert {path.stem for path in twins.glob("*.h")} == set(registry.names("kv.formats"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["f32", "f16", "q8_0"])
def test_what_is_written_is_read(name: str, shape: tuple[int, int, int]) -> None:
    layer = make_layer(name, *shape)
    k, v = key_value(PAGE_TOKENS, *shape)
    module = formats.find(name)
    for offset, n in ((0, 1), (1, 7), (8, 33), (41, 23), (64, 0)):  # pieces, as steps write them
        rows = slice(offset, offset + n)
        module.write(layer, 1, offset, k[rows], v[rows])
    expected = {
        "f32": lambda x: x,
        "f16": lambda x: x.astype(np.float16).astype(np.float32),
        "q8_0": quantised_plainly,
    }[name]
    for n in (0, 1, 33, PAGE_TOKENS):
        keys, values = module.read(layer, 1, n)
        assert keys.dtype == values.dtype == np.float32
        np.testing.assert_array_equal(keys, expected(k[:n]))
        np.testing.assert_array_equal(values, expected(v[:n]))
    assert (layer.data[0] == 0xAA).all(), "the page before was touched"


@pytest.mark.parametrize("name", ["f32", "f16", "q8_0"])
def test_writing_again_replaces(name: str) -> None:
    layer = make_layer(name, 2, 48, 40)
    module = formats.find(name)
    old, new = key_value(64, 2, 48, 40), key_value(64, 2, 48, 40, seed=2)
    module.write(layer, 0, 0, *old)
    module.write(layer, 0, 10, new[0][10:20], new[1][10:20])
    fresh = make_layer(name, 2, 48, 40)
    for rows, (k, v) in ((slice(0, 10), old), (slice(10, 20), new), (slice(20, 64), old)):
        module.write(fresh, 0, rows.start, k[rows], v[rows])
    np.testing.assert_array_equal(layer.data[0], fresh.data[0])


def test_layout_is_the_one_that_kernels_read() -> None:
    """Places worked out by hand from the definition, not through the format's own views."""
    heads, d, dv = 2, 39, 33
    k, v = key_value(64, heads, d, dv)
    plain = make_layer("f32", heads, d, dv)
    formats.find("f32").write(plain, 0, 0, k, v)
    floats = plain.data[0].view(np.float32)
    assert floats[1 * d * 64 + 38 * 64 + 5] == k[5, 1, 38]
    assert floats[heads * d * 64 + 1 * 64 * dv + 5 * dv + 32] == v[5, 1, 32]

    packed = make_layer("q8_0", heads, d, dv)
    formats.find("q8_0").write(packed, 0, 0, k, v)
    data = packed.data[0]
    key_block = (128 + 32 * 64) + (128 + 8 * 64)
    at = 1 * key_block + (128 + 32 * 64)  # head 1, second group: dims 32 to 38 and a zero
    scale = data[at + 2 * 5 : at + 2 * 5 + 2].view(np.float16)[0]
    fours = data[at + 128 + 1 * 64 * 4 + 5 * 4 :][:4].view(np.int8)  # dims 36, 37, 38, none
    numbers = fours.astype(np.float32) * np.float32(scale)
    assert numbers.tolist() == [*quantised_plainly(k[5:6])[0, 1, 36:].tolist(), 0]
    value_block = 2 * 128 + 64 * 48  # 33 dims, filled up to 48
    at = heads * key_block + 1 * value_block
    scale = data[at + 2 * (1 * 64 + 5) :][:2].view(np.float16)[0]
    number = data[at + 2 * 128 + (1 * 48 + 32) * 4 + 1].view(np.int8)  # position 5 = 4 + 1
    assert np.float32(number) * np.float32(scale) == quantised_plainly(v[5:6])[0, 1, 32]
    assert len(data) == heads * (key_block + value_block)


def test_q8_0_of_zeros_and_of_tiny_numbers_is_zero() -> None:
    layer = make_layer("q8_0", 1, 32, 32)
    k = np.zeros((2, 1, 32), np.float32)
    k[1] = 1e-9  # its scale is below the smallest half
    formats.find("q8_0").write(layer, 0, 0, k, k)
    assert not formats.find("q8_0").read(layer, 0, 2)[0].any()


def test_page_bytes_are_whole_cache_lines() -> None:
    for name in registry.names("kv.formats"):
        for heads, d, dv in SHAPES:
            assert formats.page_bytes(name, AttentionSpec(heads, d, dv, 1.0)) % 64 == 0


def test_arena_is_zeroed_aligned_and_writable() -> None:
    for n in (0, 1, 4097, 3 << 20):
        memory = arena.allocate(n)
        assert memory.shape == (n,)
        assert not memory.any()
        memory[:] = 1
        assert n == 0 or memory.ctypes.data % 4096 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="resident pages are counted in /proc")
def test_what_fills_slowly_begins_with_small_pages() -> None:
    def resident_bytes() -> int:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
        return n_pages * mmap.PAGESIZE

    memory = [arena.allocate(8 << 20, fills_slowly=True) for _ in range(32)]
    before = resident_bytes()
    for each in memory:
        each[5000] = 1
        assert not each[:5000].any()
    assert resident_bytes() - before < 32 << 20  # huge pages would be 64 MiB


def test_pool_shares_and_frees() -> None:
    pool = Pool(2, first=1)
    a, b = pool.take(), pool.take()
    assert sorted((a, b)) == [1, 2]
    pool.share((a,))
    pool.free((a,))
    assert pool.n_free == 0
    pool.free((a,))
    assert pool.n_free == 1
    with pytest.raises(AssertionError, match="no owner"):
        pool.free((a,))


def test_cache_has_every_layer_and_the_null_page() -> None:
    cache = make_cache(ATTENTION, RECURRENT, n_pages=5, n_slots=3)
    attention, recurrent = cache.layers
    assert isinstance(attention, AttentionLayer)
    assert isinstance(recurrent, RecurrentLayer)
    assert attention.data.shape == (6, formats.page_bytes("f32", ATTENTION))
    assert recurrent.conv.shape == (3, 3, 96)
    assert recurrent.state.shape == (3, 4, 8, 16)
    assert cache.n_bytes == 6 * cache.page_bytes + 3 * cache.slot_bytes
    assert not any(a.any() for a in (attention.data, recurrent.conv, recurrent.state))
    timeline = cache.open()
    timeline.reserve(5 * PAGE_TOKENS)
    assert NULL_PAGE not in timeline.pages


@pytest.mark.parametrize("context", [1, 63, 64, 65, 127, 128, 129])
def test_the_context_holds_exactly(context: int) -> None:
    cache = make_cache(n_pages=pages_of(context), context=context)
    timeline = cache.open()
    for _ in range(context):
        timeline.reserve(1)
        timeline.advance([7])
    assert len(timeline.pages) == pages_of(context)
    with pytest.raises(ContextFullError, match=f"{context + 1} tokens"):
        timeline.reserve(1)
    assert timeline.n_tokens == context
    whole = make_cache(n_pages=pages_of(context), context=context).open()
    whole.reserve(context)
    with pytest.raises(ContextFullError):
        whole.reserve(context + 1)


def test_a_full_cache_is_told_from_a_full_context() -> None:
    cache = make_cache(n_pages=2, context=128)
    first, second = cache.open(), cache.open()
    first.reserve(65)
    with pytest.raises(CacheFullError):
        second.reserve(1)
    assert second.pages == []
    first.close()
    second.reserve(128)


def fill(timeline: Timeline, first: int, n: int) -> None:
    """Run n made-up steps of one token; token t leaves the value t in every layer."""
    for t in range(first, first + n):
        timeline.reserve(1)
        page, offset = timeline.pages[t // PAGE_TOKENS], t % PAGE_TOKENS
        for layer in timeline.cache.attention:
            k = np.full((1, layer.spec.n_kv_heads, layer.spec.key_dim), t, np.float32)
            v = np.full((1, layer.spec.n_kv_heads, layer.spec.value_dim), t, np.float32)
            formats.find(layer.format).write(layer, page, offset, k, v)
        for state in timeline.cache.recurrent:
            state.conv[timeline.slot] = state.state[timeline.slot] = t + 1
        timeline.advance([t])


def held(timeline: Timeline) -> list[float]:
    """The values that positions 0... hold."""
    layer = timeline.cache.attention[0]
    n = timeline.n_tokens
    pages = [formats.find(layer.format).read(layer, p, PAGE_TOKENS)[1] for p in timeline.pages]
    return [float(x) for x in np.concatenate(pages)[:n, 0, 0]]


def test_a_fork_shares_pages_until_one_writes() -> None:
    cache = make_cache(n_pages=8)
    timeline = cache.open()
    fill(timeline, 0, 130)
    twin = timeline.fork()
    assert twin.pages == timeline.pages
    fill(twin, 130, 1)
    assert twin.pages[:2] == timeline.pages[:2]
    assert twin.pages[2] != timeline.pages[2]
    branch = timeline.fork(70)
    branch.reserve(2)
    assert branch.pages[0] == timeline.pages[0]
    assert branch.pages[1] != timeline.pages[1]
    fill(timeline, 130, 3)
    assert held(timeline) == list(range(133))
    assert held(twin) == list(range(131))
    assert held(branch) == list(range(70))
    for each in (timeline, twin, branch):
        each.close()
        each.close()
    assert cache.pages.n_free == 8


def test_truncating_frees_pages_and_does_not_touch_forks() -> None:
    cache = make_cache(n_pages=8)
    timeline = cache.open()
    fill(timeline, 0, 200)
    twin = timeline.fork()
    timeline.truncate(64)
    assert len(timeline.pages) == 1
    timeline.truncate(10)
    layer = cache.attention[0]
    timeline.reserve(1)
    layer.data[timeline.pages[0]] = 0
    assert held(twin) == list(range(200))
    twin.close()
    timeline.close()
    assert cache.pages.n_free == 8


def test_advance_needs_room() -> None:
    timeline = make_cache().open()
    timeline.reserve(1)
    with pytest.raises(AssertionError, match="reserve"):
        timeline.advance(range(65))


def test_ids_grow_and_cannot_be_written() -> None:
    timeline = make_cache().open()
    fill(timeline, 0, 300)
    np.testing.assert_array_equal(timeline.ids, np.arange(300))
    with pytest.raises(ValueError, match="read-only"):
        timeline.ids[0] = 1


def state_of(timeline: Timeline) -> float:
    return float(timeline.cache.recurrent[0].state[timeline.slot].mean())


def snapshot(timeline: Timeline) -> None:
    slot = timeline.cache.take_slot()
    timeline.cache.copy_slot(timeline.slot, slot)
    timeline.keep(timeline.n_tokens, slot)


def test_recurrent_states_go_back_only_to_snapshots() -> None:
    cache = make_cache(ATTENTION, RECURRENT)
    timeline = cache.open()
    fill(timeline, 0, 10)
    snapshot(timeline)
    fill(timeline, 10, 10)
    assert [timeline.reachable(n) for n in (0, 9, 10, 15, 20, 99)] == [0, 0, 10, 10, 20, 20]
    with pytest.raises(AssertionError, match="no recurrent state"):
        timeline.truncate(15)
    timeline.truncate(10)
    assert (state_of(timeline), timeline.n_tokens) == (10, 10)
    fill(timeline, 10, 3)
    timeline.truncate(10)  # the snapshot is still what it was
    assert state_of(timeline) == 10
    timeline.truncate(0)
    assert timeline.snapshots == {}
    timeline.close()
    assert cache.slots.n_free == 4
    assert cache.snapshot_slots == set()


def test_fork_copies_the_state_and_shares_snapshots() -> None:
    cache = make_cache(ATTENTION, RECURRENT)
    timeline = cache.open()
    fill(timeline, 0, 5)
    snapshot(timeline)
    fill(timeline, 5, 5)
    twin, branch = timeline.fork(), timeline.fork(5)
    assert cache.slots.n_free == 0
    fill(timeline, 10, 1)
    assert [state_of(t) for t in (timeline, twin, branch)] == [11, 10, 5]
    with pytest.raises(CacheFullError):
        timeline.fork()
    timeline.close()
    twin.truncate(5)
    assert state_of(twin) == 5
    twin.close()
    branch.close()
    assert (cache.slots.n_free, cache.pages.n_free) == (4, 8)


def test_adopting_a_slot_undoes_drafts_without_copying() -> None:
    cache = make_cache(ATTENTION, RECURRENT)
    timeline = cache.open()
    fill(timeline, 0, 4)
    drafts = [cache.take_slot(), cache.take_slot()]  # a step of two tokens fills them
    timeline.reserve(2)
    for i, slot in enumerate(drafts):
        cache.recurrent[0].state[slot] = 5 + i
    timeline.advance([4, 5])
    former = timeline.slot
    drafts[0] = timeline.adopt(drafts[0], 5)
    assert drafts[0] == former
    assert (timeline.n_tokens, state_of(timeline)) == (5, 5)
    for slot in drafts:
        cache.free_slot(slot)
    timeline.close()
    assert cache.slots.n_free == 4


def test_a_parked_timeline_runs_again_as_a_fork() -> None:
    cache = make_cache(ATTENTION, RECURRENT)
    timeline = cache.open()
    fill(timeline, 0, 65)
    timeline.reserve(100)
    timeline.park()
    assert timeline.slot == -1
    assert timeline.snapshots.keys() == {65}
    assert len(timeline.pages) == 2
    twin = timeline.fork()
    assert state_of(twin) == 65
    assert held(twin) == list(range(65))
    empty = cache.open()
    empty.park()
    assert cache.slots.n_free == 2
