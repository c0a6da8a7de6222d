"""The same tokens whatever the way: pieces, neighbours, reuse, disk, drafts, threads.

Every architecture, on tiny random files, on every back end that is here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from model_steps import load
from octavo import models
from octavo.engine import decode
from octavo.engine.engine import Engine
from octavo.engine.speculative import NO_DRAFTS, DraftRule
from octavo.engine.steps import Piece, Steps
from octavo.kv import disk
from octavo.kv.cache import Cache, Timeline
from octavo.kv.prefix import PrefixStore
from octavo.models import Model
from octavo.ops import Array
from octavo.types import SamplingParams

DRAFTERS = ("qwen3next", "qwen35", "qwen35moe")
N = 80  # tokens: one page and a part of the next
FORMATS = {"reference": "f32", "cpu": "f16", "gpu": "f16"}
# The CPU back end has one order for every sum. The reference back end leaves it to NumPy; on the
# GPU it changes with the shape, and half precision turns a tiny difference into a step of that.
MAX_ERROR = {"reference": 1e-8, "cpu": 0.0, "gpu": 2e-3}


def backend_named(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"octavo.ops.{name}")
    except ImportError as error:
        pytest.skip(f"back end {name} is not here: {error}")


class Subject:
    """One tiny model on one back end."""

    def __init__(self, arch: str, path: Path, backend: ModuleType) -> None:
        self.arch = arch
        self.backend = backend
        self.name = backend.__name__.rpartition(".")[2]
        self.model: Model = load(path, backend)
        self.ids = np.random.default_rng(3).integers(0, 250, N).tolist()
        self._whole: Array | None = None

    def cache(self, n_pages: int = 24, n_slots: int = 24) -> Cache:
        return Cache(
            self.model.state(),
            n_pages=n_pages,
            n_slots=n_slots,
            format=FORMATS[self.name],
            backend=self.backend,
            context=400,
        )

    @property
    def whole(self) -> Array:
        """Logits (N, V) of all tokens, computed in one piece."""
        if self._whole is None:
            cache = self.cache()
            self._whole = feed(Steps(self.model, cache), cache.open(), self.ids)
        return self._whole

    def engine(self, **options: Any) -> Engine:
        cache = self.cache()
        options.setdefault("prefixes", PrefixStore(cache, 1 << 28, 8))
        options.setdefault("drafts", NO_DRAFTS)
        options.setdefault("piece_tokens", 64)
        return Engine(self.model, cache, **options)

    def agree(self, got: Array, expected: Array) -> None:
        """Normalised mean squared error within rounding; same best id unless it is that close."""
        error = np.mean((got - expected) ** 2) / np.mean(expected**2)
        assert error <= MAX_ERROR[self.name]
        two = np.sort(expected, axis=-1)[:, -2:]
        is_clear = two[:, 1] - two[:, 0] > 10 * np.abs(got - expected).max()
        assert is_clear.any() or self.name == "gpu"
        same = got.argmax(axis=-1) == expected.argmax(axis=-1)
        assert same[is_clear].all()


def feed(
    steps: Steps, timeline: Timeline, ids: list[int], lengths: list[int] | None = None
) -> Array:
    """Logits (n, V) of ids (n,), computed in pieces of those lengths (the last one repeats)."""
    rows, rest = [], list(lengths or [len(ids)])
    while ids:
        n = rest.pop(0) if len(rest) > 1 else rest[0]
        piece, ids = ids[:n], ids[n:]
        timeline.reserve(len(piece))
        out = steps.run([Piece(timeline, timeline.n_tokens, piece, len(piece))], record=n == 1)
        timeline.advance(piece)
        rows.append(out.logits.copy())
    return np.concatenate(rows)


@pytest.fixture(scope="module", params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> ModuleType:
    return backend_named(request.param)


@pytest.fixture(scope="module", params=models.architectures())
def subject(
    request: pytest.FixtureRequest, backend: ModuleType, tiny_file: Callable[..., Path]
) -> Subject:
    arch = request.param
    return Subject(arch, tiny_file(arch, mtp=arch in DRAFTERS), backend)


@pytest.mark.parametrize("lengths", [[1], [33, 7, 1], [3, 64]], ids=["one by one", "odd", "page"])
def test_pieces_do_not_matter(subject: Subject, lengths: list[int]) -> None:
    cache = subject.cache()
    got = feed(Steps(subject.model, cache), cache.open(), subject.ids, lengths)
    subject.agree(got, subject.whole)


def test_warming_up_changes_nothing(subject: Subject) -> None:
    cache = subject.cache()
    steps, timeline = Steps(subject.model, cache), cache.open()
    feed(steps, timeline, subject.ids[:40])
    steps.warm_up(70)
    subject.agree(feed(steps, timeline, subject.ids[40:]), subject.whole[40:])


def test_neighbours_do_not_matter(subject: Subject) -> None:
    """Pieces of three sequences in one step, at different places, and then single tokens."""
    cache = subject.cache()
    steps = Steps(subject.model, cache)
    others = [cache.open() for _ in range(2)]
    own = cache.open()
    at = 0
    parts = []
    for n, *others_n in [(7, 5, 33), (33, 1, 1), (1, 1, 1), (1, 1, 1), (N - 42, 3, 2)]:
        pieces = []
        for timeline, m in zip(
            (others[0], own, others[1]), (others_n[0], n, others_n[1]), strict=True
        ):
            start = timeline.n_tokens
            source = subject.ids if timeline is own else [250 - i for i in subject.ids]
            timeline.reserve(m)
            pieces.append(Piece(timeline, start, source[start : start + m], m))
        out = steps.run(pieces, record=n == 1)
        parts.append(out.logits[others_n[0] : others_n[0] + n].copy())
        for piece in pieces:
            piece.timeline.advance(piece.ids)
        at += n
    assert at == N
    subject.agree(np.concatenate(parts), subject.whole)


def test_reused_prefix_does_not_matter(subject: Subject, tmp_path: Path) -> None:
    """Fresh, reused from another prompt's state, and restored from disk."""
    cache = subject.cache()
    steps = Steps(subject.model, cache)
    store = PrefixStore(cache, 1 << 28, 8)
    ids = np.array(subject.ids, np.int32)
    first = store.find(ids).timeline
    feed(steps, first, subject.ids[:70])
    store.snapshot(first)
    feed(steps, first, [9, 8, 7])
    disk.save(first, tmp_path / "kept", "tiny")
    store.keep(first)

    reuse = store.find(ids)
    assert reuse.n_reused == 70
    subject.agree(feed(steps, reuse.timeline, subject.ids[70:]), subject.whole[70:])

    new_cache = subject.cache()
    new_store = PrefixStore(new_cache, 1 << 28, 8)
    new_store.keep(disk.restore(new_cache, tmp_path / "kept", "tiny"))
    restored = new_store.find(ids)
    assert restored.n_reused == 70
    new_steps = Steps(subject.model, new_cache)
    subject.agree(feed(new_steps, restored.timeline, subject.ids[70:]), subject.whole[70:])


def test_engine_says_the_same_again(subject: Subject) -> None:
    """Alone, among others, and as a second turn that reuses the first."""
    params = SamplingParams(temperature=0.7, seed=4, max_tokens=12)
    with subject.engine() as engine:
        alone = engine.submit(subject.ids[:40], params, marks=[30]).ids()
    with subject.engine() as engine:
        streams = [engine.submit(subject.ids[i : 40 + i], params, marks=[30]) for i in (3, 0, 6)]
        assert streams[1].ids() == alone
        assert [s.finish_reason for s in streams[:2]] != ["error"] * 2
    with subject.engine() as engine:
        engine.submit([*subject.ids[:30], 1, 2, 3], params, marks=[30]).ids()
        again = engine.submit(subject.ids[:40], params, marks=[30])
        assert again.ids() == alone
        assert again.usage.cached_tokens == 30


def drafting(
    subject: Subject, rule: DraftRule, params: SamplingParams
) -> tuple[list[list[int]], int]:
    """Two prompts at once, then one of them continued; and the number of right guesses."""
    with subject.engine(drafts=rule) as engine:
        streams = [engine.submit(subject.ids[i : 30 + i], params) for i in (0, 5)]
        said = [stream.ids() for stream in streams]
        said.append(engine.submit([*subject.ids[:30], *said[0][:10], 5], params).ids())
        return said, engine.stats.accepted_tokens


@pytest.mark.parametrize("source", ["mtp", "lookup"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_do_not_matter(subject: Subject, source: Any, temperature: float) -> None:
    if source == "mtp" and not subject.model.config.n_mtp:
        pytest.skip("no draft block")
    params = SamplingParams(temperature=temperature, seed=11, max_tokens=16)
    rule = DraftRule(frozenset({source}), always=3 if temperature else 2)
    assert drafting(subject, rule, params)[0] == drafting(subject, NO_DRAFTS, params)[0]


def test_half_right_drafts_do_not_matter(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses that are right up to a place, so that states are taken back to each place."""
    params = SamplingParams(temperature=0, max_tokens=24)
    plain, _ = drafting(subject, NO_DRAFTS, params)
    prompts = [subject.ids[:30], subject.ids[5:35], [*subject.ids[:30], *plain[0][:10], 5]]
    texts = [prompt + said for prompt, said in zip(prompts, plain, strict=True)]
    asked = 0

    def oracle(ids: np.ndarray, n: int) -> list[int]:
        nonlocal asked
        asked += 1
        known = ids.tolist()
        text = next(t for t in texts if t[: len(known)] == known)
        guess = text[len(known) : len(known) + n]
        wrong = asked % 5
        return [(g + 1) % 250 if i == wrong else g for i, g in enumerate(guess)]

    monkeypatch.setattr(decode, "look_up", oracle)
    said, n_right = drafting(subject, DraftRule(frozenset({"lookup"}), always=4), params)
    assert said == plain
    assert n_right > 20


def test_chained_drafts_equal_a_filled_cache(
    backend: ModuleType, tiny_file: Callable[..., Path]
) -> None:
    """The draft block's guesses are those of a run that saw every token and state."""
    from octavo.engine.speculative import DraftBlock

    subject = Subject("qwen35", tiny_file("qwen35", mtp=True), backend)
    width = subject.model.config.n_embd

    def guesses(lengths: list[int]) -> list[list[int]]:
        cache = subject.cache()
        steps, timeline = Steps(subject.model, cache), cache.open()
        block = DraftBlock(steps, width)
        trail, found = block.begin(timeline), []
        at = 0
        for n in lengths:
            ids = subject.ids[at : at + n]
            timeline.reserve(n + 4)
            out = steps.run([Piece(timeline, at, ids, 1)])
            timeline.advance(ids)
            block.observe(trail, out.hidden)
            at += n
            if at in (40, 41, 60):
                found += block.propose([(trail, timeline, subject.ids[at])], 3)
            else:
                block.catch_up(trail, timeline)
        return found

    assert guesses([40, 1, 19]) == guesses([7, 33, 1, 1, 1, 17]) == guesses([1] * 60)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    cpu = backend_named("cpu")
    yield cpu.set_threads
    cpu.set_threads(0)


@pytest.mark.parametrize("arch", models.architectures())
def test_threads_do_not_matter(
    arch: str, threads: Callable[[int], None], tiny_file: Callable[..., Path]
) -> None:
    path = tiny_file(arch, mtp=arch in DRAFTERS)
    results = []
    for n in (1, 2, 3):
        threads(n)
        results.append(Subject(arch, path, backend_named("cpu")).whole)
    for got in results[1:]:
        np.testing.assert_array_equal(got, results[0])
