"""The rules of the house that a machine can check: who imports whom, what is light, how long."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "octavo"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Lower never imports higher; packages of one line may know each other.
LAYERS = (
    ("types", "errors", "settings", "registry", "arena"),
    ("gguf", "quants", "hub", "text", "_native"),
    ("ops", "kv"),
    ("models",),
    ("plan", "experts"),
    ("engine",),
    ("quantize", "chat", "session", "documents"),
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
HEAVY = ("torch", "triton", "tokenizers", "llguidance", "jinja2", "rich", "psutil", "numpy")


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
            assert node.level == 0, f"line {node.lineno}: relative import"
            modules = [node.module or ""]
            if node.module == "octavo":
                modules = [f"octavo.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            if module.startswith("octavo."):
                yield node.lineno, module.split(".")[1]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_lower_never_imports_higher(path: Path) -> None:
    own = part(path)
    assert own in LEVELS, f"{own}: give it a place in LAYERS"
    for line, other in imported_parts(parse(path)):
        # A name defined in octavo/__init__.py itself (octavo.load) counts as the top.
        level = LEVELS.get(other, LEVELS["__init__"])
        assert level <= LEVELS[own], f"{path}:{line}: {own} imports {other}, which is higher"


def test_order_test_sees_imports() -> None:
    tree = ast.parse(
        "import octavo.cli\nfrom octavo import chat\ndef f():\n  from octavo.kv import x"
    )
    assert list(imported_parts(tree)) == [(1, "cli"), (2, "chat"), (4, "kv")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_names_say_what_they_hold(path: Path) -> None:
    assert path.stem.lstrip("_") not in BANNED
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef):
            assert node.name.lower() not in BANNED, f"{path}:{node.lineno}: class {node.name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{path}:{node.lineno}: {node.name} has {length}"


def test_cxx_files_are_short() -> None:
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix in CXX_SUFFIXES:
            lines = len(path.read_text(encoding="utf-8").splitlines())
            assert lines <= MAX_FILE_LINES, f"{path} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(parse(path)), "no module docstring"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_commands_print(path: Path) -> None:
    if part(path) == "cli":
        return
    for node in ast.walk(parse(path)):
        is_print = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
        assert not is_print, f"{path}:{getattr(node, 'lineno', 0)}: print in library code"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_settings_reads_the_environment(path: Path) -> None:
    if path.name == "settings.py":
        return
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
            pytest.fail(f"{path}:{node.lineno}: read it in settings.py")


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
