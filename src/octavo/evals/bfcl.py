"""The questions of the Berkeley Function Calling Leaderboard, from the package `bfcl-eval`.

Used are its single-turn questions with Python's types ("non-live", marked by comparing calls).
Only data files are read: a folder with `BFCL_v4_<subset>.json` (a JSON object a line: id,
question, functions) and `possible_answer/` with the same names. Nothing of the package is imported,
so it may be installed without what it depends on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from octavo.errors import FileFormatError, NotFoundError
from octavo.record import dataclass
from octavo.types import Message

PACKAGE = "bfcl_eval"
_VERSION = "BFCL_v4"

# The leaderboard's names of types -> those of JSON schema. "any" is left out: all are allowed.
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
_NO_KEYWORDS = ("optional",)  # says what `required` says


class Subset(StrEnum):
    """As the leaderboard names them."""

    simple_python = "simple_python"
    multiple = "multiple"
    parallel = "parallel"
    parallel_multiple = "parallel_multiple"


@dataclass(frozen=True)
class Case:
    """One question.

    Attributes:
        functions: declarations as the leaderboard has them.
        answers: for each expected call its name -> argument -> the values that are right; "" among
            them: the argument may be left out.
    """

    id: str
    subset: str
    messages: tuple[Message, ...]
    functions: tuple[Mapping[str, Any], ...]
    answers: tuple[Mapping[str, Mapping[str, Sequence[Any]]], ...]

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """The declarations as requests have them: with JSON schemas."""
        return tuple(_tool(function) for function in self.functions)


def find_folder() -> Path:
    """The folder of the installed package's data.

    Raises:
        NotFoundError: it is not installed.
    """
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise NotFoundError(
            "The questions of the Berkeley Function Calling Leaderboard are not here",
            "pip install --no-deps bfcl-eval (its dependencies are not needed), or give the "
            "folder of its data with --data.",
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def read(folder: Path, subset: str, limit: int | None = None, seed: int = 0) -> list[Case]:
    """The questions of a subset in their order; with `limit` so many of them, drawn by `seed`.

    Raises:
        NotFoundError: a file is missing.
        FileFormatError: a file is not what it should be.
    """
    name = f"{_VERSION}_{subset}.json"
    answers = {row["id"]: row["ground_truth"] for row in _rows(folder / "possible_answer" / name)}
    rows = list(_rows(folder / name))
    if limit is not None and limit < len(rows):
        chosen = random.Random(seed).sample(range(len(rows)), limit)
        rows = [rows[i] for i in sorted(chosen)]
    try:
        return [_case(row, subset, answers[row["id"]]) for row in rows]
    except (KeyError, TypeError, IndexError) as error:
        raise _wrong(folder / name, f"{type(error).__name__} {error}") from None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise NotFoundError(
            f"There is no file {path}", "The folder is `data` of the package bfcl-eval."
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or "id" not in row:
            raise _wrong(path, f"line {number}")
        yield row


def _wrong(path: Path, reason: str) -> FileFormatError:
    return FileFormatError(
        f"{path} does not hold questions or answers as they are known: {reason}",
        f"The files of {_VERSION} are expected, one JSON object a line.",
    )


def _case(row: Mapping[str, Any], subset: str, answers: Sequence[Any]) -> Case:
    (turn,) = row["question"]
    messages = tuple(Message(turned["role"], turned["content"]) for turned in turn)
    return Case(row["id"], subset, messages, tuple(row["function"]), tuple(answers))


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    parameters = as_schema(function["parameters"])
    return {"type": "function", "function": {**function, "parameters": parameters}}


def as_schema(declared: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration in the leaderboard's words as JSON schema."""
    schema: dict[str, Any] = {}
    for key, value in declared.items():
        if key == "type":
            schema |= {} if value == "any" else {"type": _TYPES.get(value, value)}
        elif key == "properties":
            schema[key] = {name: as_schema(inner) for name, inner in value.items()}
        elif key == "items":
            schema[key] = as_schema(value)
        elif key not in _NO_KEYWORDS:
            schema[key] = value
    return schema
