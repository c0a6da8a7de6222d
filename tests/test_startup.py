"""What a first answer does not wait for: modules that other commands, models and machines need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RUN = """
import sys
from octavo.cli import main
try:
    main()
finally:
    print("MODULES", *sys.modules)
"""
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"

# With what they are for.
NOT_NEEDED = {
    "rich": "a bar, where loading takes long and a person looks",
    "fastapi": "the server",
    "uvicorn": "the server",
    "octavo.server": "the server",
    "octavo.documents": "the server",
    "torch": "a card",
    "triton": "a card",
    "octavo.ops.gpu": "a card",
    "octavo.plan.gpus": "a card",
    "octavo.plan.speeds": "a plan that people read",
    "importlib.metadata": "speeds by release, and --version",
    "octavo.experts.pool": "experts in two places",
    "octavo.experts.residents": "experts in two places",
    "octavo.hub.resolve": "a model that is not a path",
    "ssl": "downloads",
    "http.client": "downloads",
    "llguidance": "grammars",
    "octavo.text.formats": "tools",
    "tokenizers": "tests",
    "tomllib": "a settings file",
    "octavo.kv.disk": "prefixes that outlive the program",
    "octavo.kv.shelf": "prefixes that outlive the program",
    "octavo.experts.heat": "experts in two places",
    "asyncio": "the server",
}


@pytest.fixture(scope="module")
def imported(tiny_file: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Modules behind `octavo run` with a chat template, in a process of its own."""
    model = tiny_file("llama", changes={"tokenizer.chat_template": TEMPLATE})
    empty = str(tmp_path_factory.mktemp("nothing"))
    settings = {
        "XDG_CONFIG_HOME": empty,
        "XDG_CACHE_HOME": empty,
        "OCTAVO_SETTINGS": f"{empty}/none.toml",
    }
    command = [sys.executable, "-c", RUN, "run", str(model), "-p", "Hello", "-n", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    return set(done.stdout.partition("MODULES ")[2].split())


def test_an_answer_was_made(imported: set[str]) -> None:
    assert {"octavo.engine.sampler", "octavo._native", "jinja2", "numpy"} <= imported


@pytest.mark.parametrize("module", NOT_NEEDED)
def test_run_does_not_import(imported: set[str], module: str) -> None:
    assert module not in imported, f"{module} is for {NOT_NEEDED[module]}"


BLAS = """
import os
from octavo.settings import calm_blas, environment
calm_blas()
import numpy
print(len(os.listdir("/proc/self/task")), environment({}).get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_numpy_starts_no_threads_and_other_programs_are_not_told() -> None:
    given = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", BLAS], capture_output=True, text=True, env=given, check=True
    )
    assert done.stdout.split() == ["1", "None"]
