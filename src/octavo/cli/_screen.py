"""What commands show: answers on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import typer

from octavo.types import Usage

if TYPE_CHECKING:
    from rich.progress import Progress

    from octavo.chat import Answer, Event
    from octavo.session import Session

Advance = Callable[[int, int], None]  # (done, total)
BAR_DELAY_SECONDS = 0.5
CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {ord("\n"), ord("\t")}, "\ufffd")
STOPPED_THINKING = "The model stopped while it was thinking: there is no answer."


def emit(value: Any) -> None:
    """One line of JSON on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def write(text: str) -> None:
    """Part of an answer, at once. A terminal gets no control characters: they are commands."""
    sys.stdout.write(text.translate(CONTROLS) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def note(text: str) -> None:
    """A remark: dim, on standard error."""
    typer.secho(text, err=True, dim=True)


def show(events: Iterable[Event]) -> None:
    """An answer as it comes: content on standard output, thinking dim on standard error."""
    from octavo.text.split import Content, Reasoning

    is_thinking = False
    for event in events:
        if isinstance(event, Reasoning):
            is_thinking = True
            typer.secho(event.text.translate(CONTROLS), nl=False, err=True, dim=True)
        elif isinstance(event, Content):
            if is_thinking:
                is_thinking = False
                typer.echo(err=True)
            write(event.text)
    write("\n")


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer for programs."""
    return {
        "content": answer.content,
        "reasoning": answer.reasoning,
        "finish_reason": answer.finish_reason,
        "stopped_thinking": answer.stopped_thinking,
        "timings": timings(answer.usage),
    }


@contextlib.contextmanager
def loaded(model: str, wishes: dict[str, Any]) -> Iterator[Session]:
    """The model, loaded with a progress bar and closed at the end of the block."""
    from octavo.loading import load, locate

    with progress(f"fetching {model}") as advance:
        path = locate(model, FileSum(advance))
    with progress("loading") as advance:
        session = load(path, progress=advance, **wishes)
    with session:
        if slow := session.plan.slow_formats:
            note(f"Without a fast kernel here, so slow: {', '.join(slow)}")
        yield session


class FileSum:
    """Adds up the files of a model, which several threads fetch at once, for one bar."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._lock = threading.Lock()
        self._files: dict[str, tuple[int, int]] = {}

    def __call__(self, file: str, done_bytes: int, total_bytes: int | None) -> None:
        with self._lock:
            self._files[file] = (done_bytes, total_bytes or done_bytes)
            done, total = (sum(column) for column in zip(*self._files.values(), strict=True))
            self._advance(done, total)


@contextlib.contextmanager
def progress(title: str, unit: str = "bytes") -> Iterator[Advance]:
    """A bar on standard error while the block runs; nothing where that is no terminal.

    `unit` "bytes" shows sizes and speed; another unit shows counts. What is done at once gets no
    bar, and does not wait for the import of one.
    """
    bar = _Bar(title, unit)
    try:
        yield bar if sys.stderr.isatty() else _ignore
    finally:
        bar.close()


def _ignore(done: int, total: int) -> None:
    """No bar."""


class _Bar:
    """A progress bar that appears after a moment. Called by one thread at a time."""

    def __init__(self, title: str, unit: str) -> None:
        self._title = title
        self._unit = unit
        self._begin = time.perf_counter()
        self._bar: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None:
            if time.perf_counter() - self._begin < BAR_DELAY_SECONDS:
                return
            self._bar = self._make()
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _make(self) -> Progress:
        from rich import progress as rich_progress
        from rich.console import Console

        is_bytes = self._unit == "bytes"
        counts = [rich_progress.MofNCompleteColumn()]
        sizes = [rich_progress.DownloadColumn(), rich_progress.TransferSpeedColumn()]
        bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            *(sizes if is_bytes else counts),
            rich_progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.add_task(self._title, total=None)
        return bar


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
