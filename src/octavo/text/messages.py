"""Chat messages as templates want them: plain mappings, in an order that the template accepts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from octavo.record import dataclass
from octavo.types import Message, ToolCall

_SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True)
class Habits:
    """What a template accepts.

    `system`: a system message at the beginning. `later_system`: one further on too.
    `repeated_user`: two user messages in a row.
    """

    system: bool = True
    later_system: bool = True
    repeated_user: bool = True


def normalise(messages: Sequence[Message], habits: Habits) -> list[dict[str, Any]]:
    """The messages as mappings.

    System and developer messages at the beginning become one system message. Later ones stay
    where they are, because moving them would change the prompt from its beginning and make
    everything cached useless; where the template refuses them they become marked user text.
    """
    n_leading = next(
        (i for i, m in enumerate(messages) if m.role not in _SYSTEM_ROLES), len(messages)
    )
    leading = "\n\n".join(m.content for m in messages[:n_leading] if m.content)
    turns: list[dict[str, Any]] = []
    if leading:
        turns.append({"role": "system" if habits.system else "user", "content": leading})
    for message in messages[n_leading:]:
        turn = _turn(message, habits)
        if turn["role"] == "user" and _continues(turns, habits):
            turns[-1]["content"] += "\n\n" + turn["content"]
        else:
            turns.append(turn)
    return turns


def _continues(turns: list[dict[str, Any]], habits: Habits) -> bool:
    """Whether a user's text has to join the turn before it."""
    return bool(turns) and turns[-1]["role"] == "user" and not habits.repeated_user


def _turn(message: Message, habits: Habits) -> dict[str, Any]:
    if message.role in _SYSTEM_ROLES:
        if habits.later_system:
            return {"role": "system", "content": message.content}
        text = f"<system-reminder>\n{message.content}\n</system-reminder>"
        return {"role": "user", "content": text}
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        turn["reasoning_content"] = message.reasoning
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
    if message.name:
        turn["name"] = message.name
    return turn


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(text: str) -> Any:
    """The mapping that templates expect; text that is none stays text: the model wrote it so."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
