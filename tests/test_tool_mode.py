"""Calls held to their schemas while they are written, from the moment they open."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import octavo
from octavo.chat import Content, Reasoning, ToolCalled
from octavo.engine.grammar import Grammar, compile_grammar
from octavo.engine.sampler import Sampler
from octavo.engine.speculative import NO_DRAFTS, DraftRule
from octavo.engine.waiting import WaitingGrammar, start_grammar
from octavo.errors import RequestError, UnsupportedError
from octavo.text import formats
from octavo.text.calling import Calling
from octavo.text.formats._declared import Tools
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import (
    ChatRequest,
    GrammarSpec,
    Message,
    SamplingParams,
    ToolCall,
    ToolChoice,
    Trigger,
)
from random_schemas import is_valid, random_tools, shown
from scripted_model import LetterVocabulary, ScriptedModel, counting, make_engine
from test_chat import END, THINKER, Case
from tiny_models import as_metadata
from tiny_vocabulary import byte_level, sentencepiece
from tool_texts import TEMPLATES, written

NAMES = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}{# "
READ: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "n": {"type": "integer"}},
            "required": ["path"],
        },
    },
}
CALL = ("read", {"path": "a.txt"})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(as_metadata(byte_level("qwen2")))


def calling(
    tokenizer: Tokenizer, dialect: str, tools: list[dict[str, Any]], **choice: Any
) -> Calling:
    request = ChatRequest((), tools=tuple(tools), tool_choice=ToolChoice(**choice))
    made = Calling.of(request, Template(f"{NAMES}{TEMPLATES[dialect]} #}}", tokenizer), tokenizer)
    assert made is not None
    return made


def spec_of(made: Calling) -> GrammarSpec:
    spec = made.grammar(None, False)
    assert spec is not None
    return spec


# What the grammars let through.


@pytest.mark.parametrize("dialect", TEMPLATES)
@pytest.mark.parametrize("seed", range(13))
def test_whatever_the_model_says_is_a_valid_call(
    tokenizer: Tokenizer, dialect: str, seed: int
) -> None:
    tools = random_tools(seed, short=False)
    made = calling(tokenizer, dialect, tools, mode="required", parallel=seed % 2 == 0)
    text = babble(spec_of(made), tokenizer, seed)
    parser = made.parser()
    assert parser is not None
    events = parser.push(text) + parser.finish()
    calls = [event.call for event in events if isinstance(event, ToolCalled)]
    assert len(calls) == len(events) > 0, text
    assert seed % 2 == 0 or len(calls) == 1
    declared = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
    for call in calls:
        assert is_valid(json.loads(call.arguments), declared[call.name]), (text, shown(tools))


CLOSERS = (
    '"',
    "]",
    "}",
    "]}",
    "\n</parameter>\n<parameter=",
    '<|"|>',
    "<escape>",
    "\n</parameter>\n</function>",
    "1}",
)


def babble(spec: GrammarSpec, tokenizer: Tokenizer, seed: int) -> str:
    """Random tokens; now and then something that ends a value, or texts would have no end."""
    grammar = compile_grammar(spec, tokenizer)
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    stops = frozenset(tokenizer.stop_ids)
    params = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=seed)
    sampler = Sampler(params, [], np.zeros(0, np.int32), grammar, stops)
    said = b""
    for _ in range(3000):
        for closer in rng.sample(CLOSERS, len(CLOSERS)) if rng.random() < 0.3 else ():
            if grammar.accept_text(closer) > 0:
                said += closer.encode()
                break
        if grammar.is_complete:
            return said.decode("utf-8", "replace")
        row = numbers.standard_normal(tokenizer.vocab_size).astype(np.float32)
        row[list(stops)] += 5
        token = sampler.choose(row).id
        if token in stops:
            return said.decode("utf-8", "replace")
        said += tokenizer.piece(token)
    pytest.fail(f"no end in {said[-300:]!r}")


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_arguments_come_in_any_order_and_each_once(tokenizer: Tokenizer, dialect: str) -> None:
    properties = {name: {"type": "integer"} for name in "abc"}
    tool = {"name": "f", "parameters": {"properties": properties, "required": ["b"]}}
    spec = spec_of(calling(tokenizer, dialect, [tool], mode="required"))

    def is_allowed(keys: str) -> bool:
        return allows(spec, tokenizer, written(dialect, [("f", dict.fromkeys(keys, 1))]))

    assert all(is_allowed(keys) for keys in ("b", "ab", "ba", "abc", "cab", "bca"))
    assert not any(is_allowed(keys) for keys in ("", "a", "ac", "abd"))
    twice = written(dialect, [("f", {"b": 1, "B": 1})]).replace("B", "b")
    assert not allows(spec, tokenizer, twice)
    assert not allows(spec, tokenizer, written(dialect, [("g", {"b": 1})]))
    assert not allows(spec, tokenizer, written(dialect, [("f", {"b": "x"})]))


def allows(spec: GrammarSpec, tokenizer: Tokenizer, text: str) -> bool:
    """Whether a grammar takes a text and lets it end there."""
    grammar = compile_grammar(spec, tokenizer)
    for end in ("<|call|>",):  # a stop token: no part of the grammar
        text = text.removesuffix(end)
    if grammar.accept_text(text) < 0:
        return False
    row = np.zeros(tokenizer.vocab_size, np.float32)
    if grammar.is_complete:
        return True
    grammar.mask(row)
    return any(row[id] == 0 for id in tokenizer.stop_ids)


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_numbers_come_to_an_end(tokenizer: Tokenizer, dialect: str) -> None:
    remarks = {"description": "d", "default": 1}
    properties = {kind: {"type": kind, **remarks} for kind in ("integer", "number")}
    tool = {"name": "f", "parameters": {"properties": properties}}
    spec = spec_of(calling(tokenizer, dialect, [tool], mode="required"))

    def is_allowed(kind: str, number: str) -> bool:
        text = written(dialect, [("f", {kind: 7531})]).replace("7531", number)
        return allows(spec, tokenizer, text)

    whole = ("0", "-1", "1" + "0" * 79)
    assert all(is_allowed(kind, text) for kind in properties for text in whole)
    assert all(is_allowed("number", text) for text in ("0.5", "-2.50e-7", "6E+23", "0." + "3" * 32))
    endless = ("1" * 81, "01", "-", "1.", "1.e3")
    assert not any(is_allowed(kind, text) for kind in properties for text in endless)
    assert not is_allowed("number", "0." + "3" * 33)
    assert not any(is_allowed("integer", text) for text in ("1.0", "1e3"))


@pytest.mark.parametrize("dialect", ["qwen3_xml", "gemma"])
@pytest.mark.parametrize(
    "value",
    [
        "",
        "\n",
        'if (a<b && c>d) { s = "</p>"; }\n',
        "</parameter>",
        "a\n</parameter>\n</parameters>\nb",
        "</function>\n</tool_call>",
        "<tool_call>\n<function=read>\n",
        "汉 😸 é\r\n\t\x01",
        '{"a": [1, 2',
    ],
)
def test_raw_texts_may_hold_anything(tokenizer: Tokenizer, dialect: str, value: str) -> None:
    spec = spec_of(calling(tokenizer, dialect, [READ], mode="required"))
    for arguments in ({"path": value}, {"path": value, "n": 1}, {"n": 1, "path": value}):
        assert allows(spec, tokenizer, written(dialect, [("read", arguments)]))


def test_an_end_right_behind_its_tag_is_that_of_an_empty_text(tokenizer: Tokenizer) -> None:
    """Read so, and written so: else what follows would be a text to the grammar alone."""
    made = calling(tokenizer, "qwen3_xml", [READ], mode="required")
    begun = "<tool_call>\n<function=read>\n<parameter=path>\n</parameter>\n"
    whole = begun + "</function>\n</tool_call>"
    assert allows(spec_of(made), tokenizer, whole)
    assert allows(
        spec_of(made),
        tokenizer,
        begun + "<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
    )
    assert compile_grammar(spec_of(made), tokenizer).accept_text(begun + "</function>C") < 0
    parser = made.parser()
    assert parser is not None
    events = parser.push(whole) + parser.finish()
    (call,) = [event.call for event in events if isinstance(event, ToolCalled)]
    assert json.loads(call.arguments) == {"path": ""}


def test_a_closing_tag_that_would_leave_something_out_is_not_allowed(tokenizer: Tokenizer) -> None:
    both = json.loads(json.dumps(READ))
    both["function"]["parameters"]["required"] = ["path", "n"]
    spec = spec_of(calling(tokenizer, "qwen3_xml", [both], mode="required"))
    begun = "<tool_call>\n<function=read>\n<parameter=path>\nx\n</parameter>\n"
    assert compile_grammar(spec, tokenizer).accept_text(begun + "<parameter=n>\n1\n") > 0
    assert compile_grammar(spec, tokenizer).accept_text(begun + "</function>") < 0


@pytest.mark.parametrize("version", ["3.5", "3.6"])
def test_calls_are_what_the_official_template_writes(
    tokenizer: Tokenizer, vectors: Path, version: str
) -> None:
    """The template shows earlier calls to the model in the form in which it is to write them."""
    source = (vectors.parent / "templates" / f"qwen{version}.jinja").read_text()
    template = Template(source, tokenizer)
    tools = [READ, {"type": "function", "function": {"name": "now", "parameters": {}}}]
    calls = [("read", {"path": "a\n<b>", "n": 3}), ("now", {})]
    made = tuple(ToolCall(name, json.dumps(arguments)) for name, arguments in calls)
    text = template.render((Message("user", "q"), Message("assistant", "", tool_calls=made)), tools)
    said = text[text.index("<tool_call>", text.index("<|im_start|>assistant")) :]
    said = said[: said.index("<|im_end|>")]
    request = ChatRequest((), tools=tuple(tools), tool_choice=ToolChoice("required"))
    chosen = Calling.of(request, template, tokenizer)
    assert chosen is not None
    assert allows(spec_of(chosen), tokenizer, said)
    parser = chosen.parser()
    assert parser is not None
    events = parser.push(said) + parser.finish()
    found = [
        (e.call.name, json.loads(e.call.arguments)) for e in events if isinstance(e, ToolCalled)
    ]
    assert found == calls


def test_schemas_that_grow_without_end_have_a_grammar(tokenizer: Tokenizer) -> None:
    wide = {"type": "object", "properties": {f"p{i}": {"$ref": "#/$defs/n"} for i in range(60)}}
    loop = {"anyOf": [{"$ref": "#/$defs/n"}] * 9}
    for node in (wide, loop):
        tool = {"name": "x", "parameters": {"properties": {"a": node}, "$defs": {"n": node}}}
        for dialect in ("qwen3_xml", "hermes", "gemma"):
            compile_grammar(spec_of(calling(tokenizer, dialect, [tool])), tokenizer)


def test_many_arguments_and_many_tools(tokenizer: Tokenizer) -> None:
    properties = {f"p{i}": {"type": "string" if i % 2 else "integer"} for i in range(90)}
    tools = [
        {"name": f"mcp__srv__search-by-{i}", "parameters": {"properties": properties}}
        for i in range(3)
    ] + [{"name": f"f{i}", "parameters": READ["function"]["parameters"]} for i in range(200)]
    for dialect in ("qwen3_xml", "hermes"):
        spec = spec_of(calling(tokenizer, dialect, tools, mode="required"))
        arguments = {f"p{i}": "x" if i % 2 else i for i in (80, 3, 64, 71)}
        call = ("mcp__srv__search-by-2", arguments)
        assert allows(spec, tokenizer, written(dialect, [call, ("f199", {"path": "x"})]))


def test_one_function_by_name_and_one_call(tokenizer: Tokenizer) -> None:
    tools = [READ, {"name": "other"}]
    calls = [("other", {}), ("other", {})]
    spec = spec_of(calling(tokenizer, "hermes", tools, mode="required", name="other"))
    assert allows(spec, tokenizer, written("hermes", calls))
    assert not allows(spec, tokenizer, written("hermes", [CALL]))
    spec = spec_of(calling(tokenizer, "hermes", tools, mode="required", parallel=False))
    assert allows(spec, tokenizer, written("hermes", [CALL]))
    assert not allows(spec, tokenizer, written("hermes", calls))


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_tags_that_are_control_tokens(dialect: str) -> None:
    """Then only the tokens count, and nothing in a text can be mistaken for them."""
    tags = ("[TOOL_CALLS]", "[ARGS]", "<|channel|>", "<|message|>", "<|constrain|>")
    tags += ('<|"|>', "<|tool_call>", "<tool_call|>", "<|call|>", "<escape>")
    metadata = byte_level("qwen2")
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], *tags]
    metadata["tokenizer.ggml.token_type"] = [
        *metadata["tokenizer.ggml.token_type"],
        *[3] * len(tags),
    ]
    special = Tokenizer.from_metadata(as_metadata(metadata))
    spec = spec_of(calling(special, dialect, [READ], mode="required"))
    sampler_grammar = compile_grammar(spec, special)
    for token in special.encode(written(dialect, [CALL]), parse_special=True):
        if token != special.token_id("<|call|>"):
            sampler_grammar.accept(token)


# When a grammar begins.


def test_a_waiting_grammar_lets_everything_pass_until_its_text() -> None:
    vocabulary = LetterVocabulary(257)
    spec = GrammarSpec("regex", "[0-9]+!", Trigger("<go>", reasoning_tags=("<t>", "</t>")))
    grammar = start_grammar(spec, vocabulary)
    masks = []
    text = b"<t>so <go> it</t>then <go>12!"
    for byte in text:
        row = np.zeros(257, np.float32)
        grammar.mask(row)
        masks.append(row)
        grammar.accept(byte + 1)
    free = [not np.isinf(row).any() for row in masks]
    assert free == [True] * (len(text) - 3) + [False] * 3
    assert grammar.is_complete
    grammar.rollback(5)
    row = np.zeros(257, np.float32)
    grammar.mask(row)
    assert not np.isinf(row).any()
    for byte in text[-5:]:
        grammar.accept(byte + 1)
    assert grammar.is_complete


@pytest.mark.parametrize(("said", "is_held"), [(" {a", True), ("x {a", False)])
def test_only_as_the_beginning(said: str, is_held: bool) -> None:
    vocabulary = LetterVocabulary(257)
    grammar = start_grammar(GrammarSpec("regex", "a+b", Trigger("{", True)), vocabulary)
    for byte in said.encode():
        grammar.accept(byte + 1)
    row = np.zeros(257, np.float32)
    grammar.mask(row)
    assert bool(np.isinf(row).any()) == is_held


@pytest.mark.parametrize(("rest", "is_held"), [("12", True), ("x", False)])
def test_a_token_that_says_more_than_the_trigger(
    tokenizer: Tokenizer, rest: str, is_held: bool
) -> None:
    """What stands in the same token is fed to the grammar; if it does not fit, all stays free."""

    class Words(LetterVocabulary):
        def piece(self, token: int) -> bytes:
            return f"<go>{rest}".encode() if token == 257 else super().piece(token)

    vocabulary = Words(258)
    vocabulary.unused_ids = frozenset()
    grammar = start_grammar(GrammarSpec("regex", "[0-9]+!", Trigger("<go>")), vocabulary)
    grammar.accept(257)
    row = np.zeros(258, np.float32)
    grammar.mask(row)
    assert bool(np.isinf(row).any()) == is_held
    grammar.rollback(1)
    grammar.accept(257)


# Text that a grammar forces.


@pytest.mark.parametrize("seed", range(3))
def test_forced_text_takes_fewer_steps_and_changes_nothing(seed: int) -> None:
    spec = GrammarSpec("regex", '[a-c]{3}<function=get_weather>(yes|no)"and so on and on"!')
    said, n_steps = [], []
    for drafts in (NO_DRAFTS, DraftRule(frozenset({"lookup"}), always=4)):
        vocabulary = LetterVocabulary(257)
        model = ScriptedModel(counting, n_vocab=257)
        with make_engine(model, vocabulary=vocabulary, drafts=drafts) as engine:
            params = SamplingParams(temperature=2, seed=seed, grammar=spec)
            said.append(engine.submit([50, 51], params).ids())
            n_steps.append(engine.stats.decode_steps)
    assert said[0] == said[1]
    assert n_steps[0] == len(said[0]) - 1
    assert n_steps[1] < n_steps[0] / 2


def test_what_is_forced(tokenizer: Tokenizer) -> None:
    spec = GrammarSpec("regex", "(the river was low|a cart)!", Trigger("", in_reasoning=True))
    inner = compile_grammar(spec, tokenizer)
    assert inner.forced() == []
    inner.accept_text("the")
    ids = inner.forced()
    assert " river was low!".startswith(tokenizer.decode(ids))
    assert len(ids) > 1
    waiting = WaitingGrammar(Trigger("<go>"), inner, tokenizer)
    assert waiting.forced() == []


@pytest.mark.parametrize("spaced", [None, False, True])
def test_forced_text_comes_in_the_tokens_that_the_model_knows(
    tokenizer: Tokenizer, spaced: bool | None
) -> None:
    """`spaced`: a vocabulary of SentencePiece that puts a blank before each text, or not."""
    if spaced is not None:
        values = {**sentencepiece(), "tokenizer.ggml.add_space_prefix": spaced}
        tokenizer = Tokenizer.from_metadata(as_metadata(values))
    grammar = compile_grammar(GrammarSpec("regex", "the river was low(!|, a cart)"), tokenizer)
    ids = tokenizer.encode("\nthe river was low")  # behind it none gets a blank
    while tokenizer.piece(ids.pop(0)) != b"\n":
        pass
    assert len(ids) < len("the river was low") / 2
    for id in ids:
        assert [id] == allowed_by(grammar, np.zeros(tokenizer.vocab_size, np.float32))
        grammar.accept(id)


def allowed_by(grammar: Grammar, row: NDArray[np.float32]) -> list[int]:
    grammar.mask(row)
    return np.flatnonzero(row > -np.inf).tolist()


# Where the answer ends.


@pytest.mark.parametrize(
    ("wanted", "is_over"),
    [("the", True), ("2", True), ("*", True), ("<", False), (" ", False), ("{", False)],
)
@pytest.mark.parametrize("dialect", ["hermes", "qwen3_xml", "llama_json"])
def test_a_model_that_would_say_more_is_not_made_to_call_again(
    tokenizer: Tokenizer, dialect: str, wanted: str, is_over: bool
) -> None:
    spec = spec_of(calling(tokenizer, dialect, [READ], mode="required"))
    row = np.zeros(tokenizer.vocab_size, np.float32)
    row[tokenizer.encode(wanted)[0]] = 1
    grammar = compile_grammar(spec, tokenizer)
    assert grammar.accept_text(written(dialect, [CALL])) > 0
    stops = set(tokenizer.stop_ids)
    assert (set(allowed_by(grammar, row.copy())) <= stops) == is_over
    free = compile_grammar(replace(spec, calm=False), tokenizer)
    free.accept_text(written(dialect, [CALL]))
    assert not set(allowed_by(free, row.copy())) <= stops
    unfinished = compile_grammar(spec, tokenizer)
    unfinished.accept_text(written(dialect, [CALL])[:20])
    assert not set(allowed_by(unfinished, row)) & stops


@pytest.mark.parametrize("dialect", ["hermes", "qwen3_xml"])
def test_line_breaks_between_and_after_calls(tokenizer: Tokenizer, dialect: str) -> None:
    spec = spec_of(calling(tokenizer, dialect, [READ], mode="required"))
    one = written(dialect, [CALL])
    assert all(allows(spec, tokenizer, one + "\n" * n) for n in range(4))
    assert all(allows(spec, tokenizer, one + "\n" * n + one) for n in range(1, 4))
    assert not allows(spec, tokenizer, one + "\n" * 4)
    assert not allows(spec, tokenizer, one + "\nThat is it.")


# Through chat.py.

TOOLED = THINKER.replace("{%- for", "{{ tools }}{# <function= #}{%- for", 1)


def test_chat_yields_calls() -> None:
    said = f"I look.</think>\n\nNow:\n\n{written('qwen3_xml', [CALL, CALL])}{END}"
    case = Case(TOOLED, said)
    reply = case.start(tools=(READ,))
    events = list(reply)
    assert [type(e) for e in events if isinstance(e, ToolCalled)] == [ToolCalled] * 2
    assert "".join(e.text for e in events if isinstance(e, Content)) == "Now:"
    assert "".join(e.text for e in events if isinstance(e, Reasoning)) == "I look."
    answer = reply.answer
    assert [(c.name, json.loads(c.arguments)) for c in answer.tool_calls] == [CALL] * 2
    assert len({call.id for call in answer.tool_calls}) == 2
    assert not answer.stopped_thinking
    (_, params, _), *more = case.engine.requests
    assert not more
    assert params.grammar is not None
    assert params.grammar.trigger == Trigger("<tool_call>", False, ("<think>", "</think>"), True)


def test_a_required_call_begins_when_the_thinking_is_over() -> None:
    case = Case(TOOLED, f"Hm.</think>\n\n{written('qwen3_xml', [CALL])}{END}")
    answer = case.ask(tools=(READ,), tool_choice=ToolChoice("required"))
    assert len(answer.tool_calls) == 1
    grammar = case.engine.requests[0][1].grammar
    assert grammar is not None
    assert grammar.trigger == Trigger("", False, ("<think>", "</think>"), True)
    waiting = start_grammar(grammar, case.tokenizer)
    for token in case.tokenizer.encode(f"Hm.</think>\n\n{written('qwen3_xml', [CALL])}"):
        waiting.accept(token)
    with pytest.raises(octavo.OctavoError, match="grammar"):
        waiting.accept(case.tokenizer.encode("x")[0])


def test_a_required_call_after_thinking_that_was_ended() -> None:
    case = Case(TOOLED, "Hm. " * 50, f"{written('qwen3_xml', [CALL])}{END}")
    choice = ToolChoice("required")
    assert case.ask(tools=(READ,), tool_choice=choice, thinking_budget=9).tool_calls
    grammar = case.engine.requests[1][1].grammar
    assert grammar is not None
    assert grammar.trigger == Trigger("")
    row = np.zeros(case.tokenizer.vocab_size, np.float32)
    start_grammar(grammar, case.tokenizer).mask(row)
    assert np.isinf(row).any()


def test_a_call_that_ends_unclosed_thinking() -> None:
    case = Case(TOOLED, f"I need it.\n{written('qwen3_xml', [CALL])}{END}")
    answer = case.ask(tools=(READ,))
    assert (answer.reasoning, answer.content) == ("I need it.", "")
    assert len(answer.tool_calls) == 1
    assert not answer.stopped_thinking
    assert len(case.engine.requests) == 1


def test_a_call_that_thinking_only_mentions() -> None:
    mention = f"Perhaps\n{written('qwen3_xml', [CALL])}"
    case = Case(TOOLED, f"{mention}\nno.</think>\n\nHello.{END}")
    answer = case.ask(tools=(READ,))
    assert (answer.reasoning, answer.content) == (f"{mention}\nno.", "Hello.")
    assert not answer.tool_calls
    case = Case(TOOLED, f"{mention}</think>\n\nHello.{END}")
    assert case.ask(tools=(READ,)).content == "Hello."
    case = Case(TOOLED, f"{mention}{END}", f"Hello.{END}")
    answer = case.ask(tools=(READ,), tool_choice=ToolChoice(in_thinking=False))
    assert (answer.reasoning, answer.content) == (mention, "Hello.")


def test_unconstrained_calls_are_read_all_the_same() -> None:
    case = Case(TOOLED, f"</think>\n\n{written('qwen3_xml', [('read', {})])}{END}")
    answer = case.ask(tools=(READ,), tool_choice=ToolChoice(constrain=False))
    assert [(c.name, c.arguments) for c in answer.tool_calls] == [("read", "{}")]
    assert case.engine.requests[0][1].grammar is None


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_a_required_call_that_is_not_constrained_is_opened(
    tokenizer: Tokenizer, dialect: str
) -> None:
    made = calling(tokenizer, dialect, [READ], mode="required", constrain=False)
    spec = spec_of(made)
    assert not spec.calm
    call = written(dialect, [CALL])
    assert allows(spec, tokenizer, call)
    assert allows(spec, tokenizer, call.replace("path", "file") + " and more")
    assert not allows(spec, tokenizer, f"I see: {call}")


def test_none_hides_the_tools() -> None:
    text = written("qwen3_xml", [CALL])
    case = Case(TOOLED, f"</think>\n\n{text}{END}")
    answer = case.ask(tools=(READ,), tool_choice=ToolChoice("none"))
    assert (answer.content, answer.tool_calls) == (text, [])
    assert "read" not in case.engine.requests[0][0]


def test_what_cannot_be_asked() -> None:
    with pytest.raises(RequestError, match="not declared"):
        Case(TOOLED).ask(tools=(READ,), tool_choice=ToolChoice("required", "write"))
    with pytest.raises(RequestError, match="not declared"):
        Case(TOOLED).ask(tool_choice=ToolChoice("required"))
    with pytest.raises(RequestError, match="always required"):
        ToolChoice("auto", "write")
    with pytest.raises(UnsupportedError, match="no place for tools"):
        Case(THINKER).ask(tools=(READ,))
    unknown = TOOLED.replace("<function=", "")
    with pytest.raises(UnsupportedError, match="not known"):
        Case(unknown).ask(tools=(READ,), tool_choice=ToolChoice("required"))
    assert Case(unknown, f"</think>Hi{END}").ask(tools=(READ,)).content == "Hi"


# Schemas.


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "string", "pattern": "(a"}, "pattern"),
        ({"type": "strange"}, "type"),
        ({"$ref": "#/$defs/nowhere"}, r"\$ref"),
        ({"type": "array", "items": {"type": "integer", "minimum": "x"}}, "minimum"),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "(min|max)Length"),
    ],
)
@pytest.mark.parametrize("dialect", ["qwen3_xml", "hermes", "gemma"])
def test_a_wrong_schema_names_tool_and_keyword(
    tokenizer: Tokenizer, dialect: str, schema: dict[str, Any], keyword: str
) -> None:
    tool = {"name": "bad-one", "parameters": {"type": "object", "properties": {"a": schema}}}
    with pytest.raises(RequestError, match=rf"'bad-one'.*{keyword} at a"):
        calling(tokenizer, dialect, [READ, tool]).grammar(None, False)


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "string"}},
        {"type": "array", "items": {}, "uniqueItems": True},
        {"type": "string", "format": "made-up"},
        {"type": "string", "pattern": "^(?!x)[a-z]+$"},
        {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}},
        {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        {"allOf": [{"type": "integer"}]},
        {"$ref": "#/$defs/node"},
        {"enum": ['<a>"', "b\n", 'c\\"', 5, None, {"x": [1]}]},
        {"type": "object", "properties": {"é": {"const": 1}}, "required": ["é"]},
        {"type": "string", "pattern": "^https?://\\S+$"},
        {"type": "string", "pattern": "a\\/b|c$"},
        {},
        True,
    ],
)
@pytest.mark.parametrize("dialect", TEMPLATES)
def test_schemas_from_the_wild_can_be_used(tokenizer: Tokenizer, dialect: str, schema: Any) -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    parameters = {"properties": {"a b/c.d": schema}, "$defs": {"node": node}}
    tool = {"name": "x", "parameters": parameters}
    compile_grammar(spec_of(calling(tokenizer, dialect, [tool])), tokenizer)


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_arguments_of_any_name(tokenizer: Tokenizer, dialect: str) -> None:
    tool = {"name": "x", "parameters": {"type": "object", "additionalProperties": True}}
    spec = spec_of(calling(tokenizer, dialect, [tool], mode="required"))
    assert allows(spec, tokenizer, written(dialect, [("x", {"any": "thing", "b": "c"})]))
    assert allows(spec, tokenizer, written(dialect, [("x", {})]))


# A whole model.


@pytest.mark.parametrize("dialect", ["hermes", "qwen3_xml"])
def test_a_model_of_random_weights_makes_valid_calls(
    tiny_file: Callable[..., Path], dialect: str
) -> None:
    changes = {
        "block_count": 1,
        "context_length": 2048,
        "tokenizer.chat_template": f"{NAMES}{TEMPLATES[dialect]} #}}",
    }
    path = tiny_file("qwen3", changes=changes)
    with octavo.load(path, context=2048, sequences=8, speculate="off") as session:
        requests = [_random_request(seed) for seed in range(52)]
        for first in range(0, len(requests), 8):
            batch = requests[first : first + 8]
            for request, reply in [(r, session.ask(r)) for r in batch]:
                (call,) = reply.whole().tool_calls
                tool = Tools(request.tools).get(call.name)
                assert tool is not None
                assert is_valid(json.loads(call.arguments), tool.parameters), shown(
                    [*map(dict, request.tools)]
                )


def _random_request(seed: int) -> ChatRequest:
    return ChatRequest(
        (Message("user", "go"),),
        SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=seed, max_tokens=1000),
        tuple(random_tools(seed, short=True)),
        ToolChoice("required", parallel=False),
    )


def test_session_takes_tools(tiny_file: Callable[..., Path]) -> None:
    template = f"{NAMES}{TEMPLATES['hermes']} #}}"
    path = tiny_file("qwen3", changes={"tokenizer.chat_template": template})
    with octavo.load(path, context=512, speculate="off") as session:
        tool = {"name": "now", "parameters": {}}
        answer = session.chat(
            "What time is it?", tools=[{"function": tool}], tool_choice="required", seed=1
        )
    assert answer.tool_calls[0].name == "now"
    assert formats.of_template(template) is not None
