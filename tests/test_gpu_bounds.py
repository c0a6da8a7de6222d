"""The watch over the interpreter's memory accesses finds what it is there for."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_backend import IS_INTERPRETED, torch
from gpu_bounds import WILD
from gpu_bounds import watched as watched

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="the watch is the interpreter's alone")


@triton.jit
def _copy(x, out, n, WIDTH: tl.constexpr):
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def _turn(x, out, HAS_BARRIER: tl.constexpr):
    i = tl.arange(0, 4)
    tl.store(out + i, tl.load(x + i))
    if HAS_BARRIER:
        tl.debug_barrier()
    tl.store(x + i, tl.load(out + 3 - i))


@triton.jit
def _pass_on(x, counter, HAS_ATOMIC: tl.constexpr):
    here = tl.program_id(0)
    if HAS_ATOMIC:
        tl.atomic_add(counter, 1)
    tl.store(x + here + 1, tl.load(x + here))


def test_within_bounds_nothing_happens() -> None:
    x, out = torch.arange(7.0), torch.zeros(7)
    _copy[(2,)](x, out, 7, 4)
    assert torch.equal(x, out)


@pytest.mark.parametrize("short", ["x", "out"])
def test_places_outside_are_found(short: str) -> None:
    wide = torch.arange(8.0)
    x, out = (wide[:7], torch.zeros(8)) if short == "x" else (wide, torch.zeros(8)[:7])
    with pytest.raises(Exception, match=r"_copy, program \(1, 0, 0\): touches 1 places outside"):
        _copy[(2,)](x, out, 8, 4)


def test_a_missing_barrier_is_found() -> None:
    _turn[(1,)](torch.arange(4.0), torch.zeros(4), True)
    with pytest.raises(Exception, match="no barrier in between"):
        _turn[(1,)](torch.arange(4.0), torch.zeros(4), False)


def test_programs_that_race_are_found() -> None:
    def launch(has_atomic: bool) -> Any:
        return _pass_on[(2,)](torch.arange(3.0), torch.zeros(1, dtype=torch.int32), has_atomic)

    launch(True)
    with pytest.raises(Exception, match="loads what another program stores"):
        launch(False)


def test_races_that_may_be_give_what_nobody_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_bounds.MAY_RACE", {"_pass_on"})
    x = torch.arange(3.0)
    _pass_on[(2,)](x, torch.zeros(1, dtype=torch.int32), False)
    assert x[1] == 0
    assert torch.isnan(x[2])


def test_unwritten_memory_is_poison() -> None:
    assert torch.isnan(torch.empty(3)).all()
    assert (torch.empty(3, dtype=torch.int32) == WILD).all()
