"""The model's own chat template: messages -> text -> ids. The only renderer.

Templates come with the model file and are not trusted: see `sandbox`. The words of users are not
trusted either: `prompt` keeps the names of control tokens in them from becoming those tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from octavo.errors import RequestError, TemplateError
from octavo.gguf.meta import Metadata
from octavo.text.messages import Habits, normalise
from octavo.text.tokenizer import Tokenizer
from octavo.types import ChatRequest, Message

if TYPE_CHECKING:
    import jinja2

REASONING_TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))

# A prompt repeats what it was given once or twice; the rest is the template's own text.
_OWN_CHARS = 1 << 20
_CHARS_PER_CHAR = 8
_MAX_SOURCE_CHARS = 1 << 18  # usual ones have 2 000 to 20 000

# Unicode promises never to give this code point a meaning, so no text needs it.
_MARK = "\ufdd0"

_ASKED = (Message("user", "q"),)


class Prompt(NamedTuple):
    """What the model reads. `in_reasoning`: it ends inside of the thinking tags."""

    text: str
    ids: list[int]
    in_reasoning: bool


class Template:
    """One chat template. Compiled when first used; safe to share between threads."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        self.source = source
        self._tokenizer = tokenizer

    @classmethod
    def from_metadata(cls, metadata: Metadata, tokenizer: Tokenizer) -> Template | None:
        """The file's template; None if it has none."""
        source = metadata.get("tokenizer.chat_template", str, "")
        return cls(source, tokenizer) if source else None

    def prompt(self, request: ChatRequest) -> Prompt:
        """What to give the model for this chat.

        Raises:
            TemplateError: the template fails, or refuses the messages.
        """
        values = dict(request.template_args)
        if request.thinking is not None:
            values["enable_thinking"] = request.thinking
        text, ids = self._render_both(request.messages, request.tools, values)
        return Prompt(text, ids, self.opens_reasoning(text))

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        **values: Any,
    ) -> str:
        """The prompt as text. `values` are further variables of the template.

        Raises:
            TemplateError: the template fails, or refuses the messages.
        """
        turns = normalise(messages, self.habits)
        return self.render_raw(turns, list(tools) or None, **{**self._defaults, **values})

    def render_ids(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        **values: Any,
    ) -> list[int]:
        """The prompt as ids, BOS in front if the model wants it.

        Control tokens come from the template alone: where a message, tool or value spells one,
        it stays text.

        Raises:
            TemplateError: the template fails, or refuses the messages.
        """
        return self._render_both(messages, tools, values)[1]

    def render_raw(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **values: Any,
    ) -> str:
        """Exactly what the template makes of these variables and no others.

        Raises:
            TemplateError: with the template's line and the reason.
        """
        from octavo.text.sandbox import RefusedError, run_template

        given = {"messages": messages, "tools": tools, **values}
        limit = _OWN_CHARS + _CHARS_PER_CHAR * sum(map(len, _strings(given)))
        try:
            return run_template(self._compiled, given, limit)
        except RefusedError as refusal:
            raise TemplateError(
                f"The chat template refuses these messages: {refusal}{_place(refusal)}",
                "Change the order or kind of the messages, or give another chat template.",
            ) from None
        except Exception as error:
            raise TemplateError(
                f"The chat template failed{_place(error)}: {error}",
                "The template in the model file does not fit these messages or is broken.",
            ) from None

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether a prompt ends with the opening tag, so that the answer begins inside."""
        tags = self.reasoning_tags
        return tags is not None and prompt.rstrip().endswith(tags[0])

    @cached_property
    def reasoning_tags(self) -> tuple[str, str] | None:
        """The texts around thinking, or None if the template knows none."""
        return next((tags for tags in REASONING_TAGS if any(t in self.source for t in tags)), None)

    @cached_property
    def has_thinking_switch(self) -> bool:
        """Whether `enable_thinking` changes anything."""
        on = self._probe(_ASKED, enable_thinking=True)
        return on != self._probe(_ASKED, enable_thinking=False)

    @cached_property
    def keeps_thinking(self) -> bool:
        """Whether `preserve_thinking` keeps the thinking of earlier turns in the prompt."""
        past = (*_ASKED, Message("assistant", "a", reasoning="thought"), *_ASKED)
        return "thought" in self._probe(past, preserve_thinking=True)

    @cached_property
    def has_tools(self) -> bool:
        """Whether tools given to the template reach the model."""
        tool = {"type": "function", "function": {"name": "probe_tool", "parameters": {}}}
        return "probe_tool" in self._probe(_ASKED, (tool,))

    @cached_property
    def habits(self) -> Habits:
        """Which orders of messages the template accepts."""
        system, user = Message("system", "probed"), Message("user", "probed")
        answer = Message("assistant", "a")
        return Habits(
            system="probed" in self._probe((system, *_ASKED)),
            later_system="probed" in self._probe((*_ASKED, answer, system, *_ASKED)),
            repeated_user="probed" in self._probe((*_ASKED, user)),
        )

    def _probe(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), **values: Any
    ) -> str:
        """What the template makes of made-up messages; "" if it refuses them."""
        turns = normalise(messages, Habits())
        try:
            return self.render_raw(turns, list(tools) or None, **{**self._defaults, **values})
        except TemplateError:
            return ""

    def _render_both(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        values: Mapping[str, Any],
    ) -> tuple[str, list[int]]:
        turns = normalise(messages, self.habits)
        given = {**values, "messages": turns, "tools": list(tools) or None}
        mark, given = self._with_marks(given)
        text = self.render_raw(**{**self._defaults, **given})
        ids = self._tokenizer.encode(text, parse_special=True, unmark=mark)
        return text.replace(mark, "") if mark else text, self._tokenizer.with_bos(ids)

    def _with_marks(self, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """`given` with a mark inside each text of a control token, and the mark ("": none).

        The mark goes after the first character: the template sees a text of the same beginning
        and end, and the tokenizer no token.
        """
        find = self._tokenizer.control_texts.find
        strings = _strings(given)
        if not any(find(text) for text in strings):
            return "", given
        mark = _MARK
        while any(mark in text for text in strings):
            mark += mark

        def change(text: str) -> str:
            for start, _ in reversed(find(text)):
                text = text[: start + 1] + mark + text[start + 1 :]
            return text

        try:
            return mark, _mapped(given, change)
        except RecursionError:
            raise RequestError("The messages or tools are nested too deeply") from None

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """Variables that templates expect besides the messages."""
        tokenizer = self._tokenizer
        named = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
        texts = {
            name: "" if token is None else tokenizer.token_text(token)
            for name, token in named.items()
        }
        return {"add_generation_prompt": True, **texts}

    @cached_property
    def _compiled(self) -> jinja2.Template:
        from jinja2 import TemplateSyntaxError

        from octavo.text.sandbox import compile_template

        if len(self.source) > _MAX_SOURCE_CHARS:
            raise TemplateError(
                f"The chat template has {len(self.source)} characters",
                f"At most {_MAX_SOURCE_CHARS} are accepted.",
            )
        try:
            return compile_template(self.source)
        except TemplateSyntaxError as error:
            raise TemplateError(
                f"The chat template is not valid in line {error.lineno}: {error.message}",
                "The template in the model file is broken; give another one.",
            ) from None
        except Exception as error:  # what Python's compiler says of the code made of it
            raise TemplateError(
                f"The chat template cannot be compiled: {error}",
                "It is nested too deeply or too large; give another one.",
            ) from None


def _strings(value: Any) -> list[str]:
    """Every text inside of JSON-like values, keys too."""
    texts: list[str] = []
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, Mapping):
            rest += item.keys()
            rest += item.values()
        elif isinstance(item, (list, tuple)):
            rest += item
    return texts


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """JSON-like values with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_mapped(key, change): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(item, change) for item in value]
    return value


def _place(error: BaseException) -> str:
    """The words " in line N" for the template's line of an error, or nothing."""
    line, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<template>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return f" in line {line}" if line else ""
