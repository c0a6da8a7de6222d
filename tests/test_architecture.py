"""The rules of the house that a machine can check: who imports whom, what is light, how long."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "octavo"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Lower never imports higher; packages of one line may know each other.
LAYERS = (
    ("types", "errors", "settings", "registry", "arena", "release", "record"),
    ("gguf", "quants", "hub", "text", "_native"),
    ("ops", "kv"),
    ("models",),
    ("plan", "experts"),
    ("engine",),
    ("quantize", "chat", "reply", "session", "loading", "documents", "evals"),
    ("server", "doctor", "deploy", "cli"),
    ("__init__", "__main__"),
)
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}

BANNED = {
    *("util", "utils", "helper", "helpers", "common", "misc", "base", "core", "manager"),
    *("handler", "wrapper", "factory", "processor"),
}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
CXX_SUFFIXES = {".h", ".hpp", ".cpp"}

# What a program must not wait for when it only asks for help or looks at a file.
HEAVY = (
    *("torch", "triton", "tokenizers", "llguidance", "jinja2", "rich", "psutil", "numpy"),
    *("fastapi", "starlette", "uvicorn", "pydantic"),
)


def part(path: Path) -> str:
    """The top-level name under octavo that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_parts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, top-level name under octavo) of every import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = ["." * node.level + (node.module or "")]
            if node.module == "octavo":
                modules = [f"octavo.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            if module.startswith("octavo."):
                yield node.lineno, module.split(".")[1]
            elif module.startswith("."):
                yield node.lineno, module


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[Path, Any]]:
    """(file, node) of every node of these kinds in the package."""
    for path in SOURCES:
        for node in ast.walk(parse(path)):
            if isinstance(node, kinds):
                yield path, node


def at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_every_part_has_its_place() -> None:
    assert {part(path) for path in SOURCES} <= set(LEVELS), "give it a place in LAYERS"


def test_lower_never_imports_higher() -> None:
    # A name defined in octavo/__init__.py itself (octavo.load) counts as the top.
    top = LEVELS["__init__"]
    faults = [
        f"{at(path, line)}: imports {other}"
        for path in SOURCES
        for line, other in imported_parts(parse(path))
        if LEVELS.get(other, top) > LEVELS[part(path)]
    ]
    assert not faults


def test_order_test_sees_imports() -> None:
    code = "import octavo.cli\nfrom octavo import chat\ndef f():\n  from octavo.kv import x\n"
    tree = ast.parse(code + "from . import y")
    found = [(1, "cli"), (2, "chat"), (5, "."), (4, "kv")]
    assert list(imported_parts(tree)) == found


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def run_at_import(body: list[ast.stmt]) -> Iterator[str]:
    """Modules that these statements import when they run, not later in functions."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Try):
            yield from run_at_import(node.body)


def test_no_import_goes_in_a_circle() -> None:
    names = {module_name(path): path for path in SOURCES}
    needs: dict[str, set[str]] = {}
    for name, path in names.items():
        found = {m for m in run_at_import(parse(path).body) if m in names}
        # Importing a module runs the packages it lies in, unless this one lies in them too.
        parents = {m.rpartition(".")[0] for m in found}
        needs[name] = {m for m in found | parents if m and not f"{name}.".startswith(f"{m}.")}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_names_say_what_they_hold() -> None:
    classes = [at(p, n.lineno) for p, n in nodes(ast.ClassDef) if n.name.lower() in BANNED]
    modules = [str(path) for path in SOURCES if path.stem.lstrip("_") in BANNED]
    assert not classes + modules


def test_files_are_short() -> None:
    cxx = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in CXX_SUFFIXES]
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in [*SOURCES, *cxx]}
    assert not {str(p): n for p, n in lengths.items() if n > MAX_FILE_LINES}


def test_functions_are_short() -> None:
    faults = [
        f"{at(path, node.lineno)}: {node.name}"
        for path, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)
        if node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not faults


def test_every_file_says_what_it_is() -> None:
    assert not [str(path) for path in SOURCES if not ast.get_docstring(parse(path))]


def test_only_commands_print() -> None:
    faults = [
        at(path, node.lineno)
        for path, node in nodes(ast.Call)
        if getattr(node.func, "id", "") == "print" and part(path) != "cli"
    ]
    assert not faults


def test_only_settings_reads_the_environment() -> None:
    faults = [
        at(path, node.lineno)
        for path, node in nodes(ast.Attribute)
        if node.attr in ("environ", "getenv") and path.name != "settings.py"
    ]
    assert not faults


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `code`."""
    script = f"import sys\n{code}\nprint(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


HELP = """
import octavo.cli
try:
    octavo.cli.app(["--help"])
except SystemExit:
    pass
"""


@pytest.mark.parametrize("code", ["import octavo", HELP], ids=["import", "help"])
def test_start_is_light(code: str) -> None:
    # Whatever the interpreter loads by itself (site hooks of the environment) is not ours.
    assert not (loaded_by(code) - loaded_by("")) & set(HEAVY)


def test_weight_test_sees_modules() -> None:
    assert "numpy" in loaded_by("import octavo.kv.batch")


@pytest.mark.parametrize("folder", ["quants", "kv"])
def test_fast_formats_have_the_stem_of_their_meaning(folder: str) -> None:
    meaning = PACKAGE / ("quants" if folder == "quants" else "kv/formats")
    for header in (ROOT / "csrc" / folder).glob("*.h"):
        if not header.stem.startswith("_"):
            assert (meaning / f"{header.stem}.py").exists(), (
                f"{header}: no {meaning}/{header.stem}.py"
            )
