"""The documentation says what is there: links, commands and their flags, both READMEs alike.

Run as a program (`python tests/test_docs.py`) it writes docs/cli.md again.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest
import typer

import octavo
import octavo.cli
from serving import serving

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CLI_PAGE = ROOT / "docs" / "cli.md"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"^\| `octavo (\w+)", re.MULTILINE)


def command_names() -> list[str]:
    return sorted(
        p.stem for p in (ROOT / "src/octavo/cli").glob("*.py") if not p.stem.startswith("_")
    )


def cli_page() -> str:
    """The page from the commands themselves, not from `--help`: its layout is typer's affair."""
    root = typer.main.get_command(octavo.cli.app)
    context = typer.Context(root)
    blocks = ["# The command line", f"Written by `python tests/test_docs.py`.\n\n{root.help}"]
    for name in command_names():
        command = root.get_command(context, name)
        blocks += [f"## octavo {name}", inspect.cleandoc(command.help), table(command)]
    return "\n\n".join(blocks) + "\n"


def table(command: Any) -> str:
    rows = ["| argument | meaning | default |", "|---|---|---|"]
    for parameter in command.params:
        is_flag = parameter.param_type_name == "option"
        names = [*parameter.opts, *parameter.secondary_opts] if is_flag else [parameter.metavar]
        is_said = parameter.default is not None and parameter.default is not False
        default = f"{parameter.default}" if is_said else ""
        default = "required" if parameter.required else default
        meaning = parameter.help.replace("|", "\\|")
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {meaning} | {default} |")
    return "\n".join(rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


def hops() -> list[tuple[int, str]]:
    """(number, cell with the files) of each row of the table."""
    text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    return [(int(n), cell) for n, cell in re.findall(r"^\| (\d) \| (.*) \|$", text, re.MULTILINE)]


def test_the_eight_hops_are_there() -> None:
    assert [number for number, _ in hops()] == list(range(1, 9))
    first, *others = (cell for _, cell in hops())
    assert all(LINK.search(cell) for cell in others)
    # The page must not promise a server before there is a command for it, nor hide it then.
    is_served = "serve" in command_names()
    assert bool(LINK.search(first)) == is_served
    assert ("planned" in first) != is_served


def test_a_request_makes_these_hops(tiny_file: Callable[..., Path]) -> None:
    passed: set[str] = set()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        passed.add(frame.f_code.co_filename)

    question = {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 3}
    threading.setprofile(watch)  # of all threads that start from here on
    try:
        with (
            octavo.load(tiny_file("llama"), context=128) as model,
            serving(model) as address,
        ):
            passed.clear()
            assert httpx.post(f"{address}/v1/chat/completions", json=question).is_success
    finally:
        threading.setprofile(None)
    home = Path(octavo.__file__).parents[1]
    files = {Path(name).relative_to(home).as_posix() for name in passed if str(home) in name}
    for number, cell in hops()[1:]:  # Python enters at the second
        for target in LINK.findall(cell):
            place = target.removeprefix("../src/")
            assert any(file.startswith(place) for file in files), f"hop {number}: not by {place}"


def test_cli_page_is_fresh() -> None:
    page = CLI_PAGE.read_text(encoding="utf-8")
    assert page == cli_page(), "run: python tests/test_docs.py"


def test_readmes_agree() -> None:
    english, chinese = ((ROOT / n).read_text(encoding="utf-8") for n in README_NAMES)
    assert COMMAND.findall(english) == COMMAND.findall(chinese)
    assert sorted(COMMAND.findall(english)) == command_names()
    assert english.count("\n## ") == chinese.count("\n## ")
    assert code_blocks(english) == code_blocks(chinese)


README_NAMES = ("README.md", "README.zh-CN.md")


def code_blocks(text: str) -> list[str]:
    """Indented commands and fenced code, in order."""
    return re.findall(r"^    [^\n]+$|^```.*?^```", text, re.MULTILINE | re.DOTALL)


def test_readme_python_uses_public_names() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    used = set(re.findall(r"\boctavo\.(\w+)\(", text))
    assert used
    assert used <= set(octavo.__all__)


if __name__ == "__main__":
    CLI_PAGE.write_text(cli_page(), encoding="utf-8")
