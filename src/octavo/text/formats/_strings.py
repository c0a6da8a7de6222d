"""Schemas of strings as patterns of raw text, for dialects that write strings without quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MAX_LENGTH = 2000  # longer limits make slow automata; such a text is not limited


def raw_string(schema: Mapping[str, Any], end: str) -> str | None:
    """A terminal for the text of a string and its `end`, or None if any text will do.

    `end` is the expression of what follows the text and cannot be in it; "": nothing is.
    """
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    parts = []
    if 0 < low <= _MAX_LENGTH or (high is not None and high <= _MAX_LENGTH):
        most = "" if high is None or high > _MAX_LENGTH else high
        parts.append(f"/(?s:.){{{min(low, _MAX_LENGTH)},{most}}}{end}/")
    if (pattern := schema.get("pattern")) is not None:
        parts.append(_searched(pattern, end))
    if not parts:
        return None
    return " & ".join([*parts, f"~/(?s:.*){end}(?s:.)(?s:.*)/"] if end else parts)


def _searched(pattern: str, end: str) -> str:
    """A text in which the pattern is found somewhere; `^` and `$` at its ends hold it there."""
    starts, ends = pattern.startswith("^"), re.search(r"(?<!\\)(?:\\\\)*\$\Z", pattern)
    inner = pattern[starts : -1 if ends else None]
    before, after = "" if starts else "(?s:.*)", "" if ends else "(?s:.*)"
    text = f"{before}(?:{inner}){after}"
    # A slash would end the expression; a line break has to be spelled.
    text = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", text).replace("\n", r"\n")
    return f"/{text}{end}/"
