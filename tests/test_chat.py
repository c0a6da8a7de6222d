"""chat.py on an engine whose tokens are written down: thinking, budgets, stops, grammars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from octavo.chat import Answer, Chat, Content, Reasoning, Reply
from octavo.errors import ContextFullError, RequestError, UnsupportedError
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import (
    ChatRequest,
    FinishReason,
    GrammarSpec,
    Message,
    SamplingParams,
    Token,
    Usage,
)
from tiny_models import as_metadata
from tiny_vocabulary import byte_level

# Thinks unless told otherwise, as the templates of the Qwen family do.
THINKER = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
<think>
{% if enable_thinking is defined and enable_thinking is false %}

</think>

{% endif %}"""
STUBBORN = THINKER.partition("{% if")[0] + "{# </think> #}"
PLAIN = THINKER.partition("<think>")[0]
END = "<|im_end|>"


class ScriptedStream:
    """The tokens of one script, until it ends or is cancelled."""

    def __init__(self, ids: Sequence[int], finish: FinishReason) -> None:
        self._ids = list(ids)
        self._finish = finish
        self.finish_reason: FinishReason | None = None
        self.n_read = 0

    @property
    def usage(self) -> Usage:
        return Usage(prompt_tokens=5, completion_tokens=self.n_read, generation_seconds=1.0)

    def items(self, *, wait: bool = True) -> Iterator[Token]:
        while self._ids:
            self.n_read += 1
            yield Token(self._ids.pop(0))
        self.finish_reason = self.finish_reason or self._finish

    def cancel(self) -> None:
        if self.finish_reason is None:
            self._ids = []
            self.finish_reason = "cancelled"


class ScriptedEngine:
    """Answers each request with the next script; a script that ends in END stops by itself."""

    def __init__(self, tokenizer: Tokenizer, scripts: Iterable[str]) -> None:
        self._tokenizer = tokenizer
        self._scripts = list(scripts)
        self.requests: list[tuple[str, SamplingParams, tuple[int, ...]]] = []
        self.error: Exception | None = None

    def submit(
        self, ids: Sequence[int], params: SamplingParams, *, marks: Iterable[int] = ()
    ) -> ScriptedStream:
        if self.error is not None and self.requests:
            raise self.error
        self.requests.append((self._tokenizer.decode(ids), params, tuple(marks)))
        script = self._scripts.pop(0)
        text = script.removesuffix(END)
        made = self._tokenizer.encode(text, parse_special=True)
        limit = len(made) if params.max_tokens < 0 else params.max_tokens
        finish: FinishReason = "stop" if script != text and len(made) <= limit else "length"
        return ScriptedStream(made[:limit], finish)


class Case:
    def __init__(self, template: str | None, *scripts: str) -> None:
        self.tokenizer = Tokenizer.from_metadata(as_metadata(byte_level("qwen2")))
        self.engine = ScriptedEngine(self.tokenizer, scripts)
        made = Template(template, self.tokenizer) if template is not None else None
        self.chat = Chat(self.engine, self.tokenizer, made)

    def ask(self, **options: Any) -> Answer:
        return self.start(**options).whole()

    def start(self, **options: Any) -> Reply:
        return self.chat.ask(ChatRequest((Message("user", "Say it."),), **options))

    def n_tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text, parse_special=True))


def test_answer_and_thinking_are_apart() -> None:
    case = Case(THINKER, f"It is easy.\n</think>\n\nHello.{END}")
    reply = case.start()
    events = list(reply)
    assert {type(event) for event in events} == {Reasoning, Content}
    assert "".join(e.text for e in events if isinstance(e, Content)) == "Hello."
    answer = reply.answer
    assert (answer.reasoning, answer.content, str(answer)) == ("It is easy.", "Hello.", "Hello.")
    assert answer.finish_reason == "stop"
    assert not answer.stopped_thinking
    assert answer.usage.completion_tokens == case.n_tokens("It is easy.\n</think>\n\nHello.")
    assert len(case.engine.requests) == 1


def test_template_without_thinking() -> None:
    case = Case(PLAIN, f"Hello.{END}")
    assert case.ask().content == "Hello."
    assert case.engine.requests[0][0].endswith("<|im_start|>assistant")


def test_thinking_off_by_the_template() -> None:
    case = Case(THINKER, f"Hello.{END}")
    answer = case.ask(thinking=False)
    assert (answer.reasoning, answer.content) == ("", "Hello.")
    assert case.engine.requests[0][0].endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("options", [{"thinking": False}, {"thinking_budget": 0}])
def test_thinking_off_where_the_template_cannot(options: dict[str, Any]) -> None:
    case = Case(STUBBORN, f"Hello.{END}")
    assert case.ask(**options).content == "Hello."
    assert case.engine.requests[0][0].endswith("<think>\n\n</think>\n\n")


def test_asking_a_model_to_think_that_cannot() -> None:
    with pytest.raises(RequestError, match="does not think"):
        Case(PLAIN).ask(thinking=True)
    assert Case(PLAIN, f"Hello.{END}").ask(thinking=False).content == "Hello."


def test_budget_ends_thinking_and_the_answer_comes() -> None:
    case = Case(THINKER, "I think. " * 100, f"Hello.{END}")
    answer = case.ask(thinking_budget=7)
    assert answer.content == "Hello."
    assert answer.finish_reason == "stop"
    thought = case.tokenizer.decode(case.tokenizer.encode("I think. " * 100)[:7])
    second = case.engine.requests[1][0]
    assert second.startswith(case.engine.requests[0][0] + thought)
    assert second.endswith("answer now.\n</think>\n\n")
    assert answer.reasoning.startswith(thought.strip())
    assert answer.usage.completion_tokens == 7 + case.n_tokens("Hello.")


def test_answer_now_ends_thinking_with_the_next_token() -> None:
    case = Case(THINKER, "I think. " * 100, f"Hello.{END}")
    reply = case.start()
    first = next(reply)
    assert isinstance(first, Reasoning)
    assert reply.answer_now()
    answer = reply.whole()
    assert (answer.content, answer.finish_reason) == ("Hello.", "stop")
    assert case.engine.requests[1][0].endswith("answer now.\n</think>\n\n")
    assert answer.usage.completion_tokens < 20
    assert not reply.answer_now()  # the thinking is over


def test_answer_now_of_a_model_that_does_not_think() -> None:
    reply = Case(PLAIN, f"Hello.{END}").start()
    assert not reply.answer_now()
    assert reply.whole().content == "Hello."


def test_limited_answer_keeps_room_after_thinking() -> None:
    case = Case(THINKER, "I think. " * 100, "Hello. " * 100)
    answer = case.ask(params=SamplingParams(max_tokens=40))
    assert answer.content.startswith("Hello.")
    assert answer.finish_reason == "length"
    assert case.engine.requests[1][1].max_tokens == 10
    assert answer.usage.completion_tokens == 40


def test_stop_while_thinking_goes_on_once() -> None:
    case = Case(THINKER, f"item 1 ok\nitem 2 ok\n{END}", f"All is well.{END}")
    answer = case.ask()
    assert answer.content == "All is well."
    assert not answer.stopped_thinking
    assert case.engine.requests[1][0].endswith("item 2 ok\n\n</think>\n\n")


def test_stop_while_thinking_never_looks_like_success() -> None:
    case = Case(THINKER, f"item 1 ok\n{END}", END)
    answer = case.ask()
    assert answer.content == ""
    assert answer.stopped_thinking
    assert len(case.engine.requests) == 2


@pytest.mark.parametrize(("budget", "reason"), [(None, "stop"), (2, "length")])
def test_no_room_to_go_on(budget: int | None, reason: str) -> None:
    case = Case(THINKER, f"item 1 ok\n{END}")
    case.engine.error = ContextFullError("full")
    answer = case.ask(thinking_budget=budget)
    assert answer.stopped_thinking
    assert answer.finish_reason == reason


def test_grammar_waits_for_the_end_of_thinking() -> None:
    grammar = GrammarSpec("json_schema", "{}")
    case = Case(THINKER, "Hm.\n</think>\n\nnot JSON at all", f"{{}}{END}")
    answer = case.ask(params=SamplingParams(grammar=grammar))
    assert (answer.reasoning, answer.content) == ("Hm.", "{}")
    (_, first, _), (prompt, second, _) = case.engine.requests
    assert first.grammar is None
    assert second.grammar == grammar
    assert prompt.endswith("Hm.\n</think>\n\n")


def test_grammar_holds_at_once_without_thinking() -> None:
    grammar = GrammarSpec("json_schema", "{}")
    case = Case(THINKER, f"{{}}{END}")
    case.ask(params=SamplingParams(grammar=grammar), thinking=False)
    assert [params.grammar for _, params, _ in case.engine.requests] == [grammar]


def test_stop_string_ends_the_stream() -> None:
    case = Case(THINKER, f"a STOP b</think>\n\nOne, two, STOP three{END}")
    answer = case.ask(stop=("STOP",))
    assert answer.reasoning == "a STOP b"  # stops count in the answer only
    assert answer.content == "One, two, "
    assert answer.finish_reason == "stop"


def test_cancel_ends_with_what_was_there() -> None:
    case = Case(THINKER, "I think. " * 100)
    reply = case.start()
    next(reply)
    reply.cancel()
    answer = reply.whole()
    assert answer.finish_reason == "cancelled"
    assert not answer.stopped_thinking
    assert len(case.engine.requests) == 1


def test_marks_are_ends_of_messages() -> None:
    case = Case(PLAIN, f"Hello.{END}")
    messages = tuple(Message(role, role) for role in ("system", "user", "assistant", "user"))
    case.chat.ask(ChatRequest(messages)).whole()
    prompt, _, marks = case.engine.requests[0]
    ids = case.tokenizer.encode(prompt, parse_special=True)
    ends = [case.tokenizer.decode(ids[:mark]) for mark in marks]
    assert ends[0] == f"<|im_start|>system\nsystem{END}"
    assert ends[-1] == prompt.removesuffix("\n<|im_start|>assistant")


def test_complete_uses_no_template() -> None:
    case = Case(THINKER, f"<think>never told apart{END}")
    answer = case.chat.complete("Once", SamplingParams(), stop=("apart",)).whole()
    assert case.engine.requests[0][0] == "Once"
    assert answer.content.endswith("never told ")


def test_no_template() -> None:
    with pytest.raises(UnsupportedError, match="no chat template"):
        Case(None).ask()
