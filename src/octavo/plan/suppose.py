"""Another machine than this one, for plans before buying or before moving a file there."""

from __future__ import annotations

import re
from dataclasses import replace

from octavo.errors import SettingError
from octavo.plan import memory
from octavo.plan.gpus import Gpu
from octavo.plan.hardware import Hardware
from octavo.plan.speeds import Speeds
from octavo.record import dataclass

# What the system and its programs hold of another machine's memory: a Windows desktop, idle.
_SYSTEM_BYTES = 3 * 10**9
# Where there is no card to take rates from: those that the makers state for a usual one of 8 GB.
_USUAL = Gpu(
    name="",
    total_bytes=0,
    free_bytes=0,
    capability=(8, 9),
    link_generation=4,
    link_width=8,
    read_bytes_per_second=256e9,
    float_ops_per_second=20e12,
    rates_origin="of an RTX 4070 Laptop",
)


@dataclass(frozen=True)
class Supposed:
    """What is said of the other machine; None: as here. Rates in bytes a second."""

    video_bytes: int | None = None
    memory_bytes: int | None = None
    card_rate: float | None = None
    memory_rate: float | None = None
    link: tuple[int, int] | None = None  # PCIe generation and lanes


def link_of(words: str) -> tuple[int, int]:
    """PCIe generation and lanes from "4x8".

    Raises:
        SettingError: it is no link.
    """
    found = re.fullmatch(r"([1-6])x(\d+)", words)
    if not found:
        raise SettingError(f"{words!r} is no PCIe link", "Write generation and lanes: 4x8.")
    return int(found[1]), int(found[2])


def suppose(here: Hardware, supposed: Supposed) -> Hardware:
    """This machine with what is said of the other one in its place.

    Raises:
        SettingError: rates of a card are given, but neither a card nor its memory.
    """
    changed = here
    if supposed.memory_bytes:
        total = supposed.memory_bytes
        changed = replace(
            changed,
            memory_bytes=total,
            available_bytes=total - min(_SYSTEM_BYTES, total // 4),
            pin_limit_bytes=total // 2 if here.pin_limit_bytes else None,
            speeds_origin=f"{here.speeds_origin} here",
        )
    if supposed.memory_rate:
        known = here.speeds or Speeds(0.0, 0.0, 0.0, 0.0)
        speeds = replace(known, read_bytes_per_second=supposed.memory_rate)
        changed = replace(changed, speeds=speeds, speeds_origin="as asked")
    if supposed.video_bytes or supposed.card_rate or supposed.link:
        changed = replace(changed, gpus=(_card(here, supposed),))
    return changed


def _card(here: Hardware, supposed: Supposed) -> Gpu:
    """One card that is all ours, with the rates of the one that is here."""
    card = max(here.gpus, key=lambda gpu: gpu.free_bytes, default=None)
    if supposed.video_bytes:
        n_bytes = supposed.video_bytes
        name = f"a card of {memory.text(n_bytes)}"
        card = replace(
            card or _USUAL, name=name, total_bytes=n_bytes, free_bytes=n_bytes, programs=()
        )
    if card is None:
        raise SettingError("There is no card here to give rates to", "Say its memory: --vram 8GB.")
    if supposed.card_rate:
        card = replace(card, read_bytes_per_second=supposed.card_rate, rates_origin="as asked")
    if supposed.link:
        generation, width = supposed.link
        card = replace(card, link_generation=generation, link_width=width)
    return card
