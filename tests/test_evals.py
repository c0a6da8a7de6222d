"""Questions of the Berkeley leaderboard: how they are read, asked and marked."""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

import octavo.cli
from octavo.errors import FileFormatError, NotFoundError, UnsupportedError
from octavo.evals import bfcl, marking, tools
from octavo.evals.shown import with_tools
from octavo.text import formats
from octavo.text.template import Template
from octavo.types import Message, SamplingParams, ToolCall
from test_chat import END, PLAIN, Case
from tool_texts import written

FUNCTION = {
    "name": "geo.area",
    "description": "Area of a shape.",
    "parameters": {
        "type": "dict",
        "properties": {
            "shape": {"type": "string", "enum": ["circle", "square"]},
            "size": {"type": "float", "description": "In m."},
            "exact": {"type": "boolean", "optional": True},
            "points": {"type": "array", "items": {"type": "tuple", "items": {"type": "float"}}},
            "place": {"type": "dict", "properties": {"city": {"type": "string"}}},
            "note": {"type": "any"},
        },
        "required": ["shape", "size"],
    },
}
OTHER = {
    "name": "other",
    "parameters": {"type": "dict", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}
QUESTION = "How large is a circle of 2 m?"
MARKS = ("called", "readable", "valid", "right")
RIGHT = {"geo.area": {"shape": ["circle"], "size": [2.0], "exact": ["", True]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data as the package has it, with three questions a subset."""
    (tmp_path / "possible_answer").mkdir()
    for subset in bfcl.Subset:
        n = 2 if "parallel" in subset else 1
        ids = [f"{subset}_{i}" for i in range(3)]
        turn = [[{"role": "user", "content": QUESTION}]]
        rows = [{"id": id, "question": turn, "function": [FUNCTION, OTHER]} for id in ids]
        answers = [{"id": id, "ground_truth": [RIGHT] * n} for id in ids]
        _write(tmp_path / f"BFCL_v4_{subset}.json", rows)
        _write(tmp_path / "possible_answer" / f"BFCL_v4_{subset}.json", answers)
    return tmp_path


def _write(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


# Reading.


def test_declarations_become_json_schemas(folder: Path) -> None:
    case = bfcl.read(folder, "multiple")[0]
    assert case.messages == (Message("user", QUESTION),)
    function = case.tools[0]["function"]
    assert (function["name"], function["description"]) == ("geo.area", "Area of a shape.")
    parameters = function["parameters"]
    assert (parameters["type"], parameters["required"]) == ("object", ["shape", "size"])
    properties = parameters["properties"]
    assert properties["size"] == {"type": "number", "description": "In m."}
    assert properties["exact"] == {"type": "boolean"}
    inner = {"type": "array", "items": {"type": "number"}}
    assert properties["points"] == {"type": "array", "items": inner}
    assert properties["place"]["properties"] == {"city": {"type": "string"}}
    assert properties["note"] == {}


def test_a_limit_draws_by_seed_and_keeps_the_order(folder: Path) -> None:
    drawn = {tuple(c.id for c in bfcl.read(folder, "multiple", 2, seed)) for seed in range(20)}
    assert len(drawn) == 3
    assert all(first < second for first, second in drawn)
    assert len(bfcl.read(folder, "multiple", 5)) == 3


def test_data_that_is_absent_or_wrong(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match=r"BFCL_v4_multiple\.json"):
        bfcl.read(folder / "nowhere", "multiple")
    path = folder / "BFCL_v4_multiple.json"
    for text in ("no json", "[1]", '{"id": "strange"}', '{"id": "multiple_0"}'):
        path.write_text(text)
        with pytest.raises(FileFormatError, match="BFCL_v4_multiple"):
            bfcl.read(folder, "multiple")
    monkeypatch.setattr(bfcl, "PACKAGE", "no_such_package")
    with pytest.raises(NotFoundError) as raised:
        bfcl.find_folder()
    assert "--no-deps bfcl-eval" in raised.value.hint


# Marking.


def call(name: str, arguments: Mapping[str, Any]) -> ToolCall:
    return ToolCall(name, json.dumps(arguments))


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"shape": "circle", "size": 2.0}, ""),
        ({"size": 2, "shape": "Cir-cle", "exact": True}, ""),
        ({"shape": "circle"}, "missing"),
        ({"shape": "circle", "size": 2, "colour": "red"}, "unexpected"),
        ({"shape": "circle", "size": 2, "note": "x"}, "unexpected"),
        ({"shape": "circle", "size": "2"}, "type"),
        ({"shape": "circle", "size": 2, "exact": 1}, "type"),
        ({"shape": "circle", "size": 3}, "value"),
        ({"shape": "square", "size": 2}, "value"),
    ],
)
def test_marks_of_one_call(arguments: dict[str, Any], fault: str) -> None:
    assert marking.call_fault(FUNCTION, call("geo.area", arguments), RIGHT["geo.area"]) == fault


def test_several_calls_come_in_any_order() -> None:
    expected = [RIGHT, {"other": {"n": [1]}}, {"other": {"n": [2]}}]
    area = call("geo.area", {"shape": "circle", "size": 2})
    one, two = call("other", {"n": 1}), call("other", {"n": 2})

    def fault(*calls: ToolCall) -> str:
        return marking.fault([FUNCTION, OTHER], calls, expected)

    assert fault(area, one, two) == fault(two, area, one) == ""
    assert fault(area, one) == fault(area, one, two, one) == "count"
    assert fault(area, one, one) == "value"
    assert fault(area, one, area) == "function"


def test_what_must_be_given_though_it_is_not_required() -> None:
    expected = {"shape": ["circle"], "size": [2], "exact": [True]}
    given = call("geo.area", {"shape": "circle", "size": 2})
    assert marking.call_fault(FUNCTION, given, expected) == "left out"


def test_marks_are_those_of_the_package(package_checker: Callable[..., bool]) -> None:
    """On every question: right answers, and such that were changed at random."""
    seen: dict[bool, int] = defaultdict(int)
    rng = random.Random(1)
    for subset in bfcl.Subset:
        for case in bfcl.read(bfcl.find_folder(), subset):
            for n_changes in (0, 1, 1, 2):
                calls = _some_answer(case, rng)
                for _ in range(n_changes):
                    _change(calls, rng)
                made = [call(name, arguments) for name, arguments in calls]
                is_right = not marking.fault(case.functions, made, case.answers)
                assert is_right == package_checker(case, calls), (case.id, calls)
                seen[is_right] += 1
    assert min(seen.values()) > 1000


@pytest.fixture
def package_checker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """The checker of bfcl-eval, whose table of models would import thirty packages."""
    pytest.importorskip("bfcl_eval", reason="bfcl-eval is not installed (pip install --no-deps)")
    models = ModuleType("bfcl_eval.constants.model_config")
    table = defaultdict(lambda: type("Model", (), {"underscore_to_dot": False}))
    models.MODEL_CONFIG_MAPPING = table  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, models.__name__, models)
    checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    language: type[Enum] = importlib.import_module("bfcl_eval.constants.enums").Language

    def is_right(case: bfcl.Case, calls: list[tuple[str, dict[str, Any]]]) -> bool:
        said = [{name: arguments} for name, arguments in calls]
        functions, answers = list(case.functions), list(case.answers)
        python = language["PYTHON"]
        found = checker.ast_checker(functions, said, answers, python, case.subset, "any")
        return bool(found["valid"])

    return is_right


def _some_answer(case: bfcl.Case, rng: random.Random) -> list[tuple[str, dict[str, Any]]]:
    calls = [
        (name, _chosen(arguments, rng))
        for expected in case.answers
        for name, arguments in expected.items()
    ]
    rng.shuffle(calls)
    return calls


def _chosen(answers: Mapping[str, Sequence[Any]], rng: random.Random) -> dict[str, Any]:
    drawn = {key: rng.choice(right) for key, right in answers.items()}
    return {key: _plain(value, rng) for key, value in drawn.items() if value != ""}


def _plain(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        return _chosen(value, rng)
    return [_plain(item, rng) for item in value] if isinstance(value, list) else value


def _change(calls: list[tuple[str, dict[str, Any]]], rng: random.Random) -> None:
    """Something that may make an answer wrong, or not."""
    if not calls or rng.random() < 0.1:
        calls.append(("other", {})) if rng.random() < 0.5 or not calls else calls.pop()
        return
    name, arguments = rng.choice(calls)
    if not arguments or rng.random() < 0.1:
        arguments["strange"] = 1
        return
    key = rng.choice(list(arguments))
    if rng.random() < 0.15:
        del arguments[key]
    else:
        arguments[key] = _changed(arguments[key], rng)


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, str):
        return rng.choice([value.upper(), f"{value}.", value.replace(" ", "_"), f"{value}x", [], 1])
    if isinstance(value, bool):
        return rng.choice([not value, int(value), "true"])
    if isinstance(value, (int, float)):
        return rng.choice([float(value), int(value), value + 1, str(value), [value], None])
    if isinstance(value, list):
        inner = [_changed(item, rng) for item in value]
        return rng.choice([inner, value[::-1], value[1:], [*value, *value[:1]], [], "x"])
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        inner = {**value, key: _changed(value[key], rng)}
        return rng.choice([inner, {k: v for k, v in value.items() if k != key}, {**value, "x": 1}])
    return "x"


# Asking.


def test_every_case_in_every_way(folder: Path) -> None:
    arguments = {"shape": "circle", "size": 2.0}
    good = written("hermes", [("geo.area", arguments)]) + END
    wrong = written("hermes", [("geo.area", {"shape": "round", "size": 2.0})]) + END
    half = '<tool_call>\n{"name": "geo.area", "argu'
    marks = _asked(folder, ["unconstrained"], good, wrong, half)
    facts = [(m.called, m.readable, m.valid, m.right, m.fault) for m in marks]
    assert facts == [
        (True, True, True, True, ""),
        (True, True, False, False, "value"),
        (True, False, False, False, "reading"),
    ]
    (said,) = _asked(folder, ["required"], f"No idea.{END}", n=1)
    assert (said.called, said.fault) == (False, "call")
    (twice,) = _asked(folder, ["constrained"], good.replace(END, "\n") + good, n=1)
    assert (twice.valid, twice.fault) == (True, "count")
    score = tools.Score()
    for m in (*marks, said, twice):
        score.add(m)
    assert (score.n, score.called, score.readable, score.valid, score.right) == (5, 4, 3, 2, 1)
    assert score.faults == {"value": 1, "reading": 1, "call": 1, "count": 1}
    assert score.cut == 1


def _asked(folder: Path, ways: list[tools.Way], *scripts: str, n: int = 3) -> list[tools.Marked]:
    case = _told(*scripts)
    cases = bfcl.read(folder, "simple_python")[:n]
    manner = tools.Manner(SamplingParams(temperature=0), n_at_once=1)
    marks = list(tools.ask_all(case.chat, cases, ways, manner))
    is_held = [params.grammar is not None for _, params, _ in case.engine.requests]
    assert is_held == [way != "unconstrained" for way in ways for _ in cases]
    assert all('"name": "geo.area"' in prompt for prompt, _, _ in case.engine.requests)
    return marks


def _told(*scripts: str) -> Case:
    """A chat whose own template shows no tools."""
    case = Case(PLAIN, *scripts)
    own = case.chat.template
    assert own is not None
    case.chat.template = with_tools(own, case.tokenizer)
    return case


def test_the_order_finds_prompts_in_the_cache_again(folder: Path) -> None:
    case = _told(*[f"No.{END}"] * 6)
    cases = bfcl.read(folder, "simple_python")
    manner = tools.Manner(SamplingParams(temperature=0), n_at_once=2)
    ways: list[tools.Way] = ["unconstrained", "required"]
    marks = list(tools.ask_all(case.chat, cases, ways, manner))
    order = [(m.case.id[-1], m.way[0]) for m in marks]
    assert order == [("0", "u"), ("1", "u"), ("0", "r"), ("1", "r"), ("2", "u"), ("2", "r")]


def test_a_question_that_does_not_fit_counts_as_refused(folder: Path) -> None:
    bad = {**OTHER, "parameters": {"type": "dict", "properties": {"n": {"type": "strange"}}}}
    case = bfcl.read(folder, "simple_python")[0]
    case = bfcl.Case(case.id, case.subset, case.messages, (bad,), case.answers)
    (marked,) = tools.ask_all(_told().chat, [case], ["constrained"], tools.Manner(SamplingParams()))
    assert marked.fault == "refused"
    assert "strange" in marked.answer.content


def test_models_that_cannot_be_asked(folder: Path) -> None:
    for template, reason in ((None, "no chat template"), (PLAIN, "not known")):
        with pytest.raises(UnsupportedError, match=reason):
            next(tools.ask_all(Case(template).chat, [], [], tools.Manner(SamplingParams())))


# Tools in a system message.


def test_tools_are_told_by_the_models_own_template() -> None:
    tokenizer = Case(PLAIN).tokenizer
    own = Template(PLAIN, tokenizer)
    told = with_tools(own, tokenizer)
    assert with_tools(told, tokenizer) is told
    dialect = formats.of_template(told.source)
    assert dialect is not None
    assert dialect.name == "hermes"
    messages = (Message("system", "Be brief."), Message("user", QUESTION))
    declared = {"type": "function", "function": FUNCTION}
    prompt = told.render(messages, [declared])
    assert prompt.count("<|im_start|>system") == 1
    assert prompt.index("Be brief.") < prompt.index("geo.area") < prompt.index(QUESTION)
    assert json.dumps(declared)[:40] in prompt
    assert told.render(messages) == own.render(messages)
    assert told.render(messages[1:]) == own.render(messages[1:])


# The command.


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(octavo.cli.app, ["eval", *map(str, arguments)])


@pytest.fixture
def answers(tiny_file: Callable[..., Path], folder: Path, tmp_path: Path) -> Any:
    model = tiny_file("qwen3", changes={"tokenizer.chat_template": PLAIN, "context_length": 2048})
    path = tmp_path / "answers.jsonl"
    flags = ("--data", folder, "--subset", "parallel", "--limit", 2, "-n", 20, "-c", 2048)
    ways = ("--way", "unconstrained", "--way", "required")
    done = run("tools", model, *flags, *ways, "--answers", path)
    assert done.exit_code == 0, done.output
    return done, [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_the_command_shows_a_table_and_json(answers: Any) -> None:
    done, rows = answers
    *table, last = done.stdout.splitlines()
    assert table[0].split() == ["subset", "way", "questions", *MARKS]
    results = json.loads(last)["results"]
    assert json.loads(last)["tools_in"] == "system message"
    assert [r["way"] for r in results] == ["unconstrained", "required"]
    assert [r["questions"] for r in results] == [2, 2]
    assert results[1]["called"] == 2
    assert [sum(results[i]["faults"].values()) for i in (0, 1)] == [2, 2]
    assert [(row["id"], row["way"][0]) for row in rows][::2] == [
        (rows[0]["id"], "u"),
        (rows[0]["id"], "r"),
    ]
    assert "system message" in done.stderr


def test_the_command_without_its_data(folder: Path) -> None:
    done = run("tools", "absent.gguf", "--data", folder)
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, done.stdout) == (4, "")
    assert "absent.gguf" in done.stderr
    done = run("tools", "absent.gguf", "--data", folder / "nowhere")
    assert done.exit_code == 4
    assert "BFCL_v4_simple_python.json" in done.stderr


def test_answers_that_cannot_be_written(tiny_file: Callable[..., Path], folder: Path) -> None:
    place = folder / "no" / "answers"
    done = run("tools", tiny_file("qwen3"), "--data", folder, "-c", 512, "--answers", place)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 4
    assert "answers cannot be written" in done.stderr
