"""How far a chat template may go: length of every value it makes, and time.

The bounds hold while `bounded` is active in this thread; the checks are called by the sandbox.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from octavo.record import dataclass

MAX_SECONDS = 10.0  # a usual template takes a few milliseconds
MAX_WIDTH = 10_000
MAX_BITS = 4096

# A width or precision of four digits or more, or one that is taken from an argument.
_WIDE_PERCENT = re.compile(r"%[^%a-zA-Z]*(?:\d{4}|\*)")
_WIDE_BRACE = re.compile(r"\{[^{}]*:[^{}]*(?:\d{4}|\{)")
_PADDING = ("ljust", "rjust", "center", "zfill", "expandtabs")


class BoundError(Exception):
    """A template grew or ran beyond its bounds."""


@dataclass(frozen=True)
class _Budget:
    chars: int
    deadline: float


_budget: ContextVar[_Budget] = ContextVar("_budget")


@contextmanager
def bounded(max_chars: int) -> Iterator[None]:
    """Within: no value longer than `max_chars`, no longer than `MAX_SECONDS`."""
    token = _budget.set(_Budget(max_chars, time.monotonic() + MAX_SECONDS))
    try:
        yield
    finally:
        _budget.reset(token)


def check_time() -> None:
    """Raises BoundError after the deadline."""
    if time.monotonic() > _budget.get().deadline:
        raise BoundError(f"it ran for more than {MAX_SECONDS:g} seconds")


def check_length(length: int) -> None:
    """Raises BoundError if a value of that length is too long."""
    limit = _budget.get().chars
    if length > limit:
        raise BoundError(f"it made a value longer than {limit} characters")


def checked(value: Any) -> Any:
    """`value`, if it is not too long."""
    check_length(length_of(value))
    return value


def length_of(value: Any) -> int:
    """Length of a text or list; 0 for anything else."""
    return len(value) if isinstance(value, (str, bytes, list, tuple)) else 0


def join(parts: Iterable[Any]) -> str:
    """The parts as one text."""
    texts: list[str] = []
    length = 0
    for part in parts:
        texts.append(str(part))
        length += len(texts[-1])
        check_length(length)
    return "".join(texts)


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Raises BoundError if the result of `+`, `*`, `**` or `%` would be too long."""
    if operator == "+":
        check_length(length_of(left) + length_of(right))
    elif operator == "%" and isinstance(left, str):
        check_format(left)
    elif operator == "*":
        check_length(max(length_of(left) * _size(right), length_of(right) * _size(left)))
        _check_bits(_bits(left) + _bits(right))
    elif operator == "**":
        _check_bits(_bits(left) * _size(right))


def check_format(pattern: str) -> None:
    """Raises BoundError if a format pads to thousands of characters."""
    if _WIDE_PERCENT.search(pattern) or _WIDE_BRACE.search(pattern):
        raise BoundError("it pads a text to thousands of characters")


def check_width(width: int) -> None:
    """Raises BoundError if a text would be padded far."""
    if width > MAX_WIDTH:
        raise BoundError("it pads a text to thousands of characters")


def check_replace(text: str, old: str, new: str) -> None:
    """Raises BoundError if replacing would make the text too long."""
    check_length(len(text) + text.count(old) * len(new))


def check_method(function: Any, args: tuple[Any, ...]) -> None:
    """Raises BoundError if this is a method of a text and would make it too long."""
    method = getattr(function, "__wrapped__", function)  # the sandbox wraps `format`
    text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if not isinstance(text, str):
        return
    if name in ("format", "format_map"):
        check_format(text)
    elif name in _PADDING:
        check_width(max((_size(arg) for arg in args), default=0))
    elif name == "replace" and len(args) > 1:
        check_replace(text, str(args[0]), str(args[1]))
    elif name == "join" and args and isinstance(args[0], (list, tuple, str)):
        check_length(sum(map(length_of, args[0])) + len(text) * len(args[0]))


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise BoundError("it made a number of thousands of digits")


def _size(value: Any) -> int:
    return abs(value) if isinstance(value, int) else 0


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0
