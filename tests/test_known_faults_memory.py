"""Known faults of other servers around memory and computed prompts: tests named after their cases.

Models are tiny and real: what is counted is what the loader and the caches really hold.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import octavo
from cache_steps import Piece, copied, make_batch, pages_for, scattered_pages
from octavo import _native
from octavo.cli import app
from octavo.gguf.reader import open_gguf
from octavo.ops import cpu, reference
from octavo.plan import borrowed, planner
from octavo.plan.gpus import Gpu
from octavo.plan.hardware import Hardware
from octavo.plan.memory import text
from octavo.plan.plan import Video
from octavo.plan.planner import Wishes, make_plan
from octavo.server import spilling
from octavo.server.app import make_app
from octavo.server.fleet import Fleet
from octavo.server.resident import Resident
from octavo.server.spilling import VideoUse, Watch
from plan_headers import GB, machine, random_35b
from serving import PLAIN, ScriptedSession, serving
from test_kernels_attend import (
    FORMATS,
    Story,
    assert_close,
    filled,
    make_story,
    plain_attend,
    spec_of,
)

QUESTION = "Why is the sky blue? "


def chat(address: str, messages: Any, **options: Any) -> Any:
    body = {"messages": messages, "max_tokens": 6, "temperature": 0, **options}
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=120)
    return answer.raise_for_status().json()


# C: thinking.

KEEPS = "{% for m in messages %}<think>{{ m.reasoning_content }}</think>{{ m.content }}{% endfor %}"
DROPS = "{% for m in messages %}{{ m.content }}{% endfor %}<think>"


@pytest.mark.parametrize(("template", "keeps"), [(KEEPS, True), (DROPS, False), (PLAIN, None)])
@pytest.mark.parametrize("cache_format", ["f16", "q8_0"])
def test_C3_the_plan_says_what_earlier_thinking_costs(
    template: str, keeps: bool | None, cache_format: str, tiny_file: Callable[..., Path]
) -> None:
    """Kept, its bytes in the cache; dropped, the time to read again what came after it."""
    path = tiny_file("qwen35", changes={"tokenizer.chat_template": template})
    words = ["plan", str(path), "--cache-format", cache_format]
    plan = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    shown = CliRunner().invoke(app, words).stdout
    found = plan["thinking"]
    if keeps is None:
        assert found is None
        assert "thinking:" not in shown
        return
    with octavo.load(path, context=512, sequences=1, cache_format=cache_format) as session:
        page_bytes = sum(x.data.nbytes for x in session._cache.attention) // (512 // 64 + 1)
    assert found["is_kept"] is keeps
    assert found["cache_bytes"] == 1000 * page_bytes // 64
    assert found["read_seconds"] == pytest.approx(1000 / plan["expected"]["prefill"])
    assert ("keeps" in shown) is keeps
    assert ("drops" in shown) is not keeps
    assert (text(found["cache_bytes"]) in shown) or not keeps
    assert "read again" in shown


# D: what was computed.


@pytest.fixture(scope="module")
def hybrid(tiny_file: Callable[..., Path]) -> Path:
    return tiny_file("qwen35", changes={"context_length": 2048})


def test_D1_each_turn_computes_what_it_brought_and_says_what_a_cold_model_does(
    hybrid: Path,
) -> None:
    """Recurrent layers cannot go back to any token; only to where a state was kept."""
    wish = {"logprobs": True, "top_logprobs": 3}
    messages: list[Any] = [{"role": "system", "content": "Be brief. " * 20}]
    n_before = 0
    with serving(octavo.load(hybrid, sequences=2)) as address:
        for turn in range(5):
            messages.append({"role": "user", "content": f"{turn}. {QUESTION}"})
            found = chat(address, messages, **wish)
            n_prompt = found["usage"]["prompt_tokens"]
            n_cached = found["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert not turn or n_prompt - n_cached <= n_prompt - n_before + 40
            with serving(octavo.load(hybrid, sequences=1)) as cold:
                alone = chat(cold, messages, **wish)
            assert alone["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            said, expected = found["choices"][0], alone["choices"][0]
            assert said["message"] == expected["message"]
            for one, other in zip(
                said["logprobs"]["content"], expected["logprobs"]["content"], strict=True
            ):
                assert one["logprob"] == pytest.approx(other["logprob"], abs=2e-3)
            messages.append({"role": "assistant", "content": said["message"]["content"]})
            n_before = n_prompt
        assert n_before > 300  # so that 40 are few


def reused(address: str, messages: Any) -> int:
    """Prompt tokens that were not computed again."""
    usage = chat(address, messages, max_tokens=1)["usage"]
    n_cached: int = usage["prompt_tokens_details"]["cached_tokens"]
    return n_cached


def test_D5_what_is_kept_stays_within_its_budget(hybrid: Path) -> None:
    """Fifty turns and as many strangers, with room for three snapshots: the oldest go first."""
    session = octavo.load(hybrid, sequences=1, snapshots=3, context=1024)
    cache, kept = session._cache, session._prefixes
    planned = session.plan.cache_bytes + session.plan.state_bytes
    assert (cache.n_bytes, session.plan.n_snapshots) == (planned, 3)
    held = {id(layer.data) for layer in cache.attention}
    talk: list[Any] = [{"role": "user", "content": QUESTION * 4}]
    n_cached = []
    with serving(session) as address:
        for turn in range(50):
            n_cached.append(reused(address, talk))
            reused(address, [{"role": "user", "content": f"{turn} is what I say."}])
            assert len(cache.snapshot_slots) <= 3
            assert kept.n_bytes <= session.plan.prefix_bytes
            if turn % 10 == 9:
                talk += [{"role": "assistant", "content": "So."}, {"role": "user", "content": "?"}]
        assert len(kept) <= 3  # the strangers went, and not the conversation
        assert min(n_cached[1:]) > 60
        assert reused(address, [{"role": "user", "content": "7 is what I say."}]) < 20
        assert cache.n_bytes == planned
        assert {id(layer.data) for layer in cache.attention} == held
        text = httpx.get(f"{address}/metrics").text
    limit = f'octavo_cache_limit_bytes{{model="scripted"}} {session.plan.prefix_bytes}'
    assert limit in text.splitlines()


# F: plans.


@pytest.mark.parametrize("draft_tokens", [0, 2])
def test_F1_a_plan_counts_draft_blocks_and_what_their_caches_take(
    draft_tokens: int, tiny_file: Callable[..., Path]
) -> None:
    path = tiny_file("qwen35moe", mtp=True)
    with open_gguf(path) as file:
        kinds = {name: t.n_bytes for name, t in file.tensors.items() if name.startswith("blk.4.")}
        wishes = Wishes(context=128, sequences=2, draft_tokens=draft_tokens)
        plan = make_plan(file, wishes, machine(30))
        plain = make_plan(file, replace(wishes, draft_tokens=0), machine(30))
    with octavo.load(path, context=128, sequences=2, draft_tokens=draft_tokens) as session:
        assert session.plan.weight_bytes["mtp"] >= sum(kinds.values()) > 0
        assert session._cache.n_bytes == session.plan.cache_bytes + session.plan.state_bytes
        assert (plan.cache_bytes, plan.state_bytes) == (
            session.plan.cache_bytes,
            session.plan.state_bytes,
        )
    # Each guess needs a state of its own to go back to, in every sequence.
    assert (plan.n_slots > plain.n_slots) is bool(draft_tokens)
    assert plan.total_bytes >= plan.file_bytes + plan.cache_bytes + plan.state_bytes


@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_F4_as_many_as_were_promised_fill_the_whole_context_at_once(
    arch: str, tiny_file: Callable[..., Path]
) -> None:
    """All memory is there from the beginning: nobody is refused or cut short later."""
    n, context = 3, 128
    session = octavo.load(tiny_file(arch), context=context, sequences=n)
    n_bytes, data = session._cache.n_bytes, [id(a.data) for a in session._cache.attention]
    assert n_bytes == session.plan.cache_bytes + session.plan.state_bytes

    def fill(number: int) -> Any:
        ids = [5 + number] + [9] * 63
        body = {"prompt": ids, "max_tokens": -1, "ignore_eos": True, "temperature": 0}
        return httpx.post(f"{address}/v1/completions", json=body, timeout=120)

    with serving(session) as address, ThreadPoolExecutor(n) as pool:
        for _ in range(2):
            found = [answer.raise_for_status().json() for answer in pool.map(fill, range(n))]
            assert [f["usage"]["total_tokens"] for f in found] == [context] * n
            assert {f["choices"][0]["finish_reason"] for f in found} == {"length"}
        assert session.engine.stats.preemptions == 0
        assert session._cache.n_bytes == n_bytes
        assert [id(a.data) for a in session._cache.attention] == data


def test_F6_every_cache_format_is_fast_wherever_it_can_be_asked_for() -> None:
    """A layer has one format, for keys and values: there is no pair that only some place knows."""
    offered = planner.cache_formats()
    assert sorted(_native.cache_formats()) == sorted(offered)
    # The card's kernels need packages that are not everywhere: their files tell, too.
    files = (Path(reference.__file__).parent / "gpu" / "kv").glob("[!_]*.py")
    assert sorted(path.stem for path in files) == sorted(offered)
    with pytest.raises(octavo.UnsupportedError, match="q4_9"):
        make_plan(random_35b(), Wishes(cache_format="q4_9", placement="auto"), machine(30))


def with_card(total: float = 8, free: float = 7.2) -> Hardware:
    """A machine with a card of so many GB."""
    card = Gpu("card", int(total * GB), int(free * GB), (8, 9), 4, 8, 288e9, 15e12)
    return replace(machine(29, 32), gpus=(card,))


@pytest.mark.parametrize(
    ("total", "free", "asked"),
    [(8, 7.2, None), (8, 7.2, 7.0), (8, 7.2, 5.0), (6, 5.6, None), (24, 23, None)],
)
def test_F7_no_plan_goes_to_the_edge_of_a_card_that_spills(
    total: float, free: float, asked: float | None
) -> None:
    """Windows lends a full card main memory instead of refusing, and all becomes slow.

    A part of each card stays free there, also with a bound that lies close to what is free.
    """
    here = with_card(total, free)
    wishes = Wishes(placement="auto", video_bytes=asked and int(asked * GB))
    plans = [
        make_plan(random_35b(), wishes, replace(here, pin_limit_bytes=limit))
        for limit in (None, 16 * GB)
    ]
    linux, windows = (plan.video for plan in plans)
    assert linux is not None
    assert windows is not None
    taken = plans[1].video_total_bytes - windows.slack_bytes
    assert free * GB - taken >= max(512 << 20, int(0.08 * total * GB))
    assert plans[1].fits_card
    assert windows.slack_bytes >= linux.slack_bytes
    assert (asked is None or asked > 6) == (windows.slack_bytes > linux.slack_bytes)


VIDEO_USES = {
    # (of the card, free, ours, pinned, borrowed) in GB -> spilled
    "all on the card": (VideoUse(8 * GB, GB, 6 * GB), 0),
    "pinned on purpose": (VideoUse(8 * GB, GB, 6 * GB, 9 * GB, 9 * GB), 0),
    "counted by the system": (VideoUse(8 * GB, 0, 7 * GB, 9 * GB, 11 * GB), 2 * GB),
    "more than is in use": (VideoUse(8 * GB, GB // 2, 9 * GB), 9 * GB - 15 * GB // 2),
}


@pytest.mark.parametrize("name", VIDEO_USES)
def test_F7_what_has_spilled(name: str) -> None:
    use, spilled = VIDEO_USES[name]
    assert use.spill_bytes == spilled


def test_F7_the_server_measures_and_warns_while_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    """Once when it begins, and again when it begins again; the figures are in /metrics."""
    sound, spilled = VIDEO_USES["all on the card"][0], VIDEO_USES["counted by the system"][0]
    coming = [sound, spilled, spilled, sound, spilled, None]
    asked: list[tuple[str, int, int]] = []

    def look(video: Video, own_bytes: int, pinned_bytes: int) -> VideoUse | None:
        asked.append((video.gpu, own_bytes, pinned_bytes))
        return coming[len(asked) - 1]

    session = ScriptedSession(PLAIN)
    plan = make_plan(random_35b(), Wishes(placement="split"), with_card())
    assert plan.video is not None
    session.plan, session.video_bytes = plan, 6 * GB
    fleet = Fleet([Resident(lambda report, plan: session, "big")])
    app = make_app(fleet)
    watch = Watch(fleet, look)
    with TestClient(app, base_url="http://localhost") as client:
        app.state.watch = watch  # that of the application goes on beside it, and sees no card
        while fleet.first.state != "ready":
            time.sleep(0.001)
        figures, lines = [], []
        for _ in range(6):
            caplog.clear()
            asyncio.run(watch.once())
            found = re.findall(r"^octavo_vram_(\w+) (\d+)$", client.get("/metrics").text, re.M)
            figures.append({name: int(value) for name, value in found})
            lines.append([r.getMessage() for r in caplog.records if r.name == "octavo.memory"])
    assert asked == [(plan.video.gpu, 6 * GB, plan.video.pinned_bytes)] * 6
    assert [found.get("spill_bytes") for found in figures] == [0, 2 * GB, 2 * GB, 0, 2 * GB, None]
    assert figures[1]["total_bytes"] == 8 * GB
    assert [len(said) for said in lines] == [0, 1, 0, 0, 1, 0]
    assert "2.0 GB" in lines[1][0]
    assert "Sysmem Fallback" in lines[1][0]


def test_F7_the_card_is_looked_at_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Gpu("other", 6 * GB, 5 * GB), Gpu("card", 8 * GB, GB)
    monkeypatch.setattr(spilling, "probe_gpus", lambda: cards)
    monkeypatch.setattr(spilling, "borrowed_bytes", lambda: {os.getpid(): 5, 1: 7})
    video = make_plan(random_35b(), Wishes(placement="split"), with_card()).video
    assert video is not None
    assert spilling.look(video, 6, 4) == VideoUse(8 * GB, GB, 6, 4, 5)
    assert spilling.look(replace(video, gpu="gone"), 6, 4) is None


class PerformanceData:
    """Answers as Windows' pdh.dll for programs given by the names of their counters."""

    def __init__(self, counted: dict[str, tuple[int, int]], fails: str = "") -> None:
        self.counted = counted  # name -> (status, bytes)
        self.fails = fails
        self.is_open = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *arguments: 0x800007D0 if name == self.fails else self.calls(name, arguments)

    def calls(self, name: str, arguments: tuple[Any, ...]) -> int:
        if name == "PdhOpenQueryW":
            self.is_open = True
        elif name == "PdhCloseQuery":
            self.is_open = False
        elif name == "PdhAddEnglishCounterW":
            assert arguments[1] == r"\GPU Process Memory(*)\Shared Usage"
        elif name == "PdhGetFormattedCounterArrayW":
            return self.fill(*arguments[2:])
        return 0

    def fill(self, size: Any, count: Any, buffer: Any) -> int:
        n_bytes = len(self.counted) * ctypes.sizeof(borrowed.Item) + 64
        if buffer is None:
            size._obj.value = n_bytes
            return 0x800007D2 - 2**32  # as a C int
        assert size._obj.value == len(buffer) == n_bytes
        count._obj.value = len(self.counted)
        items = (borrowed.Item * len(self.counted)).from_buffer(buffer)
        self.kept = items  # the names live as long as this
        for item, (name, value) in zip(items, self.counted.items(), strict=True):
            item.name, item.value = name, borrowed.Value(*value)
        return 0


def test_F7_windows_counters_by_program() -> None:
    counted = {
        "pid_4711_luid_0x00000000_0x0000C0DE_phys_0": (0, 3 * GB),
        "pid_4711_luid_0x00000000_0x0000BEEF_phys_0": (1, GB),
        "pid_12_luid_0x00000000_0x0000C0DE_phys_0": (0, 5),
        "pid_13_luid_0x00000000_0x0000C0DE_phys_0": (0xC0000BBA, 99),  # it has ended
        "_total": (0, 9),
    }
    pdh = PerformanceData(counted)
    assert borrowed.read(pdh) == {4711: 4 * GB, 12: 5}
    assert not pdh.is_open
    for name in ("OpenQueryW", "AddEnglishCounterW", "CollectQueryData"):
        broken = PerformanceData(counted, fails=f"Pdh{name}")
        assert borrowed.read(broken) == {}
        assert not broken.is_open
    assert ctypes.sizeof(borrowed.Item) == 24


@pytest.fixture(scope="module")
def long_story() -> Story:
    return make_story((2, 1, 32, 32), 2**18, 1)


@pytest.mark.parametrize("name", FORMATS)
def test_F9_the_last_tokens_of_the_longest_context(name: str, long_story: Story) -> None:
    """Beyond 2^17 tokens, and at the end of the 262,144 that models are sold with."""
    whole: list[Piece] = [(2**18, 0)]
    pages = scattered_pages(1, pages_for(whole))
    plain = filled(long_story, spec_of((2, 1, 32, 32)), name, whole, pages)
    fast = copied(plain, cpu)
    for n_past, n_new in ((2**17, 1), (2**18 - 1, 1), (2**18 - 9, 9)):
        pieces: list[Piece] = [(n_past, n_new)]
        batch = make_batch(pieces, pages)
        expected = plain_attend(long_story, pieces, plain, batch)
        assert_close(cpu.attend(*long_story.step(pieces), fast, batch), expected, name)
