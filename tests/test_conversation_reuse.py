"""A small agent conversation: each turn computes little more than what it brought."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import octavo
from serving import serving

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "conversation.py"


@pytest.fixture(scope="module")
def conversation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conversation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["conversation"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_turns_compute_what_they_brought(
    arch: str, conversation: ModuleType, tiny_file: Callable[..., Path]
) -> None:
    """With a header that changes, thinking left out, results of tools, and side requests."""
    model = tiny_file(arch, changes={"context_length": 3072})
    client = conversation.Client(system_words=110, max_tokens=8)
    with serving(octavo.load(model, sequences=2)) as address:
        turns = conversation.run(client, 4, address)
    assert turns[0].prompt > 600
    assert all(turn.is_good for turn in turns)
    # Recurrent layers go back to the end of the last message, the others further.
    assert all(turn.computed <= turn.new + 40 for turn in turns[1:]), turns
