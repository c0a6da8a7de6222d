"""Measure what a model can do: how well it calls functions.

`octavo eval tools MODEL` asks the single-turn questions of the Berkeley Function Calling
Leaderboard that are marked by comparing calls, and marks by its rules. Each question is asked with
calls held to their schemas while they are written (constrained) and without (unconstrained), on the
same prompt. Further ways are for models that seldom call by themselves: the answer begins with the
opening of a call, and goes on freely (opened) or held to the schemas (required). Answers are
greedy; as many questions are asked at once as --parallel says (4), each in a --ctx-size of 4096.
They come from the package bfcl-eval: pip install "octavo[eval]" and
pip install --no-deps bfcl-eval.

Shown are, in percent of the questions: called (an answer opens a call), readable (all calls could
be read), valid (by their schemas), right. The last line of standard output is JSON.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import Json, LoadFlags, Model, ThinkingFlags
from octavo.errors import NotFoundError
from octavo.evals import bfcl

if TYPE_CHECKING:
    from octavo.chat import Chat
    from octavo.evals.tools import Manner, Marked, Score
    from octavo.session import Session

AT_ONCE = 4  # questions
CONTEXT_TOKENS = 4096  # the longest of the questions' prompts has less than half of it


class Kind(StrEnum):
    """What is measured."""

    tools = "tools"


class WayName(StrEnum):
    """How calls are asked for."""

    unconstrained = "unconstrained"
    constrained = "constrained"
    opened = "opened"
    required = "required"


def main(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="tools: calls of functions.")],
    model: Model,
    load: LoadFlags,
    thinking: ThinkingFlags,
    subset: Annotated[
        list[bfcl.Subset] | None, typer.Option("--subset", help="Questions; again for more. [all]")
    ] = None,
    way: Annotated[
        list[WayName] | None,
        typer.Option("--way", help="Again for more. [unconstrained and constrained]"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Questions of each subset. [all]")
    ] = None,
    seed: Annotated[int, typer.Option("-s", "--seed", help="Draws the questions of --limit.")] = 0,
    max_tokens: Annotated[
        int, typer.Option("-n", "--predict", min=1, help="Most tokens of an answer.")
    ] = 512,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder `data` of bfcl-eval. [that of the package]"),
    ] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", help="Write every answer here, as JSON lines.")
    ] = None,
    json_output: Json = False,
) -> None:
    """The command."""
    from octavo.evals import tools
    from octavo.types import SamplingParams

    _need_validator()
    folder = data or bfcl.find_folder()
    cases = [c for name in subset or bfcl.Subset for c in bfcl.read(folder, name, limit, seed)]
    ways = [item.value for item in way or (WayName.unconstrained, WayName.constrained)]
    wishes = {"sequences": AT_ONCE, "context": CONTEXT_TOKENS} | load.wishes()
    manner = tools.Manner(
        SamplingParams(max_tokens=max_tokens, temperature=0, seed=seed),
        thinking.think,
        thinking.think_budget,
        wishes["sequences"],
    )
    with screen.loaded(model, wishes) as session, _opened(answers) as file:
        started = time.perf_counter()
        chat, is_told = _chat(session)
        scores = _run(chat, cases, ways, manner, file)
        seconds = time.perf_counter() - started
    if not json_output:
        screen.write(_table(scores))
    told = "system message" if is_told else "template"
    rows = [{"subset": key[0], "way": key[1], **_figures(s)} for key, s in scores.items()]
    figures = {"model": model, "tools_in": told, "max_tokens": max_tokens, "limit": limit}
    screen.emit({**figures, "seed": seed, "seconds": round(seconds, 1), "results": rows})


def _need_validator() -> None:
    if find_spec("jsonschema") is None:
        raise NotFoundError(
            "The package jsonschema, which checks calls, is not installed",
            'Install it with: pip install "octavo[eval]"',
        )


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise NotFoundError(
            f"{path} cannot be written: {error}", "Choose another place."
        ) from error
    with file:
        yield file


def _chat(session: Session) -> tuple[Chat, bool]:
    """(the session's own way to an answer, whether tools had to be put into a system message)."""
    from octavo.chat import Chat
    from octavo.evals.shown import with_tools

    own = session.template
    template = own and with_tools(own, session.tokenizer)
    if template is not own:
        screen.note(
            "The model's chat template has no place for tools: a system message declares them."
        )
    return Chat(session.engine, session.tokenizer, template), template is not own


def _run(
    chat: Chat, cases: list[bfcl.Case], ways: list[Any], manner: Manner, file: TextIO | None
) -> dict[tuple[str, str], Score]:
    """(subset, way) -> its counts."""
    from octavo.evals.tools import Score, as_row, ask_all

    scores = {(case.subset, way): Score() for case in cases for way in ways}
    with screen.progress("asking", unit="answers") as advance:
        marked: Marked
        for done, marked in enumerate(ask_all(chat, cases, ways, manner), 1):
            scores[marked.case.subset, marked.way].add(marked)
            if file is not None:
                file.write(json.dumps(as_row(marked), ensure_ascii=False) + "\n")
                file.flush()
            advance(done, len(cases) * len(ways))
    return scores


def _figures(score: Score) -> dict[str, Any]:
    return {
        "questions": score.n,
        "called": score.called,
        "readable": score.readable,
        "valid": score.valid,
        "right": score.right,
        "cut": score.cut,
        "tokens": score.tokens,
        "faults": dict(score.faults.most_common()),
    }


def _table(scores: dict[tuple[str, str], Score]) -> str:
    head = ("subset", "way", "questions", "called", "readable", "valid", "right")
    lines = [_row(*head)]
    for (subset, way), s in scores.items():
        shares = (f"{100 * n / s.n:.1f}" for n in (s.called, s.readable, s.valid, s.right))
        lines.append(_row(subset, way, str(s.n), *shares))
    return "".join(lines)


def _row(subset: str, way: str, *numbers: str) -> str:
    return f"{subset:18} {way:14}" + "".join(f"{n:>10}" for n in numbers) + "\n"
