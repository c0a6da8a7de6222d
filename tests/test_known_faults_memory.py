"""Known faults of other servers around memory and computed prompts: tests named after their cases.

Models are tiny and real: what is counted is what the loader and the caches really hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import octavo
from cache_steps import Piece, copied, make_batch, pages_for, scattered_pages
from octavo import _native
from octavo.cli import app
from octavo.gguf.reader import open_gguf
from octavo.ops import cpu, reference
from octavo.plan import planner
from octavo.plan.gpus import Gpu
from octavo.plan.memory import text
from octavo.plan.planner import Wishes, make_plan
from plan_headers import GB, machine, random_35b
from serving import PLAIN, serving
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
    card = Gpu("card", int(total * GB), int(free * GB), (8, 9), 4, 8, 288e9, 15e12)
    here = replace(machine(29, 32), gpus=(card,))
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
