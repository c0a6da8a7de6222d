"""Tools in namespaces, as OpenAI's Responses API has them: one list for the model, and back.

Codex groups its own tools so, and those of MCP servers. The model sees each of them under a name
made of both; a call of it goes to the client, and comes back, with the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Origin:
    """A tool as its client knows it. `is_custom`: its argument is one text."""

    name: str
    namespace: str = ""
    is_custom: bool = False


def joined(name: str, namespace: object) -> str:
    """The name under which the model knows a tool."""
    if not namespace or not isinstance(namespace, str):
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def flat(tools: Iterable[Tool]) -> Iterator[Tool]:
    """All tools, those of namespaces under joined names."""
    for tool in tools:
        if tool.get("type") != "namespace":
            yield tool
            continue
        for inner in _inner(tool):
            yield {**inner, "name": joined(inner["name"], tool.get("name"))}


def origins(tools: Iterable[Tool]) -> dict[str, Origin]:
    """The tools by the names under which the model knows them."""
    found = {}
    for tool in tools:
        namespace = tool.get("name") if tool.get("type") == "namespace" else ""
        for inner in _inner(tool) if namespace else (tool,):
            name, is_custom = str(inner.get("name")), inner.get("type") == "custom"
            found[joined(name, namespace)] = Origin(name, str(namespace), is_custom)
    return found


def chosen(choice: str | Tool | None, tools: Iterable[Tool]) -> str | Tool | None:
    """A choice of tools by the names under which the model knows them.

    Clients name the namespace beside the tool, or leave it out where only one has such a tool; a
    list of allowed ones may have a namespace with all of its tools.
    """
    if not isinstance(choice, Mapping):
        return choice
    known = origins(tools)
    if choice.get("type") != "allowed_tools":
        meant = _meant(choice, known)
        return meant[0] if len(meant) == 1 else choice
    inner = choice.get("allowed_tools", choice)
    if not isinstance(inner, Mapping):
        return choice
    given = [tool for tool in _listed(inner.get("tools")) if isinstance(tool, Mapping)]
    allowed = [meant for tool in given for meant in _meant(tool, known)]
    return {**inner, "type": "allowed_tools", "tools": allowed}


def _meant(tool: Tool, known: Mapping[str, Origin]) -> list[Tool]:
    """The tools that one entry of a choice means; itself where it is none of a namespace."""
    name, namespace = tool.get("name"), tool.get("namespace")
    if tool.get("type") == "namespace":
        names = [k for k, origin in known.items() if origin.namespace and origin.namespace == name]
        return [{"type": "function", "name": k} for k in names]
    if not isinstance(name, str) or (name in known and not namespace):
        return [tool]
    if namespace:
        return [{**tool, "name": joined(name, namespace)}]
    names = [k for k, origin in known.items() if origin.name == name]
    return [{**tool, "name": k} for k in names] or [tool]


def added(items: object) -> list[Tool]:
    """The tools that stand in the input of a request, not beside it."""
    return [
        tool
        for item in _listed(items)
        if isinstance(item, Mapping) and item.get("type") == "additional_tools"
        for tool in _listed(item.get("tools"))
        if isinstance(tool, Mapping)
    ]


def _inner(namespace: Tool) -> Iterator[Tool]:
    for tool in _listed(namespace.get("tools")):
        if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
            yield tool


def _listed(given: object) -> list[Any]:
    return given if isinstance(given, list) else []
