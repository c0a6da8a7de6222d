"""Plans with a graphics card: bytes worked out apart, whole tables, choices, refusals, speeds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from octavo import models
from octavo.cli import app
from octavo.cli._options import LoadFlags
from octavo.errors import MemoryPlanError, SettingError
from octavo.plan import memory, planner, speeds
from octavo.plan.expected import hit_share, operations_per_token
from octavo.plan.gpus import Gpu, Program
from octavo.plan.hardware import Hardware
from octavo.plan.layout import Case, Choice, lay_out
from octavo.plan.plan import Plan
from octavo.plan.planner import Wishes, make_plan
from octavo.plan.speeds import Speeds
from octavo.plan.suppose import Supposed, link_of, suppose
from plan_headers import GB, Header, machine, qwen36_35b, random_35b, smollm2

TABLES = Path(__file__).parent / "plans"
EXPERT = 3 * 512 * 2048 // 256 * 144  # gate, up and down in Q4_K
SPEEDS = Speeds(50e9, 20e9, 2e12, 5e11)
MADE: dict[str, Header] = {}


def header() -> Header:
    """The 35B shape with all its tensors; read only."""
    return MADE.setdefault("35b", random_35b())


def here(total_gb: float = 32, card_gb: float = 0, free_gb: float = 0) -> Hardware:
    """A desktop as `--vram` and `--ram` suppose it; with `free_gb`, others hold the rest."""
    known = replace(machine(1, 1), speeds=SPEEDS)
    made = suppose(known, Supposed(round(card_gb * GB), round(total_gb * GB)))
    if free_gb:
        card = replace(made.gpus[0], free_bytes=int(free_gb * GB))
        made = replace(made, gpus=(card,))
    return made


AUTO = Wishes(placement="auto")


def plan_for(wishes: Wishes = AUTO, **sizes: float) -> Plan:
    return make_plan(header(), wishes, here(**sizes))


# Whole tables


@pytest.mark.parametrize(
    ("name", "wishes", "sizes"),
    [
        ("card-8", AUTO, {"card_gb": 8}),
        ("card-8-128k", Wishes(placement="auto", context=131_072), {"card_gb": 8}),
        ("processor", Wishes(), {}),
        ("card-24", AUTO, {"card_gb": 24}),
        ("too-small", AUTO, {"card_gb": 4, "total_gb": 16}),
    ],
)
def test_tables(
    name: str, wishes: Wishes, sizes: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What people see; change the files on purpose."""
    monkeypatch.setattr(planner, "cache_formats", lambda: ("f16", "q8_0"))
    assert plan_for(wishes, **sizes).table() + "\n" == (TABLES / f"{name}.txt").read_text()


def test_no_table_for_the_smallest_machine() -> None:
    with pytest.raises(MemoryPlanError) as caught:
        plan_for(AUTO, total_gb=2)
    assert str(caught.value) + "\n" == (TABLES / "refused.txt").read_text()


# Bytes


def test_known_bytes() -> None:
    """Figures that were worked out apart from this program."""
    config = models.read_config(header().metadata)
    tensors = list(header().tensors.values())
    assert memory.expert_slot_bytes(tensors, 256) == EXPERT == 1_769_472
    assert set(memory.expert_blocks(tensors).values()) == {256 * EXPERT}
    assert memory.read_bytes_per_token(tensors, config) == pytest.approx(2_569e6, rel=0.005)
    case = Case(header(), config, Wishes(), machine(30), ())
    assert operations_per_token(case) == pytest.approx(2 * 2_437e6, rel=0.002)
    at_32k = memory.cached_bytes_per_token(config.layers, "f16", 32_768)
    assert at_32k == 32_768 * 20_480 + 2 * 65_863_680


def test_every_byte_of_a_split_is_somewhere() -> None:
    plan = plan_for(card_gb=8)
    video = plan.video
    assert video is not None
    assert plan.placement == "split"
    kinds = plan.weight_bytes
    assert video.weight_bytes == {"trunk": kinds["trunk"], "head": kinds["head"]}
    assert video.left_bytes == {"embedding": kinds["embedding"], "experts": kinds["experts"]}
    assert sum(video.weight_bytes.values()) + sum(video.left_bytes.values()) == plan.file_bytes
    assert plan.own_bytes == plan.host_weight_bytes + video.host_scratch_bytes
    # What is left is less than another expert.
    assert 0 <= video.limit_bytes - plan.video_total_bytes < EXPERT
    assert video.ring_bytes == 128 * EXPERT
    assert (video.n_blocks, video.n_experts, video.least_slots) == (40, 256, 2 * 8 * 40)
    assert (plan.n_slots, plan.n_snapshots, plan.draft_tokens) == (3 + 4, 4, 2)


def test_the_whole_model_on_a_card() -> None:
    plan = plan_for(card_gb=24)
    video = plan.video
    assert video is not None
    assert video.weight_bytes == dict(plan.weight_bytes)
    assert (video.n_slots, video.ring_bytes, plan.total_bytes) == (0, 0, 0)
    assert plan.fits


def with_draft_block(file: Header) -> Header:
    """The 35B shape with one draft block, whose experts are larger than the others."""
    made = qwen36_35b()
    meta = made.metadata
    tensors = dict(made.tensors)
    for name in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "attn_q"):
        old = tensors[f"blk.39.{name}.weight"]
        tensors[f"blk.40.{name}.weight"] = old._replace(name=f"blk.40.{name}.weight")
    file.tensors, file.metadata = tensors, meta
    return file


def test_experts_of_draft_blocks_stay_in_memory() -> None:
    file = with_draft_block(qwen36_35b())
    tensors = list(file.tensors.values())
    kinds = memory.weight_bytes(tensors, 40)
    draft_experts = memory.draft_expert_bytes(tensors, 40)
    assert 0 < draft_experts < kinds["mtp"]
    for drafts in (False, True):
        card = memory.weights_on_card(kinds, draft_experts, all_experts=False, drafts=drafts)
        assert card.get("mtp", 0) == (kinds["mtp"] - draft_experts if drafts else 0)
        left = memory.weights_in_memory(kinds, card)
        stays = {t for t in tensors if memory.stays(t.name, 40, left, drafts=drafts)}
        assert sum(t.n_bytes for t in stays) == sum(left.values())
        assert sum(card.values()) + sum(left.values()) == sum(kinds.values())
    assert len(memory.expert_blocks(tensors)) == 41


def test_a_tied_head_is_on_the_card() -> None:
    kinds = {"embedding": 100, "trunk": 50, "experts": 1000}
    card = memory.weights_on_card(kinds, 0, all_experts=False, drafts=True)
    assert card == {"trunk": 50, "embedding": 100}
    left = memory.weights_in_memory(kinds, card)
    assert left == {"experts": 1000}
    assert not memory.stays("token_embd.weight", 4, left, drafts=True)
    assert memory.stays("blk.0.ffn_up_exps.weight", 4, left, drafts=True)
    whole = memory.weights_on_card(kinds, 0, all_experts=True, drafts=True)
    assert whole == kinds
    assert memory.weights_in_memory(kinds, whole) == {}


# Choices


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"card_gb": 6}, ("split", 32_768, 1, 4096)),
        ({"card_gb": 5}, ("split", 16_384, 1, 1024)),
        ({"card_gb": 12}, ("split", 32_768, 1, 4096)),
        ({"card_gb": 22}, ("split", 32_768, 1, 4096)),
        ({"card_gb": 32}, ("gpu", 32_768, 4, 4096)),
        ({"card_gb": 8, "free_gb": 2}, ("cpu", 32_768, 4, 512)),
        ({"card_gb": 8, "free_gb": 7}, ("split", 32_768, 1, 4096)),
        ({}, ("cpu", 32_768, 4, 512)),
    ],
)
def test_choices(sizes: dict[str, float], expected: tuple[str, int, int, int]) -> None:
    """F2: what is chosen where nothing was asked for, machine by machine."""
    plan = plan_for(**sizes)
    assert (plan.placement, plan.context, plan.sequences, plan.batch_tokens) == expected
    assert plan.fits


@pytest.mark.parametrize(("card_gb", "placement"), [(8, "split"), (24, "gpu")])
def test_what_is_asked_for_on_the_card_is_never_the_processor(
    card_gb: float, placement: str
) -> None:
    wishes = Wishes(placement="card")
    assert plan_for(wishes, card_gb=card_gb).placement == placement
    with pytest.raises(MemoryPlanError, match="experts at least"):
        plan_for(wishes, card_gb=2)
    with pytest.raises(MemoryPlanError, match="trunk"):
        make_plan(smollm2(), wishes, here(card_gb=0.5))
    with pytest.raises(SettingError, match="none was found"):
        plan_for(wishes)


def test_a_dense_model() -> None:
    plan = make_plan(smollm2(), AUTO, here(card_gb=2))
    assert (plan.placement, plan.sequences) == ("gpu", 4)
    assert make_plan(smollm2(), AUTO, here(card_gb=0.5)).placement == "cpu"
    with pytest.raises(MemoryPlanError, match="no routed experts"):
        make_plan(smollm2(), Wishes(placement="split"), here(card_gb=2))


def test_without_a_wish_the_card_is_left_alone() -> None:
    plan = plan_for(Wishes(), card_gb=8)
    assert (plan.placement, plan.video) == ("cpu", None)
    assert "placement auto" in plan.table()
    assert "placement" not in plan_for(Wishes()).table()


def test_the_card_with_more_free_memory_is_taken() -> None:
    made = here(card_gb=8)
    other = replace(made.gpus[0], name="other", free_bytes=7 * GB)
    plan = make_plan(header(), AUTO, replace(made, gpus=(other, made.gpus[0])))
    assert plan.video is not None
    assert plan.video.gpu == "a card of 8.0 GB"


def test_a_split_without_memory_for_a_copy_is_mapped_and_not_pinned() -> None:
    plan = plan_for(card_gb=8, total_gb=20)
    assert plan.video is not None
    assert (plan.placement, plan.weights, plan.video.pinned_bytes) == ("split", "map", 0)
    assert (plan.fits, plan.expected) == (False, None)
    assert "as fast as the disk" in plan.table()


def test_pinned_memory_ends_at_its_limit() -> None:
    windows = replace(here(card_gb=8), pin_limit_bytes=16 * GB)
    plan = make_plan(header(), AUTO, windows)
    assert plan.video is not None
    assert plan.video.pinned_bytes == 16 * GB
    assert "16.0 GB pinned" in plan.table()


# Wishes


def test_video_memory_is_bounded_as_asked() -> None:
    wishes = Wishes(placement="split", video_bytes=6 * GB)
    plan = plan_for(wishes, card_gb=24)
    assert plan.video is not None
    assert plan.video_total_bytes <= 6 * GB
    assert plan.placement == "split"


def test_a_bound_of_video_memory_means_the_card() -> None:
    assert LoadFlags(video_bytes=GB).wishes() == {"video_bytes": GB, "backend": "gpu"}
    assert LoadFlags(video_bytes=GB, n_gpu_layers=99).wishes()["backend"] == "gpu"
    with pytest.raises(SettingError, match="--vram does not go with --device cpu"):
        LoadFlags(video_bytes=GB, backend="cpu").wishes()
    assert LoadFlags().wishes() == {}


def test_experts_may_stay() -> None:
    for word, stay in (None, False), ("move", False), ("stay", True):
        video = plan_for(Wishes(placement="split", experts=word), card_gb=8).video
        assert video is not None
        assert video.experts_stay == stay
    with pytest.raises(SettingError, match="experts is 'run'"):
        Wishes(experts="run")


@pytest.mark.parametrize(
    ("wishes", "sizes", "words", "hint"),
    [
        (
            Wishes(placement="gpu"),
            {"card_gb": 8},
            r"at least 2\d\.\d GB.*experts 18\.1 GB",
            "split",
        ),
        (
            Wishes(placement="split", context=262_144),
            {"card_gb": 8},
            r"cache 5\.4 GB.*8\.0 GB can be used",
            r"context of 1\d\d,\d\d\d tokens fits",
        ),
        (
            Wishes(placement="split"),
            {"card_gb": 8, "free_gb": 3},
            r"3\.0 GB can be used .*5\.0 GB are held by others",
            "Close other programs",
        ),
        (Wishes(placement="split", sequences=40), {"card_gb": 8}, r"states 8\.\d GB", ""),
        (Wishes(placement="split", weights="read"), {"card_gb": 8, "total_gb": 16}, "weights", ""),
    ],
)
def test_what_does_not_fit_on_the_card_is_refused_with_numbers(
    wishes: Wishes, sizes: dict[str, float], words: str, hint: str
) -> None:
    with pytest.raises(MemoryPlanError, match=words) as caught:
        plan_for(wishes, **sizes)
    assert re.search(hint, caught.value.hint)


def test_the_context_that_a_refusal_names_does_fit() -> None:
    with pytest.raises(MemoryPlanError) as caught:
        plan_for(Wishes(placement="split", context=262_144, batch=512), card_gb=8)
    found = re.search(r"A context of ([\d,]+) tokens", caught.value.hint)
    assert found
    fitting = int(found[1].replace(",", ""))
    assert plan_for(Wishes(placement="split", context=fitting, batch=512), card_gb=8).fits
    with pytest.raises(MemoryPlanError):
        plan_for(Wishes(placement="split", context=fitting + 1, batch=512), card_gb=8)


def test_a_card_that_is_not_there() -> None:
    for wishes in (Wishes(placement="gpu"), Wishes(placement="auto", video_bytes=GB)):
        with pytest.raises(SettingError, match="none was found"):
            plan_for(wishes)
    with pytest.raises(SettingError, match="placement is 'tpu'"):
        Wishes(placement="tpu")
    with pytest.raises(SettingError, match="video_bytes is 0"):
        Wishes(video_bytes=0)


@settings(max_examples=25)
@given(
    card_gb=st.floats(0.3, 40),
    total_gb=st.floats(4, 64),
    context=st.sampled_from([None, 1, 700, 8192, 100_000, 262_144]),
    sequences=st.sampled_from([None, 1, 3]),
    cache_format=st.sampled_from([None, "q8_0"]),
)
def test_no_plan_exceeds_what_there_is(
    card_gb: float, total_gb: float, context: int | None, sequences: int | None, cache_format: Any
) -> None:
    """F2: a context that was asked for is had, or refused; never silently another."""
    wishes = Wishes(
        placement="auto", context=context, sequences=sequences, cache_format=cache_format
    )
    try:
        plan = plan_for(wishes, card_gb=round(card_gb, 2), total_gb=round(total_gb, 2))
    except MemoryPlanError:
        return
    assert plan.own_bytes <= plan.room_bytes
    assert context in (None, plan.context)
    assert sequences in (None, plan.sequences)
    if plan.video:
        assert plan.fits_card
        assert plan.video.n_slots <= 40 * 256


@pytest.mark.parametrize(
    "sizes", [{}, {"card_gb": 8}, {"card_gb": 24}, {"card_gb": 8, "total_gb": 20}]
)
@pytest.mark.parametrize("cache_format", ["f16", "q8_0"])
def test_the_biggest_context_fits_and_a_page_more_does_not(
    sizes: dict[str, float], cache_format: str
) -> None:
    plan = plan_for(**sizes)
    biggest = plan.contexts[cache_format]
    case = Case(
        header(),
        models.read_config(header().metadata),
        Wishes(cache_format=cache_format),
        here(**sizes),
        (),
    )

    def fits(context: int) -> bool:
        choice = Choice(plan.placement, plan.weights, context, plan.sequences, plan.batch_tokens)
        other = lay_out(case, choice)
        if other.video:
            return other.fits_card
        return other.fits if plan.fits else other.own_bytes <= other.room_bytes

    assert fits(biggest)
    assert biggest == 262_144 or not fits(biggest + 64)


# Speeds


def test_speeds_follow_the_formulas() -> None:
    split = plan_for(card_gb=8)
    assert split.expected is not None
    assert split.video is not None
    share = 0.75 * 256e9
    dense = split.weight_bytes["trunk"] + split.weight_bytes["head"] + 2 * 65_863_680
    routed = 320 * EXPERT
    hits = hit_share(split.video.pool_share)
    missed = (1 - hits) * routed / (0.92 * 50e9)
    seconds = dense / share + max(hits * routed / share, missed) + 40 * 25e-6 + 0.4e-3
    assert split.expected.decode == pytest.approx(1 / seconds)
    at_depth = seconds + 32_768 * 20_480 / share
    assert split.expected.decode_full == pytest.approx(1 / at_depth)
    left = split.weight_bytes["experts"] - split.video.pool_bytes
    by_link = left / (1.969e9 * 8 * 0.84)
    by_products = 4096 * 2 * 2_437e6 / (0.55 * 20e12)
    assert split.expected.prefill == pytest.approx(4096 / max(by_link, by_products), rel=0.002)

    alone = plan_for(Wishes())
    assert alone.expected is not None
    assert alone.expected.decode == pytest.approx(50e9 / (alone.read_bytes_per_token + 131_727_360))
    assert alone.expected.hit_share is None


def test_hits_rise_with_the_share() -> None:
    assert [hit_share(share) for share in (0, 0.066, 0.33, 1)] == [0, 0.41, 0.81, 1]
    rising = [hit_share(i / 100) for i in range(101)]
    assert rising == sorted(rising)


def test_unknown_rates_give_no_speed() -> None:
    silent = replace(here(card_gb=8).gpus[0], read_bytes_per_second=0.0)
    assert make_plan(header(), AUTO, replace(here(), gpus=(silent,))).expected is None
    assert make_plan(header(), Wishes(), replace(here(), speeds=None)).expected is None
    no_link = replace(here(card_gb=8).gpus[0], link_width=0)
    found = make_plan(header(), AUTO, replace(here(), gpus=(no_link,))).expected
    assert found is not None
    assert found.prefill is None


# Another machine


def test_what_is_supposed_replaces_what_is_here() -> None:
    card = Gpu("real", 24 * GB, 20 * GB, (8, 6), 4, 16, 936e9, 35e12, programs=(Program("x", 1),))
    known = replace(machine(20, 64), speeds=SPEEDS, gpus=(card,))
    assert suppose(known, Supposed()) == known
    other = suppose(known, Supposed(8 << 30, 32 * GB, 300e9, 60e9, link_of("3x16")))
    (gpu,) = other.gpus
    assert (gpu.total_bytes, gpu.free_bytes, gpu.programs) == (8 << 30, 8 << 30, ())
    assert (gpu.read_bytes_per_second, gpu.float_ops_per_second) == (300e9, 35e12)
    assert gpu.link_bytes_per_second == pytest.approx(13.2e9, rel=0.01)
    assert (other.memory_bytes, other.available_bytes) == (32 * GB, 29 * GB)
    assert other.speeds == replace(SPEEDS, read_bytes_per_second=60e9)
    faster = suppose(known, Supposed(card_rate=1e12)).gpus[0]
    assert (faster.name, faster.free_bytes) == ("real", 20 * GB)
    with pytest.raises(SettingError, match="no card here"):
        suppose(machine(20), Supposed(link=(4, 8)))


@pytest.mark.parametrize("link", ["4", "x8", "9x8", "4x", "4x8x"])
def test_what_is_no_link(link: str) -> None:
    with pytest.raises(SettingError, match="no PCIe link"):
        link_of(link)


def test_the_command_plans_for_another_machine(
    tiny_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speeds, "measure", lambda *_: SPEEDS)
    path = str(tiny_file("qwen35moe"))

    def octavo(*words: str) -> Any:
        return CliRunner().invoke(app, ["plan", path, *words])

    found = json.loads(octavo("--vram", "8GB", "--ram", "32GB", "--json").stdout)
    assert (found["placement"], found["video"]["total_bytes"]) == ("gpu", 8 * GB)
    shown = octavo("--vram", "8GB", "--placement", "split", "--gpu-bandwidth", "300")
    assert "card 300.0 GB/s (as asked)" in shown.stdout
    assert octavo("--placement", "gpu", "--vram", "0.5GB").exit_code == MemoryPlanError.exit_code
    whole = json.loads(octavo("--vram", "8GB", "-ngl", "99", "-c", "100", "--json").stdout)
    assert (whole["placement"], whole["context"]) == ("gpu", 100)
    alone = json.loads(octavo("--vram", "8GB", "--device", "cpu", "--json").stdout)
    assert (alone["placement"], alone["video"]) == ("cpu", None)
    assert octavo("--device", "tpu").exit_code == SettingError.exit_code
    wrong = octavo("--vram", "lots")
    assert wrong.exit_code == SettingError.exit_code
    assert "is no size" in wrong.stderr
