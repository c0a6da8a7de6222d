"""The tools of one request, for one template: what reads the calls and what constrains them.

Dialects are imported where they are used: every chat passes here, and most have no tools.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from octavo.errors import RequestError, UnsupportedError
from octavo.text.split import ContentParser, ThoughtCalls
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import ChatRequest, GrammarSpec, ToolChoice, Trigger

if TYPE_CHECKING:
    from octavo.text.formats._declared import Tools
    from octavo.text.formats._dialect import Dialect

ANYTHING = "<[*]>*"  # tokens
_MAX_TEXTS = 64
_Key = tuple[str, str, bool, tuple[tuple[str, str], ...]]
_texts: WeakKeyDictionary[Tokenizer, OrderedDict[_Key, str]] = WeakKeyDictionary()
_lock = threading.Lock()


class Calling:
    """How the model calls the tools of a request."""

    def __init__(
        self,
        tools: Tools,
        dialect: Dialect | None,
        choice: ToolChoice,
        tokenizer: Tokenizer,
        source: str,
    ) -> None:
        """`source`: text of the template, which the dialect follows."""
        self._tools = tools
        self._source = source
        self._dialect = dialect
        self._choice = choice
        self._tokenizer = tokenizer

    @classmethod
    def of(cls, request: ChatRequest, template: Template, tokenizer: Tokenizer) -> Calling | None:
        """None: the request has no tools, or the model must not call any.

        Raises:
            RequestError: a declaration is wrong, or the tool that must be called is not there.
            UnsupportedError: the template cannot show tools to the model, or a call is required
                and the template speaks no dialect that is known.
        """
        choice = request.tool_choice
        if not request.tools and choice.mode != "required":
            return None
        from octavo.text import formats
        from octavo.text.formats._declared import Tools

        tools = Tools(request.tools)
        if choice.mode == "required" and not (len(tools) and choice.name in ("", *_names(tools))):
            wanted = f"tool {choice.name!r}" if choice.name else "a tool"
            raise RequestError(f"{wanted} has to be called and is not declared", "Declare it.")
        if not len(tools) or choice.mode == "none":
            return None
        if not template.has_tools:
            raise UnsupportedError(
                "This model's chat template has no place for tools", "Leave the tools out."
            )
        dialect = formats.of_template(template.source)
        if dialect is None and choice.mode == "required":
            raise UnsupportedError(
                "It is not known how this model writes calls, so none can be required",
                "Use tool_choice auto.",
            )
        return cls(tools, dialect, choice, tokenizer, template.source)

    def parser(self, in_parts: bool = False) -> ContentParser | None:
        """A parser of the answer; None: calls come as text, as the model writes them.

        `in_parts`: arguments are shown while they are written. Only for calls that are
        constrained: what was shown cannot be taken back.
        """
        return self._dialect.make_parser(self._tools, in_parts) if self._dialect else None

    def thought_calls(self) -> ThoughtCalls | None:
        """What finds a call that ends the thinking; None: it stays thinking."""
        dialect = self._dialect
        if dialect is None or not self._choice.in_thinking:
            return None
        return ThoughtCalls(
            dialect.opening, lambda: dialect.make_parser(self._tools), self._tools.is_sound
        )

    def grammar(
        self, reasoning_tags: tuple[str, str] | None, in_reasoning: bool
    ) -> GrammarSpec | None:
        """What a call must look like; None: nothing is constrained.

        Raises:
            RequestError: a schema cannot be made into a grammar; the message says which.
        """
        from octavo.text.formats._declared import Tools
        from octavo.text.formats._schemas import usable

        choice, dialect = self._choice, self._dialect
        is_required = choice.mode == "required"
        if dialect is None or not (choice.constrain or is_required):
            return None
        names = [choice.name] if choice.name else _names(self._tools)
        checked = Tools(())
        checked.add(*(usable(tool) for tool in self._tools.only(names)))
        if not is_required:
            text = self._text(dialect, checked, "calls")
            trigger = Trigger(dialect.opening, dialect.only_first, reasoning_tags, in_reasoning)
            return GrammarSpec("lark", text, trigger, calm=True)
        # The thinking ends with a tag, and a line break or two.
        blanks = r"/\n{0,2}/ " if in_reasoning else ""
        following = "calls" if choice.constrain else ANYTHING
        text = self._text(dialect, checked, f"{blanks}OPENING {following}")
        waits = Trigger("", False, reasoning_tags, True) if in_reasoning else None
        return GrammarSpec("lark", text, waits, calm=choice.constrain)

    def _text(self, dialect: Dialect, tools: Tools, start: str) -> str:
        """The whole grammar, checked. The latest ones are kept: agents repeat their tools."""
        declared = tuple((tool.name, json.dumps(tool.parameters)) for tool in tools)
        key = (self._source, start, self._choice.parallel, declared)
        with _lock:
            kept = _texts.setdefault(self._tokenizer, OrderedDict())
            if key in kept:
                kept.move_to_end(key)
                return kept[key]
        text = self._write(dialect, tools, start)
        with _lock:
            kept[key] = text
            if len(kept) > _MAX_TEXTS:
                kept.popitem(last=False)
        return text

    def _write(self, dialect: Dialect, tools: Tools, start: str) -> str:
        text = self._rules(dialect, tools, start)
        if not (fault := _fault(text)):
            return text
        for tool in tools:
            if reason := _fault(self._rules(dialect, tools.only([tool.name]), start)):
                raise RequestError(
                    f"The schema of tool {tool.name!r} cannot be used: {reason}",
                    "Correct or simplify the parameters of the tool.",
                )
        raise RequestError(f"The tools cannot be used together: {fault}", "Declare fewer tools.")

    def _rules(self, dialect: Dialect, tools: Tools, start: str) -> str:
        from octavo.text.formats._lark import Lark

        controls = {self._tokenizer.token_text(id): id for id in self._tokenizer.control_ids}
        lark = Lark(controls)
        dialect.add_rules(lark, tools, self._choice.parallel)
        lark.add("start", start.replace("OPENING", lark.tag(dialect.opening)))
        return lark.text


def _names(tools: Tools) -> list[str]:
    return [tool.name for tool in tools]


@lru_cache(256)
def _fault(grammar: str) -> str:
    """Why a grammar cannot be compiled; "" if it can."""
    from llguidance import LLMatcher

    found = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(grammar))
    return "" if found.startswith("WARNING") else found.split("\n")[0]
