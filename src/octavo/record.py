"""`dataclass` for what a start imports: as the standard library's, without compiling anything.

The standard library writes each method of a class as source text and compiles it: 0.3 to 0.6 ms a
class, and a start makes eighty. Here the methods are closures: 0.05 ms. Making an instance takes
about as long as there; comparing takes longer, which nothing here does often.

`frozen` and `eq` are known, `field`, `fields`, `replace` and `asdict` of `dataclasses` work. For
type checkers it is the standard library's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """`dataclasses.dataclass`, with or without arguments."""

        def make(cls: type) -> type:
            return _made(cls, frozen=frozen, eq=eq)

        return make if cls is None else make(cls)


Method = Callable[..., Any]


def _made(cls: type, *, frozen: bool, eq: bool) -> type:
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)
    methods: dict[str, Method | None] = {"__init__": _init(cls, fields)}
    methods["__repr__"] = _repr(tuple(f.name for f in fields if f.repr))
    if eq:
        methods["__eq__"] = _eq(tuple(f.name for f in fields))
        methods["__hash__"] = _hash(tuple(f.name for f in fields)) if frozen else None
    for name, method in methods.items():
        if name not in cls.__dict__ or cls.__dict__[name] is None:  # what it has itself counts
            setattr(cls, name, method)
    if frozen:
        cls.__setattr__ = _refuse_to_set  # type: ignore[assignment]
        cls.__delattr__ = _refuse_to_delete  # type: ignore[assignment]
    return cls


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Method:
    missing = dataclasses.MISSING
    names = tuple(f.name for f in fields)
    defaults = {f.name: f.default for f in fields if f.default is not missing}
    factories = [(f.name, f.default_factory) for f in fields if f.default_factory is not missing]
    check: Method | None = getattr(cls, "__post_init__", None)

    def __init__(self: Any, /, *values: Any, **named: Any) -> None:
        state = self.__dict__
        state.update(defaults)
        state.update(zip(names, values, strict=False))
        state.update(named)
        for name, make in factories:
            if name not in state:
                state[name] = make()
        # A missing name makes them too few, an unknown one too many.
        if (
            len(state) != len(names)
            or len(values) > len(names)
            or (named and not named.keys().isdisjoint(names[: len(values)]))
        ):
            raise TypeError(_complaint(cls, names, len(values), named, state))
        if check is not None:
            check(self)

    return __init__


def _complaint(
    cls: type, names: tuple[str, ...], n_values: int, named: Any, state: Mapping[str, Any]
) -> str:
    """Which arguments are wrong."""
    faults = {
        "unknown": [name for name in named if name not in names],
        "given twice": [name for name in names[:n_values] if name in named],
        "missing": [name for name in names if name not in state],
        "too many": [str(n_values)] if n_values > len(names) else [],
    }
    told = (f"{what}: {', '.join(found)}" for what, found in faults.items() if found)
    return f"{cls.__qualname__}({', '.join(names)}): {'; '.join(told)}"


def _repr(names: tuple[str, ...]) -> Method:
    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def _eq(names: tuple[str, ...]) -> Method:
    def __eq__(self: Any, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in names)

    return __eq__


def _hash(names: tuple[str, ...]) -> Method:
    def __hash__(self: Any) -> int:
        return hash(tuple([getattr(self, name) for name in names]))

    return __hash__


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
