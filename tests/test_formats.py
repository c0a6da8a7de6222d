"""Tool-call dialects: what they read, however the text is cut, and what they make of mistakes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import registry
from octavo.errors import RequestError
from octavo.text import formats
from octavo.text.formats._declared import Tools
from octavo.text.formats._values import coerce, kinds, text_value
from octavo.text.split import Content, Event, Reasoning, ThoughtCalls, ToolCalled
from tool_texts import TEMPLATES, written

DECLARED: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "write",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "content": {"type": "string"},
                    "mode": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "options": {"type": "object"},
                    "deep": {"type": ["boolean", "null"]},
                },
                "required": ["path", "content"],
            },
        },
    },
    {"type": "function", "function": {"name": "mcp__srv__search-by-title", "parameters": {}}},
]
TOOLS = Tools(DECLARED)
CALL = ("write", {"path": "/x.py", "content": 'if (a<b && c>d) { s = "</p>"; }\n', "mode": 7})
NO_ARGUMENTS = ("mcp__srv__search-by-title", {})
Said = tuple[str, str, list[tuple[str, dict[str, Any]]]]


def read(dialect: str, pieces: Iterable[str]) -> Said:
    """(thinking, answer, calls)."""
    found = formats.of_template(TEMPLATES[dialect])
    assert found is not None
    parser = found.make_parser(TOOLS)
    return said([e for piece in pieces for e in parser.push(piece)] + parser.finish())


def said(events: list[Event]) -> Said:
    calls = [e.call for e in events if isinstance(e, ToolCalled)]
    assert all(call.id for call in calls)
    return (
        "".join(e.text for e in events if isinstance(e, Reasoning)),
        "".join(e.text for e in events if isinstance(e, Content)),
        [(call.name, json.loads(call.arguments)) for call in calls],
    )


def test_each_dialect_is_found_by_its_own_text() -> None:
    found = {name: formats.of_template(source) for name, source in TEMPLATES.items()}
    for name, dialect in found.items():
        assert dialect is not None
        assert dialect.name == name.removesuffix("_new").removesuffix("_old")
    assert {d.name for d in found.values() if d} == set(registry.names("text.formats"))
    assert formats.of_template("{{ messages }}") is None


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.6"])
def test_official_templates(vectors: Path, name: str) -> None:
    source = (vectors.parent / "templates" / f"{name}.jinja").read_text()
    dialect = formats.of_template(source)
    assert dialect is not None
    assert dialect.name == "qwen3_xml"


@pytest.mark.parametrize("dialect", TEMPLATES)
@pytest.mark.parametrize("calls", [[CALL], [NO_ARGUMENTS], [CALL, NO_ARGUMENTS, CALL]])
def test_what_is_written_is_read_at_every_cut(dialect: str, calls: list[Any]) -> None:
    text = written(dialect, calls)
    assert read(dialect, [text]) == ("", "", calls)
    assert read(dialect, text) == ("", "", calls)
    for cut in range(len(text)):
        assert read(dialect, [text[:cut], text[cut:]]) == ("", "", calls)


@pytest.mark.parametrize("dialect", set(TEMPLATES) - {"llama_json", "harmony"})
def test_words_before_a_call_are_the_answer(dialect: str) -> None:
    text = f"I write it now.\n\n{written(dialect, [CALL])}"
    for pieces in ([text], list(text)):
        assert read(dialect, pieces) == ("", "I write it now.", [CALL])


@pytest.mark.parametrize("dialect", TEMPLATES)
def test_answers_without_calls_stay_as_they_are(dialect: str) -> None:
    for text in (
        "a < b > c {d} [e]\n\n  ",
        "",
        " \n",
        "<tool",
        '{"a": 1}',
        '{"name": "me"}',
        "[TO",
    ):
        for pieces in ([text], list(text)):
            assert read(dialect, pieces) == ("", text, [])


def test_text_streams_without_delay() -> None:
    dialect = formats.of_template(TEMPLATES["qwen3_xml"])
    assert dialect is not None
    parser = dialect.make_parser(TOOLS)
    assert parser.push("Hello wor") == [Content("Hello wor")]
    assert parser.push("ld <tool") == [Content("ld")]
    assert parser.push("box") == [Content(" <toolbox")]


# Any value, any cut.

_nasty = st.lists(
    st.sampled_from(
        [
            *("<", "</", "</parameter>", "\n</parameter>", "<parameter=", "</function>", "\n"),
            *("<tool_call>", "</tool_call>", '"', "\\", "{", "}", "é", "汉", "😸", "\r\n", "\x01"),
            *("<parameter=path>", "[ARGS]", "<|call|", "\n<parameter=content>\n", "'", "null"),
        ]
    )
    | st.text(max_size=5),
    max_size=8,
).map("".join)
_names = st.sampled_from(["path", "content"])


def _is_ambiguous(dialect: str, value: str) -> bool:
    """Whether the dialect itself cannot say where such a text ends."""
    if dialect == "qwen3_xml":
        ended = "\n" + value + "\n</parameter>\n"
        inner = ended[: -len("\n</parameter>\n")]
        tags = ("<parameter=", "</function>", "</tool_call>", "<tool_call>", "</parameter>")
        ends = [p.lstrip().startswith(tags) for p in inner.split("\n</parameter>")[1:]]
        return any(ends) or value.rstrip().endswith("</parameter>") or "</function>" in value
    quotes = {"gemma": '<|"|>', "gemma_old": "<escape>", "harmony": "<|call|>"}
    return quotes.get(dialect, "\0\0") in value


@pytest.mark.parametrize("dialect", TEMPLATES)
@given(value=_nasty, seed=st.integers(0, 1000))
def test_any_text_survives_any_cut(dialect: str, value: str, seed: int) -> None:
    if _is_ambiguous(dialect, value):
        return
    calls = [("write", {"path": "p", "content": value})]
    text = written(dialect, calls)
    assert read(dialect, [text]) == ("", "", calls)
    assert read(dialect, _cut(text, seed)) == ("", "", calls)


def _cut(text: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(9)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


_JUNK = {
    "qwen3_xml": "<tool_call> <function=write> <function=no> <parameter=path> <parameter=content> "
    "</parameter> </function> </tool_call>",
    "hermes": '<tool_call> </tool_call> {"name": "write", "arguments": {"path": "x"} } { '
    '{"name": "',
    "llama_json": '<|python_tag|> {"name": "write", "parameters": {"path": "x"}} {"name": } ; {',
    "mistral": '[TOOL_CALLS] [{"name": "write", "arguments": {"path": "x"}} ] [ARGS] write { }',
    "mistral_new": '[TOOL_CALLS] write [ARGS] [CALL_ID] abc { } {"path": "x"} [ ]',
    "harmony": "<|channel|> analysis <|message|> <|end|> <|start|>assistant commentary "
    'to=functions.write {"path":"x"} <|call|> final <|return|>',
    "gemma": '<|tool_call> call: write{ path: <|"|> } { } , [ <tool_call|> 12 true " ',
    "gemma_old": "<start_function_call> call:write{path: <escape> } { } , [ <end_function_call>",
}


@pytest.mark.parametrize("dialect", TEMPLATES)
@given(data=st.data())
def test_cuts_do_not_matter_to_nonsense(dialect: str, data: st.DataObject) -> None:
    pieces = data.draw(
        st.lists(
            st.sampled_from([*_JUNK[dialect].split(" "), "\n", " ", "a"]) | st.text(max_size=3),
            max_size=16,
        )
    )
    text = "".join(pieces)
    whole = read(dialect, [text])
    assert read(dialect, text) == whole
    assert read(dialect, pieces) == whole


# Mistakes that models make: each has its rule in docs/tools.md.


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        # a stray closing tag
        ("<parameter=path>\n/x\n</parameter>\n</parameter>\n</function>\n</tool_call>", {}),
        # no line breaks
        ("<parameter=path>/x</parameter></function></tool_call>", {}),
        # something required is missing: the client says so, and the model can repair it
        ("<parameter=path>\n/x\n</parameter>\n</function>\n</tool_call>", {}),
        # a value that is not closed
        (
            "<parameter=path>\n/x\n<parameter=content>\nhi\n</parameter>\n</function>",
            {"content": "hi"},
        ),
        ("<parameter=path>\n/x\n</function>\n</tool_call>", {}),
        # no end of the function, of the call, of either
        ("<parameter=path>\n/x\n</parameter>\n</tool_call>", {}),
        ("<parameter=path>\n/x\n</parameter>\n</function>", {}),
        (
            "<parameter=path>\n/x\n</parameter>\n<parameter=content>\n\n</parameter>\n",
            {"content": ""},
        ),
        # the same twice: the first one counts
        ("<parameter=path>\n/x\n</parameter>\n<parameter=path>\n/y\n</parameter>\n</function>", {}),
        # words in between
        ("so\n<parameter=path>\n/x\n</parameter>\n</function>\n</tool_call>", {}),
    ],
)
def test_mistakes_in_xml(text: str, arguments: dict[str, str]) -> None:
    text = f"<tool_call>\n<function=write>\n{text}"
    for pieces in ([text], list(text)):
        assert read("qwen3_xml", pieces) == ("", "", [("write", {"path": "/x", **arguments})])


def test_missing_opening_tag() -> None:
    body = written("qwen3_xml", [CALL]).removeprefix("<tool_call>\n")
    assert read("qwen3_xml", f"Now:\n{body}") == ("", "Now:", [CALL])
    assert read("qwen3_xml", f"as in {body}")[2] == []  # not at the beginning of a line
    undeclared = body.replace("write", "erase")
    assert read("qwen3_xml", undeclared)[2] == []
    assert read("qwen3_xml", "<tool_call>\n" + undeclared)[2] == [
        ("erase", CALL[1] | {"mode": "7"})
    ]
    bare = written("hermes", [CALL]).removeprefix("<tool_call>\n")
    assert read("hermes", bare) == ("", "", [CALL])
    assert read("hermes", bare.removesuffix("\n</tool_call>"))[2] == []


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("qwen3_xml", "<tool_call>\n<function=write>\n<parameter=path>\n/etc/pass"),
        ("qwen3_xml", "<tool_call>\n<function=write>"),
        ("qwen3_xml", "<tool_call>\n<func"),
        ("hermes", '<tool_call>\n{"name": "write", "arguments": {"path": "/etc/pass'),
        ("llama_json", '{"name": "write", "parameters": {"path": "/etc/pass'),
        ("mistral", '[TOOL_CALLS][{"name": "write", "arguments": {"path": "/etc/pass'),
        ("mistral_new", '[TOOL_CALLS]write[ARGS]{"path": "/etc/pass'),
        ("gemma", '<|tool_call>call:write{path:<|"|>/etc/pass'),
    ],
)
def test_calls_that_were_cut_off_are_text(dialect: str, text: str) -> None:
    for pieces in ([text], list(text)):
        assert read(dialect, pieces) == ("", text, [])


def test_harmony_channels() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "I look.<|end|><|start|>assistant to=functions.write<|channel|>commentary json<|message|>"
        '{"path": "a", "content": "b"}'
    )
    for pieces in ([text], list(text)):
        assert read("harmony", pieces) == (
            "Hm.",
            "I look.",
            [("write", {"path": "a", "content": "b"})],
        )
    assert read("harmony", "<|channel|>final<|message|>Done.") == ("", "Done.", [])
    assert read("harmony", text[:-5])[2] == []


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "write", "arguments": {"path": "a"}}</tool_call>',
        '<tool_call>\n{"name": "write", "parameters": {"path": "a"}}',
        '<tool_call>\n{"name": "write", "arguments": "{\\"path\\": \\"a\\"}"}\n</tool_call>',
        "<tool_call>\n{'name': 'write', 'arguments': {'path': 'a'}}\n</tool_call>",
        '<tool_call>\n{"function": {"name": "write", "arguments": {"path": "a"}}}\n</tool_call>\n'
        "</tool_call>",
    ],
)
def test_mistakes_in_json(text: str) -> None:
    for pieces in ([text], list(text)):
        assert read("hermes", pieces) == ("", "", [("write", {"path": "a"})])


def test_mistral_gives_ids_that_its_template_takes() -> None:
    dialect = formats.of_template("[TOOL_CALLS]")
    assert dialect is not None
    text = '[TOOL_CALLS]write[CALL_ID]abcdef123[ARGS]{"path": "a"}' + written("mistral", [CALL])
    calls = [e.call for e in dialect.make_parser(TOOLS).push(text) if isinstance(e, ToolCalled)]
    assert calls[0].id == "abcdef123"
    assert len(calls[1].id) == 9
    assert calls[1].id.isalnum()


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5),
        ("5.5", {"type": "number"}, 5.5),
        ("five", {"type": "integer"}, "five"),
        ("True", {"type": "boolean"}, True),
        ("None", {"type": ["integer", "null"]}, None),
        ("null", {"type": ["string", "null"]}, None),
        ("5", {"type": "string"}, "5"),
        ("5", {}, "5"),
        ("5", {"type": ["string", "integer"]}, "5"),
        ("5", {"type": ["integer", "string"]}, 5),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("{'a': True}", {"type": "object"}, {"a": True}),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ('["a"]', {"anyOf": [{"type": "string"}, {"type": "array"}]}, ["a"]),
        ("[1, 2", {"type": "array"}, "[1, 2"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("2", {"enum": ["1", 2, None]}, 2),
        ("1", {"enum": ["1", 2, None]}, "1"),
        ("null", {"anyOf": [{"type": "string"}, {"const": None}]}, None),
        ("3", {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 3),
        ("NaN", {"type": "integer"}, "NaN"),
        (5, {"type": "string"}, 5),
    ],
)
def test_values_take_the_declared_type(value: Any, schema: Any, expected: Any) -> None:
    found = text_value(value, schema) if isinstance(value, str) else coerce(value, schema)
    assert found == expected
    assert type(found) is type(expected)


def test_a_quoted_string_stays_one_where_strings_are_allowed() -> None:
    assert coerce("null", {"type": ["string", "null"]}) == "null"
    assert coerce("5", {"type": ["integer", "string"]}) == "5"
    assert coerce("5", {"type": "integer"}) == 5
    assert coerce('{"a": 1}', {"type": "object"}) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    ['{"path": NaN}', '{"path": 1e999}', "[" * 100_000, '{"a":' * 100_000, "{" * 9 + "}" * 9],
)
def test_what_is_no_json_is_text(text: str) -> None:
    text = f"[TOOL_CALLS]write[ARGS]{text}"
    assert read("mistral", [text]) == ("", text, [])


def test_half_surrogates_are_escaped() -> None:
    call = next(e.call for e in _parse('{"name": "f", "arguments": {"a": "\\ud800é"}}'))
    call.arguments.encode()
    assert json.loads(call.arguments) == {"a": "\ud800é"}


def _parse(text: str) -> list[ToolCalled]:
    dialect = formats.of_template(TEMPLATES["hermes"])
    assert dialect is not None
    events = dialect.make_parser(TOOLS).push(f"<tool_call>{text}</tool_call>")
    return [e for e in events if isinstance(e, ToolCalled)]


def test_schemas_that_grow_without_end() -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/a"}] * 9}
    assert kinds({"$ref": "#/$defs/a", "$defs": {"a": loop}}) == []
    assert kinds({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}) == []
    assert text_value("5", {"enum": 5}) == "5"


def test_declarations() -> None:
    flat = Tools([{"name": "f", "parameters": {"properties": {"a": {}}, "required": ["a", "b"]}}])
    tool = flat.get("f")
    assert tool is not None
    assert tool.required == {"a"}
    with pytest.raises(RequestError, match="twice"):
        Tools([{"name": "f"}, {"name": "f"}])
    with pytest.raises(RequestError, match="no name"):
        Tools([{"function": {}}])
    with pytest.raises(RequestError, match="'f'"):
        Tools([{"name": "f", "parameters": 5}])
    with pytest.raises(RequestError, match="'f'"):
        Tools([{"name": "f", "parameters": {"properties": {1, 2}}}])


# Calls inside of thinking.


def think(pieces: Iterable[str]) -> Said:
    dialect = formats.of_template(TEMPLATES["qwen3_xml"])
    assert dialect is not None
    finder = ThoughtCalls(dialect.opening, lambda: dialect.make_parser(TOOLS), TOOLS.is_sound)
    return said([e for piece in pieces for e in finder.push(piece)] + finder.finish())


def test_a_call_that_ends_the_thinking_counts() -> None:
    text = f"I need the file.\n{written('qwen3_xml', [CALL])}\n"
    for pieces in ([text], list(text)):
        assert think(pieces) == ("I need the file.", "", [CALL])


@pytest.mark.parametrize(
    "text",
    [
        f"I could say\n{written('qwen3_xml', [CALL])}\nbut I will not.",
        f"I could say {written('qwen3_xml', [CALL])}",  # not at the beginning of a line
        written("qwen3_xml", [("write", {"path": "x"})]),  # something required is missing
        written("qwen3_xml", [("erase", {})]),  # not declared
        written("qwen3_xml", [CALL])[:-40],  # not whole
    ],
)
def test_a_call_that_is_only_mentioned_does_not(text: str) -> None:
    for pieces in ([text], list(text)):
        assert think(pieces) == (text, "", [])


_thoughts = st.lists(
    st.sampled_from([written("qwen3_xml", [CALL]), "<tool_call>", "\n", " ", "so", "</function>"]),
    max_size=7,
)


@given(_thoughts)
def test_cuts_do_not_matter_to_thought_calls(pieces: list[str]) -> None:
    whole = think(["".join(pieces)])
    assert think(pieces) == whole
    assert think("".join(pieces)) == whole
