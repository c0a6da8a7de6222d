"""Measure speed: reading a prompt (pp) and generating (tg), at several depths of context.

Each test runs through the engine, as a request does, on random tokens; what lies before the
depth is taken from the cache. "tg64x8" are eight sequences at once, their speeds together. Shown
are medians. The last line of standard output is JSON: the
tests with their single runs, and for tg the bytes that a token reads and the speed of memory that
follows from it.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Iterator
from copy import copy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from octavo.cli import _screen as screen
from octavo.cli._options import (
    DEVICE_HELP,
    VRAM_HELP,
    Json,
    Model,
    byte_size,
    whole_numbers,
    with_card,
)
from octavo.errors import SettingError
from octavo.record import dataclass
from octavo.types import SamplingParams, Usage

if TYPE_CHECKING:
    from octavo.session import Session

PROFILE_HELP = "On a card: where the time of a generated token goes."


@dataclass(frozen=True)
class Case:
    """One test: `n_tokens` of prompt ("pp") or answer ("tg") behind `depth` tokens.

    `at_once` answers are made together.
    """

    kind: str
    n_tokens: int
    depth: int
    at_once: int = 1

    @property
    def name(self) -> str:
        together = f"x{self.at_once}" if self.at_once > 1 else ""
        behind = f"@{self.depth}" if self.depth else ""
        return f"{self.kind}{self.n_tokens}{together}{behind}"


@dataclass(frozen=True)
class Measured:
    """The runs of one case, tokens a second."""

    test: str
    threads: int
    cache_format: str
    tokens_per_second: float  # median
    runs: list[float]
    # tg of one sequence: weights used, cache at this depth, recurrent states.
    bytes_per_token: int | None
    gigabytes_per_second: float | None
    profile: Profile | None = None


@dataclass(frozen=True)
class Profile:
    """Where the milliseconds of one generated token went, on a card."""

    # With experts in two places, on the thread that runs steps; `experts` are those computed there.
    waiting_ms: float
    experts_ms: float
    experts: float
    kernels: list[tuple[str, float, float]]  # name, launches, milliseconds; beside each other


def main(
    model: Model,
    prompt: Annotated[str, typer.Option("-p", "--prompt", help="Tokens of pp tests.")] = "512",
    generate: Annotated[str, typer.Option("-n", "--predict", help="Tokens of tg tests.")] = "128",
    depth: Annotated[str, typer.Option("-d", "--depth", help="Tokens before.")] = "0",
    parallel: Annotated[
        str, typer.Option("-np", "--parallel", help="Sequences at once of tg tests.")
    ] = "1",
    threads: Annotated[
        str, typer.Option("-t", "--threads", help="Worker threads; 0: physical cores.")
    ] = "0",
    cache_format: Annotated[
        str, typer.Option("--cache-format", help="Formats of the cache: f16,q8_0.")
    ] = "f16",
    batch: Annotated[
        int | None, typer.Option("-b", "--batch-size", min=1, help="Most tokens of one step.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help=DEVICE_HELP)] = None,
    vram: Annotated[
        int | None, typer.Option("--vram", parser=byte_size, metavar="SIZE", help=VRAM_HELP)
    ] = None,
    repetitions: Annotated[int, typer.Option("-r", "--repetitions", min=1, help="Runs.")] = 3,
    profile: Annotated[bool, typer.Option("--profile", help=PROFILE_HELP)] = False,
    json_output: Json = False,
) -> None:
    """The command."""
    cases = list(_cases(prompt, generate, depth, parallel))
    most = max(case.at_once for case in cases)
    # A run has a token before those that count, and one after them.
    context = max(case.depth + case.n_tokens for case in cases) + 2
    results: list[Measured] = []
    for n_threads, format in itertools.product(
        whole_numbers("--threads", threads), cache_format.split(",")
    ):
        wishes: dict[str, Any] = {"context": context, "sequences": most, "speculate": "off"}
        wishes |= {"cache_format": format} | ({"threads": n_threads} if n_threads else {})
        wishes |= {"backend": device} if device else {}
        wishes |= {"batch": batch} if batch else {}
        wishes |= {"video_bytes": vram} if vram else {}
        with screen.loaded(model, with_card(wishes)) as session:
            if profile and session.plan.placement == "cpu":
                raise SettingError("--profile is about cards", "Use it with --device gpu.")
            if session.residents is not None:
                session.residents.wait()  # copies are slower until then
            for case in cases:
                measured = _measure(session, case, repetitions)
                if profile and case.kind == "tg":
                    measured = replace(measured, profile=_profile(session, case))
                results.append(measured)
                if not json_output:
                    screen.write(_table_lines(measured, with_head=len(results) == 1))
    screen.emit({"model": model, "results": [asdict(result) for result in results]})


def _cases(prompt: str, generate: str, depth: str, parallel: str) -> Iterator[Case]:
    at_once = whole_numbers("--parallel", parallel)
    if not all(at_once):
        raise SettingError("--parallel 0 is no sequence", "Use 1 or more: --parallel 1,8.")
    for d in whole_numbers("--depth", depth):
        for n in filter(None, whole_numbers("--prompt", prompt)):
            yield Case("pp", n, d)
        for n in filter(None, whole_numbers("--predict", generate)):
            yield from (Case("tg", n, d, k) for k in at_once)


def _measure(session: Session, case: Case, repetitions: int) -> Measured:
    random = np.random.default_rng(0)
    before = random.integers(0, session.n_vocab, case.depth).tolist()
    _ask(session, [[*before, 0]], 1, case.depth)  # not counted: fills the cache, warms everything
    runs = []
    for _ in range(repetitions):
        if case.kind == "pp":
            own = random.integers(0, session.n_vocab, case.n_tokens).tolist()
            (usage,) = _ask(session, [before + own], 1, case.depth)
            computed = usage.prompt_tokens - usage.cached_tokens
            runs.append(screen.rate(computed, usage.prompt_seconds))
        else:
            prompts = [[*before, i] for i in range(case.at_once)]
            usages = _ask(session, prompts, case.n_tokens + 1, case.depth)
            runs.append(sum(map(screen.generation_rate, usages)))
    speed = statistics.median(runs)
    n_bytes = None
    if case.kind == "tg" and case.at_once == 1:
        n_bytes = session.bytes_per_token(case.depth + case.n_tokens // 2)
    return Measured(
        test=case.name,
        threads=session.plan.threads,
        cache_format=session.plan.cache_format,
        tokens_per_second=round(speed, 2),
        runs=[round(run, 2) for run in runs],
        bytes_per_token=n_bytes,
        gigabytes_per_second=round(speed * n_bytes / 1e9, 2) if n_bytes else None,
    )


def _profile(session: Session, case: Case) -> Profile:
    """Two more runs: one for the processor's times, one for the kernels, which slows it down."""
    from octavo.ops.gpu import profiled

    prompts = [[0] * case.depth + [i] for i in range(case.at_once)]
    n_steps = case.n_tokens + 1
    waiting = computing = experts = 0.0
    if session.residents is not None:
        before = copy(session.residents.store.spent)
        _ask(session, prompts, n_steps, case.depth)
        spent = session.residents.store.spent
        waiting = spent.waiting_seconds - before.waiting_seconds
        computing = spent.computing_seconds - before.computing_seconds
        experts = spent.n_experts - before.n_experts
    with profiled() as kernels:
        _ask(session, prompts, n_steps, case.depth)
    return Profile(
        waiting_ms=round(1e3 * waiting / n_steps, 3),
        experts_ms=round(1e3 * computing / n_steps, 3),
        experts=round(experts / n_steps, 1),
        kernels=[(k.name, k.n_launches / n_steps, 1e3 * k.seconds / n_steps) for k in kernels],
    )


def _ask(session: Session, prompts: list[list[int]], n_tokens: int, depth: int) -> list[Usage]:
    params = SamplingParams(max_tokens=n_tokens, temperature=0, ignore_eos=True, seed=0)
    marks = (depth,) if depth else ()
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(session.engine.submit(ids, params, marks=marks)) for ids in prompts
        ]
        n_made = min([len(stream.ids()) for stream in streams])
    if n_made < n_tokens:
        raise SettingError(
            f"Only {n_made} of {n_tokens} tokens fit behind {depth}", "Use a smaller depth."
        )
    return [stream.usage for stream in streams]


def _table_lines(measured: Measured, with_head: bool) -> str:
    memory = measured.gigabytes_per_second
    head = _row("test", "threads", "cache", "tok/s", "GB/s") if with_head else ""
    row = _row(
        measured.test,
        str(measured.threads),
        measured.cache_format,
        f"{measured.tokens_per_second:.2f}",
        f"{memory:.2f}" if memory is not None else "",
    )
    return head + row + ("" if measured.profile is None else _profile_lines(measured.profile))


def _profile_lines(profile: Profile) -> str:
    lines = []
    if profile.waiting_ms or profile.experts_ms:
        lines.append(f"{profile.waiting_ms:8.3f} ms  waiting for the card")
        lines.append(f"{profile.experts_ms:8.3f} ms  {profile.experts:.1f} experts here")
    for name, n_launches, ms in profile.kernels:
        lines.append(f"{ms:8.3f} ms  on the card, {n_launches:.1f} x {name[:60]}")
    return "".join(f"  {line}\n" for line in lines)


def _row(test: str, threads: str, cache: str, speed: str, memory: str) -> str:
    return f"{test:16} {threads:>7} {cache:>6} {speed:>10} {memory:>8}\n"
