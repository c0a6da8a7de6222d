"""What commands show: answers on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import typer

from octavo.types import Usage

Advance = Callable[[int, int], None]  # (done, total)


def emit(value: Any) -> None:
    """One line of JSON on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def write(text: str) -> None:
    """Part of an answer, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """A remark: dim, on standard error."""
    typer.secho(text, err=True, dim=True)


@contextlib.contextmanager
def progress(title: str, unit: str = "bytes") -> Iterator[Advance]:
    """A bar on standard error while the block runs; nothing where that is no terminal.

    `unit` "bytes" shows sizes and speed; another unit shows counts.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        (DownloadColumn(), TransferSpeedColumn()) if unit == "bytes" else (MofNCompleteColumn(),)
    )
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def rate(n_tokens: int, seconds: float) -> float:
    """Tokens a second; 0 where nothing was measured."""
    return n_tokens / seconds if seconds > 0 else 0.0


def timings(usage: Usage) -> dict[str, float | int]:
    """The figures of one request by name, for `--json`."""
    computed = usage.prompt_tokens - usage.cached_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens_per_second": round(rate(computed, usage.prompt_seconds), 2),
        "generation_tokens_per_second": round(generation_rate(usage), 2),
        "first_token_seconds": round(usage.first_token_seconds, 4),
        "drafted_tokens": usage.drafted_tokens,
        "accepted_tokens": usage.accepted_tokens,
    }


def generation_rate(usage: Usage) -> float:
    """Tokens a second after the first one."""
    return rate(usage.completion_tokens - 1, usage.generation_seconds)


def summary(usage: Usage) -> str:
    """One line about the speed of a request."""
    computed = usage.prompt_tokens - usage.cached_tokens
    parts = [
        f"prompt {computed} tokens at {rate(computed, usage.prompt_seconds):.1f} tok/s",
        f"generation {usage.completion_tokens} tokens at {generation_rate(usage):.1f} tok/s",
        f"first token after {usage.first_token_seconds:.2f} s",
    ]
    if usage.cached_tokens:
        parts.insert(1, f"{usage.cached_tokens} from the cache")
    if usage.drafted_tokens:
        parts.append(f"{usage.accepted_tokens} of {usage.drafted_tokens} drafts accepted")
    return " | ".join(parts)
