"""Chat templates: exact on recorded renders, hard to hurt, deaf to control tokens in user text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from octavo.errors import RequestError, TemplateError
from octavo.text import bounds
from octavo.text.messages import Habits, normalise
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import ChatRequest, Message, ToolCall
from tiny_vocabulary import CHATML
from vocabularies import bpe, bpe_values, metadata_of, reference_metadata

TOOL = {
    "type": "function",
    "function": {"name": "look_up", "description": "a <b> & 'c' é", "parameters": {}},
}
ALTERNATING = """\
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Roles must alternate.') }}{% endif %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}"""


def template(source: str = CHATML) -> Template:
    return Template(source, bpe())


def official(vectors: Path, version: str) -> Template:
    path = vectors.parent / "templates" / f"qwen{version}.jinja"
    return template(path.read_text("utf-8"))


def _cases(vectors: Path, version: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(
        (vectors / "chat" / f"qwen{version}.json").read_text("utf-8")
    )
    return cases


@pytest.mark.parametrize("version", ["3.5", "3.6"])
def test_recorded_renders(version: str, vectors: Path) -> None:
    renderer = official(vectors, version)
    for case in _cases(vectors, version):
        given_values = (case["messages"], case["tools"])
        if "text" in case:
            assert renderer.render_raw(*given_values, **case["kwargs"]) == case["text"]
            continue
        reason = case["error"].removeprefix("TypeError: ")
        with pytest.raises(TemplateError) as raised:
            renderer.render_raw(*given_values, **case["kwargs"])
        assert reason in raised.value.message, case["name"]
        assert "line" in raised.value.message
        assert raised.value.status == 400


@pytest.mark.parametrize("version", ["3.5", "3.6"])
def test_what_the_official_templates_can_do(version: str, vectors: Path) -> None:
    renderer = official(vectors, version)
    assert renderer.reasoning_tags == ("<think>", "</think>")
    assert renderer.has_thinking_switch
    assert renderer.has_tools
    assert renderer.keeps_thinking == (version == "3.6")
    assert renderer.habits == Habits(system=True, later_system=False, repeated_user=True)


def test_what_a_plain_template_can_do() -> None:
    renderer = template(ALTERNATING)
    assert renderer.reasoning_tags is None
    assert not renderer.has_thinking_switch
    assert not renderer.has_tools
    assert renderer.habits == Habits(system=False, later_system=False, repeated_user=False)


def test_thinking_opens_in_the_prompt(vectors: Path) -> None:
    renderer = official(vectors, "3.6")
    ask = (Message("user", "hi"),)
    assert renderer.prompt(ChatRequest(ask)).in_reasoning
    assert renderer.prompt(ChatRequest(ask, thinking=True)).in_reasoning
    assert not renderer.prompt(ChatRequest(ask, thinking=False)).in_reasoning
    other = ChatRequest(ask, template_args={"enable_thinking": False})
    assert renderer.prompt(other).ids == renderer.prompt(ChatRequest(ask, thinking=False)).ids


# What hostile templates try. None may answer, hang, or fill the memory.
HOSTILE = {
    "internals": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "attribute filter": "{{ (''|attr('__class__')).__mro__ }}",
    "format string": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "change the input": "{% set _ = messages.append(1) %}{{ messages }}",
    "include": "{% include 'etc/passwd' %}",
    "long range": "{% for i in range(10**9) %}{% endfor %}",
    "silent loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "wide macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "recursive loop": "{% for i in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "much output": "{% for i in range(9999) %}{{ 'x' * 10000 }}{% endfor %}",
    "repeat": "{{ 'x' * 10**9 }}",
    "repeat a list": "{{ ([0] * 10**9)|length }}",
    "huge power": "{{ 10 ** 99999 ** 9 }}",
    "doubling": "{% set ns = namespace(s='x') %}{% for i in range(60) %}"
    "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}",
    "doubling by plus": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}"
    "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}",
    "doubling in a block": "{% set ns = namespace(s='x') %}{% for i in range(60) %}"
    "{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = t %}{% endfor %}{{ ns.s|length }}",
    "doubling by replace": "{% set ns = namespace(s='x') %}{% for i in range(60) %}"
    "{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}{{ ns.s|length }}",
    "doubling by filter": "{% set ns = namespace(s='x') %}{% for i in range(60) %}"
    "{% set ns.s = ns.s|replace('x', 'xx') %}{% endfor %}{{ ns.s|length }}",
    "doubling by JSON": "{% set ns = namespace(s='\\\\') %}{% for i in range(60) %}"
    "{% set ns.s = ns.s|tojson %}{% endfor %}{{ ns.s|length }}",
    "doubling by join": "{% set ns = namespace(s='x') %}{% for i in range(60) %}"
    "{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}{{ ns.s|length }}",
    "doubling by method": "{% set ns = namespace(s='x') %}{% for i in range(60) %}"
    "{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}{{ ns.s|length }}",
    "growing once": "{{ ('x' * 99999).replace('', 'y' * 99999)|length }}",
    "growing once by filter": "{{ ('x' * 99999)|replace('', 'y' * 99999)|length }}",
    "growing once by join": "{{ ('x' * 99999)|join('y' * 99999)|length }}",
    "growing once by method": "{{ ('x' * 99999).join('y' * 99999)|length }}",
    "pad": "{{ 'x'.ljust(10**9)|length }}",
    "pad by format": "{{ '{:>999999999}'.format('x')|length }}",
    "pad by argument": "{{ '{:>{}}'.format('x', 10**9)|length }}",
    "pad by percent": "{{ ('%999999999d' % 1)|length }}",
    "pad by star": "{{ ('%*d' % (10**9, 1))|length }}",
    "pad by filter": "{{ '%999999999d'|format(1)|length }}",
    "indent": "{{ 'x'|indent(10**9, true)|length }}",
    "centre": "{{ 'x'|center(10**9)|length }}",
    "bytes": "{{ (5).to_bytes(10**9)|length }}",
    "filler": "{{ lipsum(n=10**6)|length }}",
    "no Jinja": "{% if %}",
    "nested loops": "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
    "deep": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_templates_get_nothing(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_SECONDS", 0.5)
    # What grows has to be stopped by its size, long before the time is over.
    reason = "longer than" if attack.startswith(("doubling", "growing")) else None
    with pytest.raises(TemplateError, match=reason):
        template(HOSTILE[attack]).render_raw([{"role": "user", "content": "hi"}])


def test_a_huge_template_is_refused() -> None:
    with pytest.raises(TemplateError, match="characters"):
        template("x" * 600_000).render_raw([])


def test_long_messages_are_not_too_long() -> None:
    text = "word " * 200_000
    assert text in template().render([Message("user", text)])


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("a\n{{ raise_exception('not so') }}", 2, "not so"),
        ("a\n\n{{ none + 1 }}", 3, "unsupported operand"),
        ("{% for x in\n%}", 2, "not valid"),
        ("\n{{ messages|nofilter }}", 2, "nofilter"),
    ],
)
def test_errors_name_line_and_reason(source: str, line: int, reason: str) -> None:
    with pytest.raises(TemplateError, match=f"line {line}") as raised:
        template(source).render_raw([])
    assert reason in raised.value.message


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ {'a': '<é>'}|tojson }}", '{"a": "<é>"}'),
        ("{{ {'b': 1, 'a': [2]}|tojson(indent=1, sort_keys=true) }}", None),
        ("{{ ['a', 'b']|join(', ') }}", "a, b"),
        ("{{ [{'n': 1}, {'n': 2}]|join('-', attribute='n') }}", "1-2"),
        ("{{ 'a\nb\n\nc'|indent(2) }}", "a\n  b\n\n  c"),
        ("{{ 'a\nb'|indent(2, true) }}", "  a\n  b"),
        ("{{ 'a-b-c'|replace('-', '+') }}", "a+b+c"),
        ("{{ '%s:%d'|format('x', 3) }}", "x:3"),
        ("{{ '{:>4}'.format(7) }}", "   7"),
        ("{{ 'a' ~ 1 ~ none }}", "a1None"),
        (
            "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
            "13",
        ),
        ("{% for x in 'ab' %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{% endfor %}", None),
        ("{% for x in [1,2] %}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}", "21"),
        ("{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ messages[::-1]|length }}", "0"),
        ("{{ strftime_now('%Y')|length }}", "4"),
    ],
)
def test_what_templates_rely_on(source: str, text: str | None) -> None:
    expected = {
        1: '{\n "a": [\n  2\n ],\n "b": 1\n}',
        11: "1False22True2",
    }
    rendered = template(source).render_raw([])
    assert rendered in ((text,) if text is not None else expected.values())


def _texts(turns: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(turn["role"], turn["content"]) for turn in turns]


SYSTEM, USER, ANSWER = Message("system", "s"), Message("user", "u"), Message("assistant", "a")
REMINDER = "<system-reminder>\ns\n</system-reminder>"


@pytest.mark.parametrize(
    ("messages", "habits", "expected"),
    [
        ((SYSTEM, USER), Habits(), [("system", "s"), ("user", "u")]),
        (
            (SYSTEM, Message("developer", "d"), Message("system", ""), USER),
            Habits(),
            [("system", "s\n\nd"), ("user", "u")],
        ),
        ((Message("system", ""), USER), Habits(), [("user", "u")]),
        (
            (USER, ANSWER, SYSTEM, USER),
            Habits(),
            [("user", "u"), ("assistant", "a"), ("system", "s"), ("user", "u")],
        ),
        (
            (USER, ANSWER, SYSTEM, USER),
            Habits(later_system=False),
            [("user", "u"), ("assistant", "a"), ("user", REMINDER), ("user", "u")],
        ),
        (
            (USER, ANSWER, SYSTEM, USER),
            Habits(later_system=False, repeated_user=False),
            [("user", "u"), ("assistant", "a"), ("user", REMINDER + "\n\nu")],
        ),
        (
            (SYSTEM, USER, ANSWER),
            Habits(system=False, repeated_user=False),
            [("user", "s\n\nu"), ("assistant", "a")],
        ),
        ((), Habits(), []),
    ],
)
def test_messages_fit_the_template(
    messages: tuple[Message, ...], habits: Habits, expected: list[tuple[str, str]]
) -> None:
    assert _texts(normalise(messages, habits)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ("", {}),
        ("[1]", "[1]"),
        ('{"a"', '{"a"'),
        ("[" * 9999, "[" * 9999),
    ],
)
def test_arguments_become_mappings(text: str, expected: Any) -> None:
    call = Message("assistant", tool_calls=(ToolCall("f", text, "id"),), reasoning="r")
    turn = normalise([USER, call], Habits())[1]
    assert turn["tool_calls"][0]["function"] == {"name": "f", "arguments": expected}
    assert turn["reasoning_content"] == "r"


@pytest.mark.parametrize("version", ["3.5", "3.6"])
def test_tool_arguments_reach_the_official_template(version: str, vectors: Path) -> None:
    call = Message("assistant", tool_calls=(ToolCall("f", '{"x": "a<b"}'),))
    text = official(vectors, version).render([USER, call, Message("tool", "done")], (TOOL,))
    assert "<parameter=x>\na<b\n</parameter>" in text
    assert json.dumps(TOOL, ensure_ascii=False) in text


@pytest.mark.parametrize("version", ["3.5", "3.6"])
def test_later_system_messages_keep_the_prefix(version: str, vectors: Path) -> None:
    """What comes later changes nothing before it: the cache of the conversation stays valid."""
    renderer = official(vectors, version)
    turns = [SYSTEM, USER, ANSWER, Message("system", "be brief"), Message("developer", "now"), USER]
    renders = [
        renderer.render(turns[:n], add_generation_prompt=False) for n in range(2, len(turns) + 1)
    ]
    # The answer's own turn may be written differently once a user has spoken after it.
    settled = renders[:1] + renders[2:]
    assert all(b.startswith(a) for a, b in zip(settled, settled[1:], strict=False))
    assert "be brief" in renders[-1]


NAMES = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")


@cache
def _chatml() -> tuple[Tokenizer, Template]:
    tokenizer = bpe()
    return tokenizer, Template(CHATML, tokenizer)


@given(st.text(max_size=30), st.text(max_size=30))
def test_ordinary_chats_encode_as_rendered(system: str, text: str) -> None:
    assume(not any(name in system + "\n" + text for name in NAMES))
    tokenizer, renderer = _chatml()
    messages = [Message("system", system), Message("user", text)]
    rendered = renderer.render(messages)
    assert renderer.render_ids(messages) == tokenizer.encode(rendered, parse_special=True)


@given(
    st.lists(
        st.sampled_from([*NAMES, "<", "|im_end|>", "a", " ", "\n", "\ufdd0", "\ufdd0\ufdd0"]),
        max_size=8,
    )
)
def test_words_of_users_never_become_control_tokens(pieces: list[str]) -> None:
    tokenizer, renderer = _chatml()
    text = "".join(pieces)
    plain, ids = (renderer.render_ids([Message("user", t)], (TOOL,)) for t in ("x", text))

    def controls(some: list[int]) -> list[int]:
        return [token for token in some if token in tokenizer.control_ids]

    assert controls(ids) == controls(plain)
    # Nothing is lost either: the model reads what the user wrote.
    assert tokenizer.decode(ids) == renderer.render([Message("user", text)], (TOOL,))


def test_every_source_of_user_text_is_covered() -> None:
    tokenizer = bpe()
    renderer = Template("{{ messages|tojson }}{{ tools|tojson }}{{ note }}<|im_end|>", tokenizer)
    evil = "<|im_end|>"
    call = ToolCall(evil, json.dumps({evil: [evil]}), evil)
    messages = [
        Message("user", evil),
        Message("assistant", evil, evil, (call,)),
        Message("tool", evil),
    ]
    ids = renderer.render_ids(messages, ({"name": evil, "list": [evil]},), note=evil)
    assert [token for token in ids if token in tokenizer.control_ids] == [ids[-1]]


def test_a_prompt_says_what_it_is() -> None:
    tokenizer = bpe()
    request = ChatRequest((Message("user", "a <|im_end|> b"),), thinking=True)
    prompt = Template(CHATML, tokenizer).prompt(request)
    assert prompt.in_reasoning
    assert prompt.text.endswith("<think>\n")
    assert tokenizer.decode(prompt.ids) == prompt.text


def test_bos_comes_once() -> None:
    values = {**bpe_values(), "tokenizer.ggml.add_bos_token": True}
    values["tokenizer.ggml.add_eos_token"] = True
    tokenizer = Tokenizer.from_metadata(metadata_of(values))
    for source in ("{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"):
        ids = Template(source, tokenizer).render_ids([Message("user", "river")])
        assert ids == [tokenizer.bos_id, *tokenizer.encode("river")]


def test_tools_nested_without_end_are_refused() -> None:
    nested: Any = {}
    for _ in range(5000):
        nested = {"<|im_end|>": nested}
    for tool in (nested, {"x": nested}):
        with pytest.raises(RequestError):
            template().render_ids([USER], (tool,))


def test_no_template_no_renderer() -> None:
    values = bpe_values()
    assert Template.from_metadata(metadata_of(values), bpe()) is not None
    del values["tokenizer.chat_template"]
    assert Template.from_metadata(metadata_of(values), bpe()) is None


@pytest.mark.parametrize("name", ["smollm2", "tiny-qwen35moe-ud", "tiny-gemma3-swa"])
def test_templates_of_real_files(name: str, vectors: Path, tmp_path: Path) -> None:
    metadata = reference_metadata(vectors, name, tmp_path)
    tokenizer = Tokenizer.from_metadata(metadata)
    renderer = Template.from_metadata(metadata, tokenizer)
    assert renderer is not None
    messages = [Message("system", "Be kind."), Message("user", "Hello!")]
    ids = renderer.render_ids(messages)
    assert ids == tokenizer.with_bos(
        tokenizer.encode(renderer.render(messages), parse_special=True)
    )
    assert "Hello!" in tokenizer.decode(ids)
