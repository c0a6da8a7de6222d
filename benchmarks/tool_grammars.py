"""What grammars of calls cost and forbid: `python benchmarks/tool_grammars.py MODEL.gguf`.

Of the file only the vocabulary counts. The calls are the right answers to the questions of the
Berkeley leaderboard (package bfcl-eval), without and with optional arguments, written in each
dialect and read token by token. For each dialect: the answers that the grammar does not let
through; and in milliseconds the start of a grammar that was not compiled before, the mask of a
token, and taking a token. Times are this thread's own, so that other work on the machine counts
less. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from octavo.engine.grammar import compile_grammar
from octavo.errors import OctavoError
from octavo.evals import bfcl
from octavo.gguf.reader import open_gguf
from octavo.text.calling import Calling
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import ChatRequest, GrammarSpec, ToolChoice
from tool_texts import TEMPLATES, written

TEMPLATE = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}{# DIALECT #}"
NOT_IN_TEXT = "<|call|>"  # harmony's end is a stop token


class Clock:
    """Milliseconds of this thread, by what was done."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {"compile": [], "mask": [], "accept": []}

    def run(self, name: str, action: Callable[[], Any]) -> Any:
        start = time.thread_time_ns()
        result = action()
        self.spent[name].append((time.thread_time_ns() - start) / 1e6)
        return result

    def figures(self) -> dict[str, dict[str, float]]:
        return {name: _summary(np.array(values)) for name, values in self.spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--limit", type=int, help="questions of each subset")
    parser.add_argument("--dialects", default=",".join(TEMPLATES))
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    folder = given.data or bfcl.find_folder()
    cases = [c for name in bfcl.Subset for c in bfcl.read(folder, name, given.limit)]
    with open_gguf(given.model) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    results = []
    for dialect in given.dialects.split(","):
        results.append(_measure(dialect, tokenizer, cases))
        print(results[-1], flush=True)
    print(json.dumps({"vocabulary": tokenizer.vocab_size, "results": results}))


def _measure(dialect: str, tokenizer: Tokenizer, cases: list[bfcl.Case]) -> dict[str, Any]:
    template = Template(TEMPLATE.replace("DIALECT", TEMPLATES[dialect]), tokenizer)
    clock, forbidden = Clock(), []
    for case in cases:
        request = ChatRequest(case.messages, tools=case.tools, tool_choice=ToolChoice("required"))
        calling = Calling.of(request, template, tokenizer)
        spec = calling and calling.grammar(None, False)
        assert spec is not None
        clock.run("compile", lambda spec=spec: compile_grammar(spec, tokenizer))
        for optional in (False, True):
            text = written(dialect, _right_calls(case, optional)).removesuffix(NOT_IN_TEXT)
            ids = tokenizer.encode(text, parse_special=True)
            if not _is_let_through(spec, ids, tokenizer, clock):
                forbidden.append(f"{case.id}{' with optional arguments' * optional}")
    counts = {"answers": len(cases), "forbidden": forbidden}
    return {"dialect": dialect, **counts, "ms": clock.figures()}


def _is_let_through(spec: GrammarSpec, ids: list[int], tokenizer: Tokenizer, clock: Clock) -> bool:
    grammar = compile_grammar(spec, tokenizer)  # kept since the first time
    try:
        for id in ids:
            row = np.zeros(tokenizer.vocab_size, np.float32)
            clock.run("mask", lambda row=row: grammar.mask(row))
            clock.run("accept", lambda id=id: grammar.accept(id))
    except OctavoError:
        return False
    return True


def _right_calls(case: bfcl.Case, optional: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Right calls, with the declared arguments that may be left out or without them."""
    schemas = {f["name"]: f["parameters"] for f in case.functions}
    for expected in case.answers:
        for name, arguments in expected.items():
            schema = schemas[name]
            known = {key: v for key, v in arguments.items() if key in schema["properties"]}
            yield name, _written_out(known, optional, schema["required"])


def _written_out(
    answers: dict[str, Any], optional: bool, required: Sequence[str] = ()
) -> dict[str, Any]:
    """The first right value of each key."""
    firsts = {
        key: next((value for value in right if value != ""), "")
        for key, right in answers.items()
        if "" not in right or key in required or (optional and right != [""])
    }
    return {key: _plain(value, optional) for key, value in firsts.items()}


def _plain(value: Any, optional: bool) -> Any:
    """An answer as it is written: inside of objects each key has a list of right values."""
    if isinstance(value, dict):
        return _written_out(value, optional)
    return [_plain(item, optional) for item in value] if isinstance(value, list) else value


def _summary(values: Any) -> dict[str, float]:
    points = {"median": np.median(values), "mean": values.mean(), "p99": np.quantile(values, 0.99)}
    return {name: round(float(value), 4) for name, value in points.items()}


if __name__ == "__main__":
    main()
