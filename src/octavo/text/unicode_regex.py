r"""Published pre-tokenizer patterns, compiled with the standard `re`.

They use `\p{L}`-like classes, which `re` lacks, and mean Unicode white space by `\s`, where `re`
adds four control characters. Letters and numbers together are what `re` calls `\w` without the
underscore; classes are spelled with it where they can be, which makes them three times faster
than lists of ranges.
"""

from __future__ import annotations

import re
from functools import cache

from octavo.text.unicode_ranges import class_text

_SPACE = r"\t-\r\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# An escape, a class with its `+` if it has one, or a property outside of a class.
_PARTS = re.compile(
    r"(?P<class>\[\^?(?:\\p\{\w+\}|\\.|[^\]\\])+\]\+?)|(?P<plain>\\[pP]\{\w+\}\+?|\\[sS]\+?)|\\."
)
_PROPERTY = re.compile(r"\\p\{(\w+)\}")


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    r"""Compile a pattern that may use `\p{X}`, `\s` and `\S` in the Unicode sense.

    A class that must be spelled as several is possessive when repeated: it never gives characters
    back. No published pattern needs that.
    """
    return re.compile(_PARTS.sub(_translate, pattern))


def _translate(part: re.Match[str]) -> str:
    if text := part["plain"]:
        body = text.rstrip("+")
        negated = body[1] in "SP"
        return _class(negated, body.lower() if body[1] in "S" else body, text.endswith("+"))
    if text := part["class"]:
        body = text[1 : text.rindex("]")]
        return _class(body.startswith("^"), body.removeprefix("^"), text.endswith("+"))
    return part[0]


def _class(negated: bool, body: str, repeated: bool) -> str:
    """One class: `body` is its inside without the `^`; `repeated` if a `+` follows."""
    properties = set(_PROPERTY.findall(body))
    rest = _PROPERTY.sub("", body).replace(r"\s", _SPACE)
    rest += "".join(class_text(p) for p in sorted(properties - {"L", "N"}))
    numbers = class_text("N")
    if "L" not in properties:
        rest += numbers if "N" in properties else ""
        choices = [f"[^{rest}]"] if negated else [f"[{rest}]"]
    elif negated:
        others = "_" if "N" in properties else f"[_{numbers}]"
        choices = [rf"[^\w{rest}]", f"{others}(?<![{rest}])" if rest else others]
    else:
        choices = [r"[^\W_]" if "N" in properties else rf"[^\W_{numbers}]"]
        choices += [f"[{rest}]"] if rest else []
    if len(choices) == 1:
        return choices[0] + "+" * repeated
    if repeated:
        return f"(?:{'|'.join(c + '++' for c in choices)})++"
    return f"(?:{'|'.join(choices)})"
