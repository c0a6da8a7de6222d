"""Show what a model would take of this computer, before anything is loaded.

Which weights are copied or mapped, which context fits, how many bytes each part takes, how fast
it will be, and why. With --vram or --ram it plans for another computer; what is not said of that
one is taken from this one. The first plan measures this computer, which takes about a second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import Json, Model, WishFlags, byte_size
from octavo.errors import SettingError
from octavo.record import dataclass

if TYPE_CHECKING:
    from octavo.plan.suppose import Supposed
    from octavo.plan.wishes import Wishes


@dataclass
class MachineFlags:
    """Where the model would run."""

    placement: Annotated[
        str | None,
        typer.Option(
            "--placement",
            help="cpu; gpu: all on the card; split: experts in memory; auto: the best that fits.",
        ),
    ] = None
    vram: Annotated[
        int | None,
        typer.Option(
            "--vram", parser=byte_size, metavar="SIZE", help="A card with that much memory: 8GB."
        ),
    ] = None
    ram: Annotated[
        int | None,
        typer.Option(
            "--ram", parser=byte_size, metavar="SIZE", help="A computer with that much: 32GB."
        ),
    ] = None
    gpu_bandwidth: Annotated[
        float | None, typer.Option("--gpu-bandwidth", min=1, help="Of the card's memory, GB/s.")
    ] = None
    memory_bandwidth: Annotated[
        float | None, typer.Option("--memory-bandwidth", min=1, help="Of main memory, GB/s.")
    ] = None
    link: Annotated[
        str | None, typer.Option("--link", help="PCIe generation and lanes of the card: 4x8.")
    ] = None

    def supposed(self) -> Supposed:
        """What differs from this machine.

        Raises:
            SettingError: the link is none.
        """
        from octavo.plan.suppose import Supposed, link_of

        return Supposed(
            video_bytes=self.vram,
            memory_bytes=self.ram,
            card_rate=self.gpu_bandwidth * 1e9 if self.gpu_bandwidth else None,
            memory_rate=self.memory_bandwidth * 1e9 if self.memory_bandwidth else None,
            link=link_of(self.link) if self.link else None,
        )


def main(
    load: WishFlags,
    machine: MachineFlags,
    model: Model,
    json_output: Json = False,
) -> None:
    """The command."""
    from octavo.gguf.reader import open_gguf
    from octavo.hub.local import find_local
    from octavo.plan.hardware import fast_formats, probe
    from octavo.plan.planner import make_plan
    from octavo.plan.suppose import suppose
    from octavo.plan.thinking import thinking
    from octavo.settings import Settings

    supposed, wishes = machine.supposed(), _wishes(load, machine)
    with open_gguf(find_local(model, Settings.from_environment())) as file:
        hardware = suppose(probe(measure=True), supposed)
        plan = make_plan(file, wishes, hardware, fast_formats())
        plan = replace(plan, thinking=thinking(file, plan))
    if json_output:
        screen.emit(plan.as_dict())
    else:
        screen.write(f"{plan.table()}\n")


def _wishes(load: WishFlags, machine: MachineFlags) -> Wishes:
    """Those of `octavo run` with the same flags, but for the placement if that is asked for."""
    from octavo.plan.wishes import Wishes

    given = load.wishes()
    device = given.pop("backend", None)
    if device not in _PLACEMENTS:
        raise SettingError(f"There is no device {device!r}", "Use cpu or gpu.")
    draft: dict[str, Any] = {"draft_tokens": 0} if given.pop("speculate", "") == "off" else {}
    for name in ("cache_dir", "cache_dir_bytes"):  # on the disk, not in memory
        given.pop(name, None)
    by_default = "auto" if machine.vram else None
    return Wishes(
        **given, **draft, placement=machine.placement or _PLACEMENTS[device] or by_default
    )


_PLACEMENTS = {None: None, "cpu": "cpu", "reference": "cpu", "gpu": "card"}
