"""Chat with a model in the terminal.

Type /help for the commands. Ctrl-C stops an answer, Ctrl-D ends the chat. A line that ends with
a backslash goes on in the next one; three double quotes begin and end a longer text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import LoadFlags, Model, SamplingFlags, ThinkingFlags
from octavo.errors import ContextFullError, OctavoError, RequestError, UnsupportedError
from octavo.record import dataclass
from octavo.types import ChatRequest, Message, SamplingParams, ToolCall

if TYPE_CHECKING:
    from octavo.session import Session

FENCE = '"""'


def main(
    model: Model,
    load: LoadFlags,
    sampling: SamplingFlags,
    thinking: ThinkingFlags,
    system: Annotated[str, typer.Option("--system", help="The system message.")] = "",
) -> None:
    """The command."""
    params = sampling.params()
    with screen.loaded(model, load.wishes()) as session:
        if session.template is None:
            raise UnsupportedError(
                "This file has no chat template, so it cannot hold a chat",
                f'Continue a text instead: octavo run {model} --raw -p "..."',
            )
        conversation = Conversation(session, params, system, thinking.think, thinking.think_budget)
        screen.note(f"{session.name}. /help shows the commands, Ctrl-D ends.")
        _talk(conversation)


@dataclass
class Conversation:
    """The messages so far, and how to go on."""

    session: Session
    params: SamplingParams
    system: str = ""
    think: bool | None = None
    think_budget: int | None = None
    messages: list[Message] = field(default_factory=list)
    attached: str = ""  # text of /file, put before the next message

    def ask(self, text: str) -> None:
        """Answer one message and remember both. An answer that failed leaves no trace."""
        content = f"{self.attached}{text}"
        asked = Message("user", content)
        first = (Message("system", self.system),) if self.system else ()
        request = ChatRequest(
            messages=(*first, *self.messages, asked),
            params=self.params,
            thinking=self.think,
            thinking_budget=self.think_budget,
        )
        reply = self.session.ask(request)
        try:
            screen.show(reply)
        except KeyboardInterrupt:
            reply.cancel()
            screen.note("\n(stopped)")
        answer = reply.answer
        if answer.stopped_thinking:
            screen.note(screen.STOPPED_THINKING)
            return
        self.attached = ""
        self.messages += [asked, Message("assistant", answer.content, answer.reasoning)]
        if answer.finish_reason is not None:
            screen.note(screen.summary(answer.usage))


def _talk(conversation: Conversation) -> None:
    if sys.stdin.isatty():
        _load_line_editor()
    while True:
        try:
            text = _read_message()
        except (EOFError, KeyboardInterrupt):
            screen.write("\n")
            return
        try:
            if text.startswith("/"):
                if not _obey(conversation, text):
                    return
            elif text.strip():
                conversation.ask(text)
        except ContextFullError as error:
            screen.note(f"{error.message}\n/reset begins anew, --ctx-size gives more room.")
        except OctavoError as error:
            screen.note(str(error))


def _load_line_editor() -> None:
    """Arrow keys and history for `input`, where Python has readline (not on Windows)."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)


def _read_message() -> str:
    """One message from the terminal, of one or several lines.

    Raises:
        EOFError: the input has ended.
    """
    line = input("> ")
    if line.lstrip().startswith(FENCE):
        lines = [line.lstrip().removeprefix(FENCE)]
        while not lines[-1].rstrip().endswith(FENCE):
            lines.append(input("| "))
        lines[-1] = lines[-1].rstrip().removesuffix(FENCE)
        return "\n".join(lines).strip("\n")
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1].removesuffix("\\")
        lines.append(input("| "))
    return "\n".join(lines)


def _obey(conversation: Conversation, line: str) -> bool:
    """Do what a slash command says; False ends the chat."""
    name, _, rest = line[1:].partition(" ")
    if name in ("quit", "exit", "bye"):
        return False
    command = COMMANDS.get(name)
    if command is None:
        raise RequestError(f"There is no command /{name}", "/help shows the commands.")
    command(conversation, rest.strip())
    return True


def _help(conversation: Conversation, rest: str) -> None:
    """this list"""
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        screen.note(f"/{name:{width}}  {command.__doc__}")
    screen.note(f"/{'quit':{width}}  end the chat")


def _reset(conversation: Conversation, rest: str) -> None:
    """forget the conversation"""
    conversation.messages.clear()
    conversation.attached = ""


def _system(conversation: Conversation, rest: str) -> None:
    """TEXT: set the system message; without text show it"""
    if rest:
        conversation.system = rest
    else:
        screen.note(conversation.system or "(none)")


def _think(conversation: Conversation, rest: str) -> None:
    """on, off, auto, or the most tokens of thinking"""
    if rest.isdecimal():
        conversation.think, conversation.think_budget = True, int(rest)
        return
    choices = {"on": True, "off": False, "auto": None}
    if rest not in choices:
        raise RequestError(f"/think {rest} is not known", "Use on, off, auto or a number.")
    conversation.think, conversation.think_budget = choices[rest], None


def _file(conversation: Conversation, rest: str) -> None:
    """PATH: put a text file before the next message"""
    conversation.attached += f"{Path(rest).name}:\n```\n{_read(rest)}\n```\n\n"
    screen.note(f"{len(conversation.attached)} characters are attached.")


def _save(conversation: Conversation, rest: str) -> None:
    """PATH: write the conversation as JSON"""
    value = {
        "system": conversation.system,
        "messages": [asdict(message) for message in conversation.messages],
    }
    try:
        Path(rest).write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{rest!r} cannot be written: {error}", "Give a path.") from error


def _load(conversation: Conversation, rest: str) -> None:
    """PATH: go on with a conversation that was saved"""
    try:
        value = json.loads(_read(rest))
        messages = [_message(m) for m in value["messages"]]
        system = str(value["system"])
    except (ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{rest!r} holds no conversation", "/save writes such files.") from error
    conversation.messages, conversation.system = messages, system


def _message(value: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(**call) for call in value.pop("tool_calls", ()))
    return Message(**value, tool_calls=calls)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path!r} cannot be read: {error}", "Give a UTF-8 file.") from error


COMMANDS: dict[str, Callable[[Conversation, str], None]] = {
    "help": _help,
    "reset": _reset,
    "system": _system,
    "think": _think,
    "file": _file,
    "save": _save,
    "load": _load,
}
