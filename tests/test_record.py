"""Classes of `octavo.record` against the standard library's, which they stand in for."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from octavo import record

Decorator = Callable[..., Any]


def point(decorator: Decorator, **options: bool) -> Any:
    class Point:
        """With all that our classes use."""

        x: int
        y: int = 2
        secret: str = dataclasses.field(default="", repr=False)
        more: list[int] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x is negative")

        @cached_property
        def total(self) -> int:
            return self.x + self.y

    return decorator(**options)(Point)


@pytest.fixture(
    params=[{}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}], ids=str
)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """The same class made here and by the standard library."""
    return point(record.dataclass, **request.param), point(dataclasses.dataclass, **request.param)


ARGUMENTS = [((1,), {}), ((1, 3, "s", [4]), {}), ((), {"x": 1, "more": [5]}), ((1,), {"y": 0})]
WRONG = [((), {}), ((1, 2, "", [], 5), {}), ((1,), {"x": 2}), ((1,), {"z": 1}), ((), {"y": 1})]


@pytest.mark.parametrize(("values", "named"), ARGUMENTS)
def test_instances_are_alike(pair: tuple[Any, Any], values: tuple[Any, ...], named: Any) -> None:
    ours, theirs = (kind(*values, **named) for kind in pair)
    assert vars(ours) == vars(theirs)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert vars(dataclasses.replace(ours, y=9)) == vars(dataclasses.replace(theirs, y=9))
    assert vars(copy.copy(ours)) == vars(ours)
    assert ours.total == theirs.total


@pytest.mark.parametrize(("values", "named"), WRONG)
def test_wrong_arguments_are_refused(
    pair: tuple[Any, Any], values: tuple[Any, ...], named: Any
) -> None:
    for kind in pair:
        with pytest.raises(TypeError):
            kind(*values, **named)
    with pytest.raises(ValueError, match="negative"):
        pair[0](-1)


def test_equality_and_hashes(pair: tuple[Any, Any]) -> None:
    for same, other in (((1, 2, "", ()), (1, 2, "", (1,))), ((0.0, 2, "", ()), (5, 2, "", ()))):
        told = [
            (
                kind(*same) == kind(*same),
                kind(*same) == kind(*other),
                kind(*same) == same,
                kind.__hash__ is None,
                kind.__hash__ is object.__hash__,
            )
            for kind in pair
        ]
        assert told[0] == told[1]
    ours, theirs = pair
    if ours.__hash__ not in (None, object.__hash__):
        assert hash(ours(1, 2, "", ())) == hash(ours(1, 2, "", ()))
        assert hash(ours(1, 2, "", ())) == hash(theirs(1, 2, "", ()))


def test_frozen_ones_do_not_change(pair: tuple[Any, Any]) -> None:
    for kind in pair:
        made, is_frozen = kind(1), kind.__setattr__ is not object.__setattr__
        for change in (lambda m: setattr(m, "x", 2), lambda m: setattr(m, "new", 2)):
            if is_frozen:
                with pytest.raises(dataclasses.FrozenInstanceError):
                    change(made)
            else:
                change(made)
        if is_frozen:
            with pytest.raises(dataclasses.FrozenInstanceError):
                del made.x
    assert (
        pair[0].__setattr__ is object.__setattr__ or pair[1].__setattr__ is not object.__setattr__
    )


def test_lists_are_not_shared(pair: tuple[Any, Any]) -> None:
    first, second = pair[0](1), pair[0](1)
    assert first.more == second.more
    assert first.more is not second.more


@record.dataclass(frozen=True)
class Base:
    a: int
    b: int = 2

    def __repr__(self) -> str:
        return "mine"


@record.dataclass(frozen=True)
class Derived(Base):
    c: int = 3


def test_a_derived_class_has_all_fields() -> None:
    made = Derived(1, c=5)
    assert (made.a, made.b, made.c) == (1, 2, 5)
    assert made != Base(1)
    assert repr(Base(1)) == "mine"
    assert repr(made) == "Derived(a=1, b=2, c=5)"
    assert pickle.loads(pickle.dumps(made)) == made
    assert [field.name for field in dataclasses.fields(Derived)] == ["a", "b", "c"]


@pytest.mark.parametrize("method", ["__init__", "__repr__", "__eq__", "__hash__", "__setattr__"])
def test_no_method_is_compiled(method: str) -> None:
    ours, theirs = (point(kind, frozen=True) for kind in (record.dataclass, dataclasses.dataclass))
    assert getattr(ours, method).__code__.co_filename == record.__file__
    assert getattr(theirs, method).__code__.co_filename != record.__file__
