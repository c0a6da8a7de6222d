"""Nonsense for the server and the parsers: only documented errors may come of it.

    python tests/fuzz_server.py --cases 1000000     # in all, shared among the kinds

Everything runs in this process, without sockets. Each case has a number; `--kind KIND --first N
--cases 1` runs one again. The last line is JSON; the exit code is 1 if there was a finding.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fuzz_json import MESSAGES, SEEDS, TOOL, near, near_bytes
from fuzz_leaving import Portions, Visit
from octavo.chat import Answer
from octavo.errors import OctavoError, TemplateError
from octavo.server.app import make_app
from octavo.server.fleet import Fleet
from octavo.server.guard import Rules
from octavo.server.resident import Resident
from octavo.server.wire.anthropic import MessagesBody
from octavo.server.wire.native import InfillBody, NativeBody
from octavo.server.wire.openai import ChatBody, CompletionBody, EmbeddingBody
from octavo.server.wire.openai_messages import read_messages
from octavo.server.wire.responses import ResponsesBody
from octavo.server.wire.responses_answer import ResponseWriter
from octavo.text import formats
from octavo.text.formats._declared import Tools
from octavo.text.split import Content, Event, Reasoning, Splitter, ToolCalled
from octavo.text.template import Template
from octavo.types import SamplingParams
from serving import END, Gate, ScriptedSession, ScriptedStream
from tiny_vocabulary import CHATML
from tool_texts import TEMPLATES, written

SEED = 7
MAX_SECONDS = 20.0  # of one case; what takes longer hangs
SHARES = {
    "requests": 0.02,
    "bodies": 0.8,
    "headers": 0.04,
    "leaving": 0.02,
    "streams": 0.08,
    "templates": 0.04,
}


class FindingError(AssertionError):
    """A case that went as no document says."""


# Requests and headers: the whole application, in process.


class Quick(ScriptedSession):
    """Says one of a few things to everyone, at once."""

    SCRIPTS = (
        f"Hi{END}",
        f"hm\n</think>\n\nHi{END}",
        f"hm\n</think>\n\n<tool_call>\n<function=write>\n<parameter=path>\nx\n</parameter>\n"
        f"</function>\n</tool_call>{END}",
        "cut off",
    )

    def __init__(self) -> None:
        super().__init__(TEMPLATES["qwen3_xml"] + CHATML, context=4096)
        self.gate = Gate(10**12)
        self._n = 0

    def submit(
        self, ids: Sequence[int], params: SamplingParams, *, marks: Iterable[int] = ()
    ) -> ScriptedStream:
        self._n += 1
        self.requests.clear()
        self.asked.clear()
        self.streams.clear()
        self._scripts = [self.SCRIPTS[self._n % len(self.SCRIPTS)]]
        return super().submit(ids, params, marks=marks)


@dataclass
class Answered:
    status: int = 0
    kind: str = ""
    body: bytearray = field(default_factory=bytearray)


class Server:
    """The application, called directly."""

    def __init__(self, rules: Rules, session: ScriptedSession | None = None) -> None:
        session = session or Quick()
        fleet = Fleet([Resident(lambda report, plan: session, "m")])
        loaded = threading.Event()
        fleet.first.on_end_of_loading = loaded.set
        self.app = make_app(fleet, rules, Path("/nowhere"))
        self.loop = asyncio.new_event_loop()
        fleet.start()
        assert loaded.wait(20)
        self.fleet = fleet

    def ask(self, scope: dict[str, Any], body: bytes) -> Answered:
        whole = asyncio.wait_for(self._ask(scope, body), MAX_SECONDS)
        answered = self.loop.run_until_complete(whole)
        if self.fleet.first.state == "unloaded":  # it was asked to
            self.fleet.load(self.fleet.first)
        while self.fleet.first.state != "ready":
            time.sleep(0.001)
        return answered

    async def _ask(self, scope: dict[str, Any], body: bytes) -> Answered:
        answered, done = Answered(), asyncio.Event()
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answered.status = message["status"]
                answered.kind = dict(message["headers"]).get(b"content-type", b"").decode("latin-1")
            else:
                answered.body += message.get("body", b"")
                if not message.get("more_body", False):
                    done.set()

        await self.app(scope, receive, send)
        return answered

    def close(self) -> None:
        self.fleet.close()
        self.loop.close()


@cache
def documented() -> dict[tuple[str, str], dict[str, Any]]:
    """What /openapi.json says of each (path, method): the answers by their status."""
    app = make_app(Fleet([Resident(lambda report, plan: Quick(), "m")]))
    return {
        (path, method): operation["responses"]
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
    }


def scope_of(path: str, method: str = "POST", headers: Iterable[Any] = ()) -> dict[str, Any]:
    path, _, query = path.partition("?")
    given = [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": query.encode("utf-8", "replace"),
        "root_path": "",
        "headers": given,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }


def check_answer(answered: Answered, documented: dict[str, Any] | None) -> None:
    """Status and form are documented; a 500 never is what a request deserves."""
    status = answered.status
    if status == 500 or (documented is not None and str(status) not in documented):
        raise FindingError(f"status {status}: {bytes(answered.body[:300])!r}")
    if answered.kind.startswith("application/json"):
        found = json.loads(answered.body)
        if status >= 400 and not isinstance(found["error"]["message"], str):
            raise FindingError(f"an error without its message: {found}")
    if b'"server_error"' in answered.body or b'"api_error"' in answered.body:
        raise FindingError(f"a fault within a stream: {bytes(answered.body[-300:])!r}")


def requests() -> Iterator[Callable[[random.Random], Any]]:
    server = Server(Rules())
    paths = list(SEEDS)
    templates = {"/slots/0?action=save": "/slots/{number}"}
    templates["/v1/requests/req_1/answer-now"] = "/v1/requests/{id}/answer-now"

    def case(rng: random.Random) -> Any:
        path = rng.choice(paths)
        body = near_bytes(rng, rng.choice(SEEDS[path]))
        answered = server.ask(scope_of(path), body)
        check_answer(answered, documented()[templates.get(path, path), "post"])
        return answered.status

    yield case
    server.close()


_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "X", "")
_NAMES = (
    *(b"host", b"content-type", b"content-length", b"authorization", b"x-api-key", b"origin"),
    *(b"accept", b"anthropic-version", b"anthropic-beta", b"x-request-id", b"connection"),
    *(b"access-control-request-method", b"access-control-request-headers", b"cookie", b"range"),
)
_VALUES = (
    *(b"", b" ", b"localhost", b"127.0.0.1:8080", b"[::1]", b"[", b"]:", b"evil.example", b"::1"),
    *(b"application/json", b"application/json; charset=x", b"text/plain", b"multipart/form-data"),
    *(b"Bearer k", b"Bearer ", b"bearer k", b"Basic k", b"k", b"-1", b"0", b"1", b"9" * 40),
    *(b"1e3", b"\xff\xfe", b"\x00", b"a" * 9000, b"http://x", b"null", b"*", b"\xb2", b"1_0"),
)
_WORDS = (
    *("v1", "models", "chat", "completions", "slots", "responses", "x", "..", ".", "", "static"),
    *("0", "-1", "9" * 30, "load", "é", "\x00", "%2e", "a" * 300, "health", "metrics", "\ud800"),
    *("docs", "openapi.json", "props", "index.html", "app.js", "requests", "answer-now"),
)


def headers() -> Iterator[Callable[[random.Random], Any]]:
    servers = [
        Server(Rules()),
        Server(Rules(keys=("k",), origins=("http://x",), max_body_bytes=100)),
    ]
    known = [*SEEDS, *(path for path, method in documented() if method == "get")]

    def case(rng: random.Random) -> Any:
        server, path = rng.choice(servers), rng.choice(known)
        if rng.random() < 0.3:
            path = "/" + "/".join(rng.choices(_WORDS, k=rng.randint(1, 4)))
        if rng.random() < 0.2:
            path += "?" + "&".join(f"{rng.choice(_WORDS)}={rng.choice(_WORDS)}" for _ in range(2))
        more = [(rng.choice(_NAMES), rng.choice(_VALUES)) for _ in range(rng.randint(0, 5))]
        scope = scope_of(path, rng.choice(_METHODS), more)
        if rng.random() < 0.5:
            scope["headers"] = more
        answered = server.ask(scope, rng.choice((b"", b"{}", b"[]", b"\xff", b"a" * 200)))
        check_answer(answered, None)
        return answered.status

    yield case
    for server in servers:
        server.close()


def leaving() -> Iterator[Callable[[random.Random], Any]]:
    session = Portions(TEMPLATES["qwen3_xml"] + CHATML)
    server = Server(Rules(), session)

    def case(rng: random.Random) -> Any:
        async def visit() -> str:
            one = Visit(rng, session, server)
            return await one.run(scope_of(one.path))

        return server.loop.run_until_complete(visit())

    yield case
    server.close()


# Bodies: read without the application, which is quicker.


def _read_completion(body: CompletionBody) -> None:
    body.check()
    body.sampling(body.n_logprobs)
    assert body.prompts


def _read_responses(body: ResponsesBody) -> None:
    body.read((), lambda id: None)
    json.dumps(ResponseWriter("m", body, Answer()).response())


_READERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "/v1/chat/completions": (ChatBody, lambda body: body.read()),
    "/v1/completions": (CompletionBody, _read_completion),
    "/v1/embeddings": (EmbeddingBody, lambda body: body.texts),
    "/v1/responses": (ResponsesBody, _read_responses),
    "/v1/messages": (MessagesBody, lambda body: body.read()),
    "/completion": (NativeBody, lambda body: body.sampling(body.n_probs)),
    "/infill": (InfillBody, lambda body: body.sampling(body.n_probs)),
}


def bodies() -> Iterator[Callable[[random.Random], Any]]:
    paths = list(_READERS)

    def case(rng: random.Random) -> Any:
        path = rng.choice(paths)
        shape, read = _READERS[path]
        try:
            read(shape.model_validate(near(rng, rng.choice(SEEDS[path]))))
        except (ValidationError, OctavoError) as error:
            return type(error).__name__
        return "read"

    yield case


# Streams: what a model may say, cut anywhere.

_LETTERS = tuple("ab{}[]<>|/=\"'\\:, \n\t0-.") + ("é", "😀", "\u2028", "\x00", "null", "true")
_PIECES = (
    *("<tool_call>", "</tool_call>", "<function=write>", "</function>", "<parameter=path>"),
    *("</parameter>", "<think>", "</think>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]"),
    *("<|channel|>", "commentary to=functions.write", "<|message|>", "<|call|>", "<|tool_call>"),
    *("call:write{", "<start_function_call>", "<end_function_call>", '{"name": "write"', "END"),
    *(', "arguments": {"path": "x"}}', '"path"', "write", "<|constrain|>json", "}", "]"),
)


def streams() -> Iterator[Callable[[random.Random], Any]]:
    session = Quick()
    tokenizer, tools = session.tokenizer, Tools([TOOL])
    by_bytes: dict[bytes, int] = {}
    for id in range(tokenizer.vocab_size):
        by_bytes.setdefault(tokenizer.piece(id), id)
    longest = max(map(len, by_bytes))
    dialects = {name: formats.of_template(source) for name, source in TEMPLATES.items()}

    def cut(rng: random.Random, data: bytes, whole: bool) -> list[int]:
        """Ids of these bytes: the longest, or one cut of many."""
        ids, at = [], 0
        while at < len(data):
            n = longest if whole else rng.randint(1, longest)
            while (piece := data[at : at + n]) not in by_bytes:
                n -= 1
            ids.append(by_bytes[piece])
            at += len(piece)
        return ids

    def run(name: str, thinks: bool, ids: Iterable[int]) -> Any:
        dialect = dialects[name]
        assert dialect is not None
        splitter = Splitter(
            tokenizer,
            stop=("END",),
            reasoning_tags=("<think>", "</think>"),
            in_reasoning=thinks,
            parser=dialect.make_parser(tools),
        )
        events = [event for id in ids for event in splitter.push(id)]
        if splitter.stop_text is None:
            events += splitter.finish()
        return _joined(events), splitter.stop_text

    def case(rng: random.Random) -> Any:
        name, thinks = rng.choice(list(TEMPLATES)), rng.random() < 0.3
        text = _said(rng, name)
        data = text.encode("utf-8", "replace")
        if rng.random() < 0.3:
            data += rng.randbytes(rng.randint(1, 12)) + data[: rng.randrange(len(data) + 1)]
        one, other = (run(name, thinks, cut(rng, data, whole)) for whole in (True, False))
        if one != other:
            raise FindingError(f"{name}, thinks {thinks}: {data!r}\n{one}\n{other}")
        return f"{len(one[0][2])} calls"

    yield case


def _said(rng: random.Random, dialect: str) -> str:
    parts: list[str] = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if kind < 0.3:
            arguments = {"path": rng.choice(_LETTERS) * 2, "mode": rng.choice((1, "x", None, [1]))}
            call = written(dialect, [("write", arguments)])
            at = rng.randrange(len(call) + 1)
            parts.append(rng.choice((call, call[:at], call[:at] + rng.choice(_PIECES) + call[at:])))
        elif kind < 0.7:
            parts.append(rng.choice(_PIECES))
        else:
            parts.append("".join(rng.choices(_LETTERS, k=rng.randint(1, 6))))
    return "".join(parts)


def _joined(events: Iterable[Event]) -> tuple[str, str, list[tuple[str, str]]]:
    """Thinking, answer, and calls by name and arguments: ids are random."""
    texts = {Content: "", Reasoning: ""}
    calls = []
    for event in events:
        if isinstance(event, (Content, Reasoning)):
            texts[type(event)] += event.text
        elif isinstance(event, ToolCalled):
            calls.append((event.call.name, event.call.arguments))
    return texts[Reasoning], texts[Content], calls


# Templates: of files that nobody has checked, with messages that nobody has.

_JINJA = (
    *("{% if", "{% endif %}", "{% for m in messages %}", "{% endfor %}", "{{", "}}", "{%-", "%}"),
    *("messages", "tools", "loop.last", "m.content", "| tojson", "| length", "| replace('a', 'b')"),
    *("range(10**9)", "'a' * 10**9", "[1] * 10**8", "().__class__", "messages[0]['role']", "m.x.y"),
    *(
        "namespace(a=1)",
        "{% set x = 1 %}",
        "~",
        "**",
        "//",
        "%",
        "none",
        "'",
        "raise_exception('x')",
    ),
    *(
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "strftime_now('%Y')",
        "| join",
        "[::-1]",
    ),
    *(
        "{% generation %}",
        "{% break %}",
        "{# x",
        "| attr('__init__')",
        "messages | map(attribute='a')",
    ),
)


def templates() -> Iterator[Callable[[random.Random], Any]]:
    tokenizer = Quick().tokenizer
    whole = [Template(source, tokenizer) for source in (CHATML, TEMPLATES["hermes"] + CHATML)]

    def case(rng: random.Random) -> Any:
        try:
            messages = list(read_messages(near(rng, MESSAGES)))
            tools = [near(rng, TOOL)]
        except (OctavoError, TypeError, AttributeError, KeyError):
            messages, tools = [], []  # bodies are the matter of others
        found = rng.choice(whole)
        if rng.random() < 0.2:
            found = Template(_broken(rng, found.source), tokenizer)
        try:
            found.render_ids(messages, [tool for tool in tools if isinstance(tool, dict)])
        except TemplateError as error:
            return str(error).partition(":")[0][:40]
        return "rendered"

    yield case


def _broken(rng: random.Random, source: str) -> str:
    for _ in range(rng.randint(1, 3)):
        at, n = rng.randrange(len(source) + 1), rng.choice((0, 0, 1, 5, 30))
        source = source[:at] + rng.choice(_JINJA) + source[at + n :]
    return source


KINDS: dict[str, Callable[[], Iterator[Callable[[random.Random], Any]]]] = {
    "requests": requests,
    "bodies": bodies,
    "headers": headers,
    "leaving": leaving,
    "streams": streams,
    "templates": templates,
}


@dataclass
class Run:
    """What came of the cases of one kind."""

    kind: str
    cases: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def run(kind: str, cases: int, first: int = 0, most_findings: int = 20) -> Run:
    """Run these cases; stops after a few findings."""
    result = Run(kind)
    faults: list[str] = []
    listener = logging.Handler(logging.ERROR)
    listener.emit = lambda record: faults.append(  # type: ignore[method-assign]
        "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
    )
    logging.getLogger("octavo").addHandler(listener)
    steps = KINDS[kind]()
    case, began = next(steps), time.perf_counter()
    for number in range(first, first + cases):
        start = time.perf_counter()
        faults.clear()
        try:
            result.outcomes[str(case(random.Random(f"{SEED}-{kind}-{number}")))] += 1
        except Exception:
            log = "\n".join(fault[-1500:] for fault in faults)
            result.findings.append(f"{kind} {number}: {traceback.format_exc()[-1500:]}\n{log}")
        result.cases += 1
        result.slowest_seconds = max(result.slowest_seconds, time.perf_counter() - start)
        if len(result.findings) >= most_findings:
            break
    result.seconds = time.perf_counter() - began
    next(steps, None)
    logging.getLogger("octavo").removeHandler(listener)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    logging.getLogger("octavo").propagate = False
    counts = {kind: round(args.cases * share) for kind, share in SHARES.items()}
    if args.kind:
        counts = {args.kind: args.cases}
    summary: dict[str, Any] = {}
    for kind, cases in counts.items():
        began = time.process_time()
        result = run(kind, cases, args.first)
        for finding in result.findings:
            print(finding)
        summary[kind] = {
            "cases": result.cases,
            "per_second": round(result.cases / result.seconds),
            "per_cpu_second": round(result.cases / (time.process_time() - began)),
            "slowest_seconds": round(result.slowest_seconds, 3),
            "outcomes": dict(result.outcomes.most_common(8)),
            "findings": len(result.findings),
        }
        print(kind, json.dumps(summary[kind]), flush=True)
    total = sum(found["cases"] for found in summary.values())
    print(json.dumps({"test": "fuzz_server", "cases": total, **summary}))
    sys.exit(any(found["findings"] for found in summary.values()))


if __name__ == "__main__":
    main()
