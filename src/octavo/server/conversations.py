"""What a server remembers of its chats, so that their prompts keep the same beginning.

Only what begins alike is found in the cache. Clients change more than they know: they leave out
the thinking of earlier answers, write defaults into the calls of tools, or put a different header
before each system message. All this is mended here. For what is left, this says what changed and
what it cost.

Chats are remembered as digests, thinking and calls as text; all are bounded, nothing is written to
disk.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo.chat import Answer
from octavo.text.template import Template
from octavo.types import ChatRequest, Message, ToolCall, Usage

MAX_CHATS = 64
MAX_THINKING_BYTES = 16 << 20
MAX_CALL_BYTES = 4 << 20
# Less lost than this is no break: the last message was edited, or the answer is asked for again.
SLACK_TOKENS = 256
CAUSES = ("system", "tools", "message", "thinking", "template", "snapshot", "evicted")
_SYSTEM = ("system", "developer")
# Claude Code's attribution: key=value pairs that differ in every request.
_ATTRIBUTION = re.compile(r"\s*x-anthropic-billing-header:(?:\s*[\w.-]+=[^;\n]*;?)*\s*")

Digest = bytes


@dataclass(frozen=True)
class Change:
    """What is different from an earlier request of the same conversation."""

    cause: str  # one of CAUSES
    text: str


@dataclass(eq=False)
class _Chat:
    """One request, as digests. `plain` are those of the turns without their thinking."""

    tools: Digest
    system: Digest
    turns: list[Digest]
    plain: list[Digest]
    roles: list[str]
    n_tokens: int = 0  # of its prompt, when it is known


class Turn:
    """One request on its way. Its end is told once for each answer."""

    def __init__(self, owner: Conversations, chat: _Chat, last: Message, past: _Chat | None):
        self._owner = owner
        self._chat = chat
        self._last = last
        self._past_tokens = past.n_tokens if past else 0
        self._change = _compare(past, chat) if past else None

    def end(self, answer: Answer) -> None:
        """Remember what the next request will come with."""
        self._chat.n_tokens = answer.usage.prompt_tokens
        said = Message("assistant", answer.content, tool_calls=tuple(answer.tool_calls))
        self._owner.remember(self._last, said, answer.reasoning)
        self._owner.remember_calls(answer.tool_calls)

    def broke(self, usage: Usage) -> Change | None:
        """Why much less was reused than the conversation had; None: it was not so."""
        expected = min(self._past_tokens, usage.prompt_tokens)
        if usage.cached_tokens >= expected - SLACK_TOKENS:
            return None
        change = self._change
        if change is None and usage.reuse_cause == "snapshot":
            change = Change("snapshot", usage.reuse_reason)
        if change is None and usage.reuse_cause == "diverged":
            change = Change("template", "the template renders earlier messages in another way")
        if change is None:
            change = Change("evicted", usage.reuse_reason or "it was given up for others")
        return replace(change, text=f"reuse broke at token {usage.cached_tokens}: {change.text}")


class _Texts:
    """Texts by a key, bounded in bytes; those that were not used for longest go."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._kept: OrderedDict[Any, str] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def put(self, key: Any, text: str) -> None:
        with self._lock:
            self._n_bytes += _n_bytes(text) - _n_bytes(self._kept.pop(key, ""))
            self._kept[key] = text
            while self._n_bytes > self._max_bytes:
                self._n_bytes -= _n_bytes(self._kept.popitem(last=False)[1])

    def get(self, key: Any) -> str:
        """The text, or an empty one."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key, "")


class Conversations:
    """The chats of one model. Any thread may use it.

    Without `mends` prompts are left as they come.
    """

    def __init__(self, max_thinking_bytes: int = MAX_THINKING_BYTES, *, mends: bool = True) -> None:
        self._mends = mends
        self._chats: deque[_Chat] = deque(maxlen=MAX_CHATS)
        self._thinking = _Texts(max_thinking_bytes)
        self._calls = _Texts(MAX_CALL_BYTES)  # arguments, by the id of the call
        self._lock = threading.Lock()

    def steady(self, request: ChatRequest, template: Template | None) -> ChatRequest:
        """The request as it was rendered before, as far as that can be told.

        Headers that always change go, thinking that the client left out comes back, calls are
        those that the model wrote, and the template keeps the thinking if it can.
        """
        if not self._mends:
            return request
        messages = [_without_attribution(m) if m.role in _SYSTEM else m for m in request.messages]
        messages = [m for m in messages if m.role not in _SYSTEM or m.content]
        messages = [self._as_called(m) if m.tool_calls else m for m in messages]
        if template is None or template.reasoning_tags is None:
            return replace(request, messages=tuple(messages))
        for i, message in enumerate(messages):
            if i and message.role == "assistant" and not message.reasoning:
                thinking = self._recall(messages[i - 1], message)
                messages[i] = replace(message, reasoning=thinking)
        args = request.template_args
        if template.keeps_thinking:
            args = {"preserve_thinking": True, **args}
        return replace(request, messages=tuple(messages), template_args=args)

    def begin(self, request: ChatRequest) -> Turn:
        """Note a request, and compare it with the earlier one that it continues."""
        chat = _digested(request)
        with self._lock:
            past = max(self._chats, key=lambda p: _common(p.plain, chat.plain), default=None)
            if past is not None and not _common(past.plain, chat.plain):
                past = None
            self._chats.append(chat)
        return Turn(self, chat, request.messages[-1], past)

    def remember(self, asked: Message, said: Message, thinking: str) -> None:
        """Keep the thinking of an answer, to put it back when the answer comes without."""
        if thinking.strip():
            self._thinking.put(_key(asked, said), thinking)

    def remember_calls(self, calls: Sequence[ToolCall]) -> None:
        """Keep what the model wrote, for when it comes back with more in it."""
        for call in calls:
            if call.id:
                self._calls.put(call.id, call.arguments)

    def _recall(self, asked: Message, said: Message) -> str:
        return self._thinking.get(_key(asked, said))

    def _as_called(self, message: Message) -> Message:
        """The message with the arguments that the model wrote, where a client only added some."""
        calls = []
        for call in message.tool_calls:
            text = self._calls.get(call.id)
            calls.append(replace(call, arguments=text) if _only_added(text, call) else call)
        return replace(message, tool_calls=tuple(calls))


def _n_bytes(text: str) -> int:
    """Its size. A model may write half of a surrogate pair as an escape."""
    return len(text.encode("utf-8", "surrogatepass"))


def _without_attribution(message: Message) -> Message:
    found = _ATTRIBUTION.match(message.content)
    return replace(message, content=message.content[found.end() :]) if found else message


def _compare(past: _Chat, now: _Chat) -> Change | None:
    if past.tools != now.tools:
        return Change("tools", "the tools changed")
    if past.system != now.system:
        return Change("system", "system message changed")
    n = _common(past.plain, now.plain)
    if n < min(len(past.plain), len(now.plain)):
        return Change("message", f"message {n + 1} ({now.roles[n]}) changed")
    n = _common(past.turns, now.turns)
    if n < min(len(past.turns), len(now.turns)):
        return Change("thinking", f"the thinking of message {n + 1} changed")
    return None


def _common(a: Sequence[Digest], b: Sequence[Digest]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _digested(request: ChatRequest) -> _Chat:
    first = next((i for i, m in enumerate(request.messages) if m.role not in _SYSTEM), 0)
    leading, turns = request.messages[:first], request.messages[first:]
    return _Chat(
        tools=_digest([dict(tool) for tool in request.tools]),
        system=_digest([m.content for m in leading]),
        turns=[_digest([*_facts(m), m.reasoning.strip()]) for m in turns],
        plain=[_digest(_facts(m)) for m in turns],
        roles=[m.role for m in turns],
    )


def _facts(message: Message) -> list[Any]:
    """What of a message the model reads, without thinking and blanks around."""
    calls = [[call.name, _arguments(call)] for call in message.tool_calls]
    return [message.role, message.content.strip(), calls]


def _arguments(call: ToolCall) -> Any:
    """As values: clients write the same JSON in other ways."""
    try:
        return json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return call.arguments


def _only_added(text: str, call: ToolCall) -> bool:
    """Whether a call still has all these arguments."""
    if not text or text == call.arguments:
        return False
    ours, theirs = _arguments(replace(call, arguments=text)), _arguments(call)
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return False
    return all(name in theirs and theirs[name] == value for name, value in ours.items())


def _key(asked: Message, said: Message) -> Digest:
    return _digest([_facts(asked), _facts(said)])


def _digest(value: Sequence[Any] | Mapping[str, Any]) -> Digest:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
