"""Whether a tool's schema can be made into a grammar, and which keyword is to blame if not."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from octavo.errors import RequestError
from octavo.text.formats._declared import Tool

LOG = logging.getLogger(__name__)

_NAMES = ("properties", "$defs", "definitions", "patternProperties")  # keys below are no keywords
_MAX_TRIALS = 400


def usable(tool: Tool) -> Tool:
    """The tool as a grammar can have it.

    Keywords that only narrow what is allowed and that the grammar cannot express (`not`, `if`,
    `uniqueItems`, unknown formats, patterns that look around) do not hold; the log says so, once.

    Raises:
        RequestError: the schema is wrong; the message names the tool and the keyword.
    """
    cleaned, notes = _checked(tool.name, json.dumps(tool.parameters))
    for note in notes:
        _warn_once(tool.name, note)
    return tool if cleaned is None else Tool(tool.name, json.loads(cleaned))


@lru_cache(512)
def _checked(name: str, schema: str) -> tuple[str | None, tuple[str, ...]]:
    """(the schema without what cannot be had, or None if nothing was taken away; what is lost)."""
    fault, notes = _validate(schema)
    if not fault:
        return None, notes
    value = json.loads(schema)
    place, keyword = _culprit(value)
    if keyword == "pattern" and "not supported" in fault:
        _node(value, place).pop(keyword)
        cleaned, more = _checked(name, json.dumps(value))
        note = f"pattern at {_shown(place)} looks around"
        return cleaned or json.dumps(value), (note, *more)
    raise RequestError(
        f"The schema of tool {name!r} cannot be used: {keyword or 'it'} at {_shown(place)}: "
        f"{_reason(fault)}",
        "Correct the parameters of the tool.",
    )


@lru_cache(512)
def _warn_once(name: str, note: str) -> None:
    LOG.warning("tool %s: part of its schema is not enforced: %s", name, note)


def _validate(schema: str) -> tuple[str, tuple[str, ...]]:
    """(fault or "", warnings)."""
    from llguidance import LLMatcher

    value = json.loads(schema)
    # What can never be satisfied is an error only where it is required.
    names = list(value["properties"]) if isinstance(value.get("properties"), dict) else []
    value = {"type": "object", **value, "required": names, "x-guidance": {"lenient": True}}
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(value))
    is_wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    return (messages[0], ()) if is_wrong else ("", tuple(messages))


def _reason(fault: str) -> str:
    lines = [line.strip() for line in fault.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("error:")), lines[0])
    return said.removeprefix("error:").strip()


def _culprit(schema: Any) -> tuple[tuple[Any, ...], str]:
    """Place and keyword without which there would be no fault; ("", "") if it is not one alone."""
    text = json.dumps(schema)
    for trial, (place, keyword) in enumerate(_keywords(schema, ())):
        if trial == _MAX_TRIALS:
            break
        changed = json.loads(text)
        del _node(changed, place)[keyword]
        if not _validate(json.dumps(changed))[0]:
            return place, keyword
    return (), ""


def _keywords(node: Any, place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every keyword of a schema, innermost first."""
    if isinstance(node, list):
        for i, item in enumerate(node):
            yield from _keywords(item, (*place, i))
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        yield from _keywords(value, (*place, key))
    if not place or place[-1] not in _NAMES:
        for key in sorted(node, key=lambda key: str(key) == "type"):
            yield place, key


def _node(schema: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        schema = schema[key]
    return schema


def _shown(place: tuple[Any, ...]) -> str:
    """A place as people write it: properties left out."""
    return ".".join(str(key) for key in place if key != "properties") or "its top"
