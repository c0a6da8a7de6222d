"""What every test gets: its own home, its seed, tiny models, and the reference vectors."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

# NumPy's BLAS would spin on every core: on a busy machine small products take 7 times longer.
# It reads this when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

from tiny_models import make_tiny

VECTORS = Path(__file__).parents[2] / "shared" / "vectors"

with contextlib.suppress(ImportError):  # missing where only the tests of the GPU run
    from hypothesis import settings

    # A busy machine is no failure; and a change is not judged by cases that others did not meet.
    settings.register_profile("octavo", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("octavo")


def pytest_report_header() -> str:
    return f"python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models, caches and the home directory of a test are its own."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OCTAVO_MODELS", str(home / "models"))
    monkeypatch.setenv("OCTAVO_CACHE", str(home / "cache"))
    return home


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_file(arch, **options of make_tiny)`: a file made once in a run; do not change it."""
    folder = tmp_path_factory.mktemp("tiny")
    made: dict[str, Path] = {}

    def get(arch: str, **options: Any) -> Path:
        key = repr((arch, sorted(options.items())))
        if key not in made:
            made[key] = make_tiny(arch, folder / f"{arch}-{len(made)}.gguf", **options)
        return made[key]

    return get


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of reference vectors; the test is skipped where they are absent."""
    if not VECTORS.is_dir():
        pytest.skip("the reference vectors (../shared/vectors) are not here")
    return VECTORS


@pytest.fixture(scope="session")
def real_file() -> Callable[[str], Path]:
    """`real_file("NAME.gguf")`: that file in the folder OCTAVO_TEST_MODELS; else the test skips."""

    def get(name: str) -> Path:
        folder = os.environ.get("OCTAVO_TEST_MODELS")
        if not folder:
            pytest.skip("OCTAVO_TEST_MODELS does not name a folder with real models")
        path = Path(folder) / name
        if not path.is_file():
            pytest.skip(f"{name} is not in OCTAVO_TEST_MODELS")
        return path

    return get
