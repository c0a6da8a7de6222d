"""One script through every API, streamed and whole, read by the clients' own packages."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai

from serving import ScriptedSession, serving

QUESTION: Any = [{"role": "user", "content": "Say it."}]
KINDS = ("chat", "messages", "responses")


@dataclass
class Said:
    """What a client got; `finish` in the words of its API, `raw` the last object."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str | None = None
    raw: Any = None


class Clients:
    """Asks at one address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.openai = openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=address, api_key="any", max_retries=0)

    def ask(self, kind: str, stream: bool, **options: Any) -> Said:
        """`options`: messages, max_tokens, tools (OpenAI's form), stop, body (further fields)."""
        options = {"messages": QUESTION, "body": {}, **options}
        return getattr(self, f"_{kind}")(stream, **options)

    def _chat(self, stream: bool, messages: Any, body: Any, **options: Any) -> Said:
        given = {"model": "m", "messages": messages, "extra_body": body, **options}
        if not stream:
            choice: Any = self.openai.chat.completions.create(**given).choices[0]
            raw = choice
        else:
            with self.openai.chat.completions.stream(**given) as events:
                chunks = [e.chunk for e in events if e.type == "chunk"]
                choice = events.get_final_completion().choices[0]
            raw = chunks[-1].choices[0]
        message = choice.message
        calls = [(c.function.name, read(c.function.arguments)) for c in message.tool_calls or ()]
        reasoning = getattr(message, "reasoning_content", None) or ""
        return Said(message.content or "", reasoning, calls, choice.finish_reason, raw)

    def _messages(self, stream: bool, messages: Any, body: Any, **options: Any) -> Said:
        given = {"model": "m", "messages": messages, "max_tokens": 4000, "extra_body": body}
        if stop := options.pop("stop", None):
            given["stop_sequences"] = stop
        if tools := options.pop("tools", None):
            inner = [tool.get("function", tool) for tool in tools]
            given["tools"] = [
                {"name": t["name"], "input_schema": t.get("parameters") or {"type": "object"}}
                for t in inner
            ]
        given |= options
        if stream:
            with self.anthropic.messages.stream(**given) as events:
                message: Any = events.get_final_message()
        else:
            message = self.anthropic.messages.create(**given)
        said = Said(finish=message.stop_reason, raw=message)
        for block in message.content:
            if block.type == "text":
                said.content += block.text
            elif block.type == "thinking":
                said.reasoning += block.thinking
            else:
                said.calls.append((block.name, block.input))
        return said

    def _responses(self, stream: bool, messages: Any, body: Any, **options: Any) -> Said:
        options["max_output_tokens"] = options.pop("max_tokens", 4000)
        if tools := options.pop("tools", None):
            options["tools"] = [{"type": "function", **t.get("function", t)} for t in tools]
        extra = dict(body)
        if stop := options.pop("stop", None):
            extra["stop"] = stop
        given: Any = {"model": "m", "input": messages, "extra_body": extra, **options}
        if stream:
            events = list(self.openai.responses.create(stream=True, **given))
            response = events[-1].response
        else:
            response = self.openai.responses.create(**given)
        said = Said(finish=response.status, raw=response)
        for item in response.output:
            if item.type == "message":
                said.content += item.content[0].text
            elif item.type == "reasoning":
                said.reasoning += "".join(part.text for part in item.content or ())
            elif item.status == "completed":
                said.calls.append((item.name, read(item.arguments)))
        return said

    def close(self) -> None:
        self.openai.close()
        self.anthropic.close()


def read(arguments: str) -> Any:
    """Arguments, or None where they are no JSON: of a call that was cut off."""
    try:
        return json.loads(arguments)
    except ValueError:
        return None


class Everywhere:
    """Servers and clients that live as long as a module of tests: one for each template."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._made: dict[str, tuple[ScriptedSession, Clients]] = {}

    def at(self, template: str) -> tuple[ScriptedSession, Clients]:
        """The session of a template, asked nothing and with nothing to say, and its clients."""
        if template not in self._made:
            session = ScriptedSession(template, context=1 << 16)
            address = self._stack.enter_context(serving(session))
            clients = Clients(address)
            self._stack.callback(clients.close)
            self._made[template] = session, clients
        session, clients = self._made[template]
        session.start_anew()
        return session, clients

    def ask(self, template: str, *scripts: Any, **options: Any) -> dict[str, Said]:
        """What six ways of asking make of the same scripts: (kind, streamed or whole) -> answer."""
        session, clients = self.at(template)
        ways = [(kind, stream) for kind in KINDS for stream in (False, True)]
        session.start_anew(*[script for _ in ways for script in scripts])
        return {
            f"{kind}, {'streamed' if stream else 'whole'}": clients.ask(kind, stream, **options)
            for kind, stream in ways
        }

    def close(self) -> None:
        self._stack.close()
