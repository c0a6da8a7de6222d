"""Flags that several commands share, each once, with the names that llama.cpp gave them.

A parameter typed with a dataclass from here stands for one flag a field (`cli/_expand.py`).
Annotations are objects at once here, not texts: typer reads each several times.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.errors import SettingError
from octavo.record import dataclass
from octavo.types import GrammarSpec, SamplingParams

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def byte_size(text: str) -> int:
    """Bytes of a size like 20000000, "500 MB", 8G or 8GiB.

    Raises:
        typer.BadParameter: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", str(text).strip().lower())
    if not found:
        raise typer.BadParameter(f"{text!r} is no size; use one like 500MB, 8GB or 8GiB")
    number, unit, is_binary = found.groups()
    return int(float(number) * (_BINARY if is_binary else _UNITS)[unit])


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Alias, path or repository of the model.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
DEVICE_HELP = "Where to compute: cpu, or gpu (of the model as much as the graphics card holds)."
VRAM_HELP = "Most video memory to use: 8GB. Means --device gpu."
ALL_LAYERS = 99  # of llama.cpp's -ngl: this many and more, or less than none, mean every layer


@dataclass
class WishFlags:
    """The wishes that a plan gets."""

    threads: Annotated[
        int | None,
        typer.Option("-t", "--threads", min=1, help="Worker threads.  [default: physical cores]"),
    ] = None
    context: Annotated[
        int | None,
        typer.Option("-c", "--ctx-size", min=1, help="Context in tokens.  [default: as planned]"),
    ] = None
    sequences: Annotated[
        int | None,
        typer.Option("-np", "--parallel", min=1, help="Sequences at once, each with its context."),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option("-b", "--batch-size", min=1, help="Most prompt tokens of one step."),
    ] = None
    cache_format: Annotated[
        str | None, typer.Option("--cache-format", help="Format of the cache: f16, q8_0 ...")
    ] = None
    weights: Annotated[
        str | None,
        typer.Option("--weights", help="read: into own memory; map: leave them in the file."),
    ] = None
    backend: Annotated[str | None, typer.Option("--device", help=DEVICE_HELP)] = None
    n_gpu_layers: Annotated[
        int | None,
        typer.Option("-ngl", "--n-gpu-layers", help="0: --device cpu; 99 or -1: --device gpu."),
    ] = None
    speculate: Annotated[
        str | None,
        typer.Option(
            "--speculate",
            help="Guess ahead: mtp (the file's own head), lookup (in the text), auto, off.",
        ),
    ] = None

    cache_dir: Annotated[
        Path | None,
        typer.Option("--cache-dir", help="Folder where computed prompts outlive the program."),
    ] = None
    cache_dir_bytes: Annotated[
        int | None,
        typer.Option(
            "--cache-dir-bytes", parser=byte_size, metavar="SIZE", help="Most it takes: 8GB."
        ),
    ] = None

    def wishes(self) -> dict[str, Any]:
        """The flags that were given, by the names that `octavo.load` knows."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        n_layers = given.pop("n_gpu_layers")
        if n_layers is not None and given["backend"] is None:
            given["backend"] = _device_of(n_layers)
        return {name: value for name, value in given.items() if value is not None}


@dataclass
class LoadFlags(WishFlags):
    """How the model is loaded."""

    video_bytes: Annotated[
        int | None, typer.Option("--vram", parser=byte_size, metavar="SIZE", help=VRAM_HELP)
    ] = None
    experts: Annotated[
        str | None,
        typer.Option(
            "--experts",
            help="Those on the card: move, with what is asked for; stay, for equal answers.",
        ),
    ] = None

    def wishes(self) -> dict[str, Any]:
        """As of `WishFlags`."""
        return with_card(WishFlags.wishes(self))


def with_card(wishes: dict[str, Any]) -> dict[str, Any]:
    """The wishes, with the device that a bound of video memory means.

    Raises:
        SettingError: another device was asked for.
    """
    if wishes.get("video_bytes") and wishes.setdefault("backend", "gpu") != "gpu":
        raise SettingError(
            f"--vram does not go with --device {wishes['backend']}", "Leave one of them out."
        )
    return wishes


def _device_of(n_gpu_layers: int) -> str:
    """What llama.cpp's number of layers on the card means here.

    Raises:
        SettingError: a part of the layers.
    """
    if 0 < n_gpu_layers < ALL_LAYERS:
        raise SettingError(
            f"-ngl {n_gpu_layers} would put a part of the layers on the graphics card",
            "Octavo puts all of them there or none: use 99 or 0.",
        )
    return "cpu" if n_gpu_layers == 0 else "gpu"


def _option(name: str, text: str, *more: str) -> Any:
    return typer.Option(name, *more, help=text)


_Schema = typer.Option(
    "--json-schema", exists=True, dir_okay=False, help="File: the answer matches this JSON schema."
)


@dataclass
class SamplingFlags:
    """How the next token is chosen. The defaults are those of `SamplingParams`."""

    max_tokens: Annotated[
        int, typer.Option("-n", "--predict", help="Most tokens to generate; -1: no limit.")
    ] = SamplingParams.max_tokens
    temperature: Annotated[float, _option("--temp", "Randomness; 0: always the likeliest.")] = (
        SamplingParams.temperature
    )
    top_k: Annotated[int, _option("--top-k", "Keep the k likeliest; 0: all.")] = (
        SamplingParams.top_k
    )
    top_p: Annotated[float, _option("--top-p", "Keep the likeliest that reach p; 1: all.")] = (
        SamplingParams.top_p
    )
    min_p: Annotated[
        float, _option("--min-p", "Keep those p times as likely as the likeliest; 0: all.")
    ] = SamplingParams.min_p
    typical_p: Annotated[
        float, _option("--typical", "Keep the most typical that reach p; 1: all.")
    ] = SamplingParams.typical_p
    repeat_penalty: Annotated[float, _option("--repeat-penalty", "Of repeated tokens; 1: off.")] = (
        SamplingParams.repeat_penalty
    )
    repeat_last_n: Annotated[
        int, _option("--repeat-last-n", "Tokens that penalties look back; -1: all.")
    ] = SamplingParams.repeat_last_n
    presence_penalty: Annotated[
        float, _option("--presence-penalty", "Once for a token that occurred.")
    ] = SamplingParams.presence_penalty
    frequency_penalty: Annotated[
        float, _option("--frequency-penalty", "For each time a token occurred.")
    ] = SamplingParams.frequency_penalty
    dry_multiplier: Annotated[
        float, _option("--dry-multiplier", "Strength against repeated sequences; 0: off.")
    ] = SamplingParams.dry_multiplier
    dry_base: Annotated[
        float, _option("--dry-base", "Growth of it for each further repeated token.")
    ] = SamplingParams.dry_base
    dry_allowed_length: Annotated[
        int, _option("--dry-allowed-length", "Repeats up to this length are free.")
    ] = SamplingParams.dry_allowed_length
    dry_last_n: Annotated[
        int, _option("--dry-penalty-last-n", "Tokens that DRY looks back; -1: all.")
    ] = SamplingParams.dry_last_n
    seed: Annotated[int | None, typer.Option("-s", "--seed", help="Same seed, same answer.")] = None
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on where the model would stop.")
    ] = False
    json_schema: Annotated[Path | None, _Schema] = None

    def params(self) -> SamplingParams:
        """As the engine takes them.

        Raises:
            RequestError: a value is outside its range.
        """
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        schema = own.pop("json_schema")
        text = schema.read_text(encoding="utf-8") if schema else ""
        grammar = GrammarSpec("json_schema", text) if schema else None
        return SamplingParams(**own, grammar=grammar)


@dataclass
class ThinkingFlags:
    """Whether and how long the model thinks before it answers."""

    think: Annotated[
        bool | None,
        typer.Option(
            "--think/--no-think", help="Thinking on or off.  [default: as the model does]"
        ),
    ] = None
    think_budget: Annotated[
        int | None,
        typer.Option("--think-budget", min=0, help="Most tokens of thinking; then it answers."),
    ] = None


def whole_numbers(flag: str, text: str, low: int = 0) -> list[int]:
    """The numbers of a list like "512,2048".

    Raises:
        SettingError: something else stands there.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= low for part in parts):
        raise SettingError(f"{flag} is {text!r}", f"Use whole numbers from {low}: 512,2048.")
    return [int(part) for part in parts]
