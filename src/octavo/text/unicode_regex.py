r"""Published pre-tokenizer patterns, compiled with the standard `re`.

They use `\p{L}`-like classes, which `re` lacks, and mean Unicode white space by `\s`, where `re`
adds four control characters. Letters and numbers together are what `re` calls `\w` without the
underscore; classes are spelled with it where they can be, which makes them three times faster
than lists of ranges. ASCII is tried first, for another factor of two on most text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from octavo.text.unicode_ranges import class_text

_SPACE = r"\t-\r\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# An escape, a class with its `+` if it has one, or a property outside of a class.
_PARTS = re.compile(
    r"(?P<class>\[\^?(?:\\p\{\w+\}|\\.|[^\]\\])+\]\+?)|(?P<plain>\\[pP]\{\w+\}\+?|\\[sS]\+?)|\\."
)
_ASCII = "".join(map(chr, range(128)))
_BEYOND_ASCII = r"\x80"
_PROPERTY = re.compile(r"\\p\{(\w+)\}")


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    r"""Compile a pattern that may use `\p{X}`, `\s` and `\S` in the Unicode sense.

    A class with a property is possessive when repeated: it never gives characters back. No
    published pattern needs that.
    """
    return re.compile(_PARTS.sub(_translate, pattern))


@cache
def compile_for_ascii(pattern: str) -> re.Pattern[str]:
    """The same for texts of ASCII alone. Its classes are short, so it takes a tenth of the time."""
    return re.compile(_PARTS.sub(_translate_for_ascii, pattern))


def _translate_for_ascii(part: re.Match[str]) -> str:
    found = _found_class(part)
    if found is None:
        return part[0]
    negated, body, plus = found
    # A class may not be empty: U+0080 is in none of these texts.
    return f"[{'^' * negated}{_ascii_body(body) or _BEYOND_ASCII}]{plus}"


def _translate(part: re.Match[str]) -> str:
    found = _found_class(part)
    if found is None:
        return part[0]
    negated, body, plus = found
    choices = _choices(negated, body)
    # The repetition of a choice that may give characters back is slow: not before `*`.
    if _PROPERTY.search(body) and not part.string.startswith("*", part.end()):
        choices = _ascii_first(negated, body, choices)
    return _joined(choices, bool(plus))


def _found_class(part: re.Match[str]) -> tuple[bool, str, str] | None:
    r"""Whether a class or property is negated, its inside, and its "+"; None: it is neither."""
    if text := part["plain"]:
        body = text.rstrip("+")
        negated, body = body[1] in "SP", body.lower() if body[1] in "S" else body
    elif text := part["class"]:
        body = text[1 : text.rindex("]")]
        negated, body = body.startswith("^"), body.removeprefix("^")
    else:
        return None
    return negated, body, "+" if text.endswith("+") else ""


def _choices(negated: bool, body: str) -> list[str]:
    """Classes that together match what `[body]` or `[^body]` does."""
    properties = set(_PROPERTY.findall(body))
    rest = _PROPERTY.sub("", body).replace(r"\s", _SPACE)
    rest += "".join(class_text(p) for p in sorted(properties - {"L", "N"}))
    numbers = class_text("N")
    if "L" not in properties:
        rest += numbers if "N" in properties else ""
        return [f"[^{rest}]"] if negated else [f"[{rest}]"]
    if negated:
        others = "_" if "N" in properties else f"[_{numbers}]"
        return [rf"[^\w{rest}]", f"{others}(?<![{rest}])" if rest else others]
    letters = r"[^\W_]" if "N" in properties else rf"[^\W_{numbers}]"
    return [letters, f"[{rest}]"] if rest else [letters]


def _ascii_first(negated: bool, body: str, choices: list[str]) -> list[str]:
    """The same with a class for ASCII in front: most text needs no look at the long lists."""
    inside = _ascii_body(body)
    named = set(re.findall(f"[{inside}]", _ASCII)) if inside else set()
    members = [char for char in _ASCII if (char in named) != negated]
    if not members:
        return choices
    return [f"[{_escaped(members)}]", *(rf"(?![\x00-\x7f]){choice}" for choice in choices)]


def _ascii_body(body: str) -> str:
    r"""The inside of a class with the ASCII characters of its properties and of `\s`."""
    named = _PROPERTY.sub(lambda found: _ascii_text(found[1]), body)
    return named.replace(r"\s", r"\t-\r\x20")


def _ascii_text(category: str) -> str:
    return _escaped(char for char in _ASCII if unicodedata.category(char).startswith(category))


def _escaped(chars: Iterable[str]) -> str:
    return "".join(f"\\x{ord(char):02x}" for char in chars)


def _joined(choices: list[str], repeated: bool) -> str:
    if len(choices) == 1:
        return choices[0] + "+" * repeated
    if repeated:
        return f"(?:{'|'.join(c + '++' for c in choices)})++"
    return f"(?:{'|'.join(choices)})"
