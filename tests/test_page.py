"""The page in a real browser: chats, thinking, tools, files, keys, and what hostile text can do.

Needs the package playwright and a Chromium; without them the tests of the browser skip. Every page
opened here must stay within its content security policy, and ask no other server for anything.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.plan.plan import Video
from octavo.server.fleet import Fleet
from octavo.server.guard import Rules
from octavo.server.resident import Resident
from octavo.server.routes.memory import places
from serving import END, PLAIN, THINKER, ScriptedSession, make_plan, serving
from test_documents import make_pdf

STATIC = Path(__file__).parents[1] / "src" / "octavo" / "server" / "static"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
)
WAIT_MS = 30_000  # a busy machine is no failure
TOOLED = (
    "{%- if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    "{% endif %}" + PLAIN
)
WEATHER = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
WATCH = (
    "addEventListener('securitypolicyviolation', e => (window.faults ||= []).push(e.blockedURI))"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not here")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, BROWSERS)), playwright.chromium.executable_path)
        if not Path(found).exists():
            pytest.skip("there is no Chromium on this machine")
        started = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield started
        started.close()


Opener = Callable[..., contextlib.AbstractContextManager[Any]]


@pytest.fixture
def opened(browser: Any) -> Opener:
    """`with opened(address) as page:` the page, loaded. `allowed`: parts of faults."""

    @contextlib.contextmanager
    def open_page(address: str, allowed: tuple[str, ...] = (), **options: Any) -> Iterator[Any]:
        options = {"locale": "en-US", "reduced_motion": "reduce"} | options
        context = browser.new_context(**options)
        context.set_default_timeout(WAIT_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        context.add_init_script(WATCH)
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        page.on("request", lambda r: r.url.startswith((address, "blob:")) or faults.append(r.url))
        page.goto(address, wait_until="commit")
        page.wait_for_selector("#message")
        yield page
        assert page.evaluate("window.faults || []") == []
        assert [fault for fault in faults if not any(part in fault for part in allowed)] == []
        context.close()

    return open_page


def say(page: Any, text: str) -> None:
    page.fill("#message", text)
    page.keyboard.press("Enter")


def wait_for_answer(page: Any, n: int = 1) -> Any:
    """The last answer, when it is whole."""
    page.wait_for_function(
        "n => document.querySelectorAll('.answer').length >= n"
        " && !document.querySelector('.answer.running')",
        arg=n,
    )
    return page.locator(".answer").last


# Without a browser


def test_files_come_with_their_policy_and_need_no_key() -> None:
    with serving(ScriptedSession(PLAIN), Rules(keys=("secret",))) as address:
        page = httpx.get(f"{address}/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["cache-control"] == "no-cache"
        for name in re.findall(r'(?:href|src)="(/[^"]*)"', page.text):
            found = httpx.get(f"{address}{name}")
            assert found.status_code == 200, name
            tag = {"if-none-match": found.headers["etag"]}
            kept = httpx.get(f"{address}{name}", headers=tag)
            assert (kept.status_code, kept.content) == (304, b"")
        assert httpx.get(f"{address}/static/..%2fapp.py").status_code == 404
        assert httpx.get(f"{address}/static/none.js").status_code == 404
        assert httpx.get(f"{address}/v1/models").status_code == 401


def test_page_refers_to_nothing_elsewhere_and_makes_no_markup() -> None:
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        code = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
        for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert banned not in code, path
        hosts = re.findall(r"https?://[\w.]+", code)
        assert set(hosts) <= {"http://www.w3.org"}, path  # the name of SVG
        assert len(text.splitlines()) <= 400 or path.suffix == ".css", path


def test_languages_have_the_same_words() -> None:
    tables = {}
    for name in ("en", "zh"):
        text = (STATIC / f"{name}.js").read_text(encoding="utf-8")
        rows = re.findall(r'^  (\w+): ?"(.*)",$|^  (\w+):\n', text, re.MULTILINE)
        assert not [row for row in rows if row[2]], "one line each"
        tables[name] = {key: set(re.findall(r"\{(\w+)\}", words)) for key, words, _ in rows}
    assert tables["en"] == tables["zh"]
    code = "".join(p.read_text(encoding="utf-8") for p in STATIC.glob("*.js"))
    used = set(re.findall(r'\bt\("(\w+)"', code))
    assert used <= tables["en"].keys()
    unused = {key for key in tables["en"] if not re.search(rf'["`]{key}\b', code)}
    assert {key for key in unused if not key.startswith("try")} == set()


def test_answer_now_route() -> None:
    session = ScriptedSession(THINKER, "I think. " * 30, f"Yes.{END}")
    session.hold()
    with serving(session) as address:
        body = {"messages": [{"role": "user", "content": "?"}], "stream": True}
        url = f"{address}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=30) as stream:
            request = stream.headers["x-request-id"]
            lines = stream.iter_lines()
            session.gate.release(5)
            assert any("reasoning_content" in line for line in lines)
            path = f"{address}/v1/requests/{request}/answer-now"
            assert httpx.post(path, json={}).json() == {"id": request, "ended_thinking": True}
            session.gate.release(100)
            deltas = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        content = "".join(d["choices"][0]["delta"].get("content", "") for d in deltas)
        assert content == "Yes."
        assert session.requests[1][0].endswith("answer now.\n</think>\n\n")
        end = time.monotonic() + 10  # it is forgotten right after its last line
        while httpx.post(path, json={}).status_code != 404:
            assert time.monotonic() < end


def test_memory_has_every_byte_of_the_plan() -> None:
    left = {"experts": 16_000}
    card = Video(
        gpu="a card",
        total_bytes=9000,
        other_bytes=100,
        other_programs=(),
        limit_bytes=8000,
        context_bytes=300,
        slack_bytes=20,
        weight_bytes={"trunk": 1500, "head": 400},
        left_bytes=left,
        pinned_bytes=0,
        ring_bytes=200,
        host_scratch_bytes=70,
        n_slots=8,
        slot_bytes=100,
        n_blocks=2,
        n_experts=80,
        least_slots=4,
    )
    whole = {"trunk": 1500, "head": 400, "experts": 16_000}
    sizes = {"cache_bytes": 1000, "state_bytes": 50, "scratch_bytes": 60}
    plan = make_plan(weight_bytes=whole, video=card, **sizes)
    video, main = places(plan)
    assert (video["place"], main["place"]) == ("video", "main")
    assert sum(part["bytes"] for part in video["parts"]) == plan.video_total_bytes
    assert sum(part["bytes"] for part in main["parts"]) == plan.total_bytes
    (alone,) = places(make_plan(weight_bytes=whole, **sizes))
    assert sum(part["bytes"] for part in alone["parts"]) == 17_900 + 1110


def test_memory_route() -> None:
    session = ScriptedSession(PLAIN)
    with serving(session) as address:
        found = httpx.get(f"{address}/v1/memory").json()
    (place,) = found["places"]
    assert place["parts"] == [{"group": "weights", "name": "trunk", "bytes": 1000}]
    assert found["process_bytes"] > 0


# Chats


def test_answer_is_shown_as_it_comes(opened: Opener) -> None:
    session = ScriptedSession(PLAIN, f"One **two** three.\n\n| a | b |\n|---|--:|\n| 1 | 2 |{END}")
    session.hold()
    with serving(session) as address, opened(address) as page:
        say(page, "Count.")
        page.get_by_role("button", name="Stop").wait_for()
        session.gate.release(14)
        page.locator(".answer .prose strong", has_text="two").wait_for()
        assert page.locator(".answer.running").count() == 1
        session.gate.release(1000)
        answer = wait_for_answer(page)
        assert answer.locator("td").all_inner_texts() == ["1", "2"]
        assert "tokens" in answer.locator(".meta").inner_text()
        page.get_by_role("button", name="Send").wait_for()
        assert page.locator("#message").input_value() == ""
        assert page.evaluate("document.activeElement.id") == "message"
    assert [message.content for message in session.asked[0].messages] == ["Count."]


def test_prompt_that_is_being_read_says_how_far(opened: Opener) -> None:
    view = """async progress => {
        const { viewOf, secondsLeft } = await import("/static/message.js");
        const { newConversation, addNode } = await import("/static/conversation.js");
        const talk = await import("/static/talk.js");
        const conversation = newConversation();
        window.fetch = () => new Promise(() => {});
        talk.answer(conversation, null);
        const node = conversation.nodes[conversation.leaf];
        Object.assign(node, { state: "prompt", progress });
        const text = viewOf(conversation, node).element.querySelector(".status").innerText;
        return [text, secondsLeft(progress)];
    }"""
    progress = {"total": 9000, "cache": 1000, "processed": 3000, "time_ms": 4000}
    with serving(ScriptedSession(PLAIN)) as address, opened(address) as page:
        text, left = page.evaluate(view, progress)
    assert text == "Reading the prompt: 3,000 of 9,000 tokens, about 12 s left"
    assert left == 12  # 6,000 tokens at 500 a second


def test_escape_stops_the_model(opened: Opener) -> None:
    session = ScriptedSession(PLAIN, "word " * 200)
    session.hold()
    with serving(session) as address, opened(address) as page:
        say(page, "Go.")
        session.gate.release(6)
        page.locator(".answer .prose p").wait_for()
        page.keyboard.press("Escape")
        page.get_by_text("You stopped this answer.").wait_for()
        assert session.streams[0].cancelled.wait(20)
        page.reload()
        page.get_by_text("You stopped this answer.").wait_for()
        assert "word" in page.locator(".answer > .prose").inner_text()


def test_thinking_is_apart_and_can_be_ended(opened: Opener) -> None:
    session = ScriptedSession(THINKER, "Let me see. " * 50, f"Forty-two.{END}")
    session.hold()
    with serving(session) as address, opened(address) as page:
        say(page, "Well?")
        session.gate.release(12)
        thinking = page.locator(".thinking")
        thinking.get_by_text("Let me see.").wait_for()
        assert page.locator(".answer > .prose").inner_text() == ""
        page.get_by_role("button", name="Answer now").click()
        page.get_by_role("button", name="Coming to the answer").wait_for()
        session.gate.release(1000)
        answer = wait_for_answer(page)
        assert answer.locator("> .prose").inner_text() == "Forty-two."
        toggle = page.get_by_role("button", name="Thought for")
        assert toggle.get_attribute("aria-expanded") == "false"
        assert not page.locator(".thinking-body").is_visible()
        toggle.click()
        assert page.locator(".thinking-body").is_visible()
    assert session.requests[1][0].endswith("answer now.\n</think>\n\n")


def test_thinking_switch_reaches_the_model(opened: Opener) -> None:
    session = ScriptedSession(THINKER, f"Yes.{END}")
    with serving(session) as address, opened(address) as page:
        page.get_by_role("button", name="Thinking: auto").click()
        page.get_by_role("button", name="Thinking: on").click()
        page.get_by_role("button", name="Thinking: off").wait_for()
        say(page, "Well?")
        wait_for_answer(page)
    assert session.asked[0].thinking is False


def test_model_that_only_thought_is_asked_again_without(opened: Opener) -> None:
    session = ScriptedSession(THINKER, f"Hm.{END}", END, f"Yes.{END}")
    with serving(session) as address, opened(address) as page:
        say(page, "Well?")
        wait_for_answer(page)
        page.get_by_role("button", name="Answer without thinking").click()
        page.get_by_text("Yes.").wait_for()
    assert session.asked[1].thinking is False


def test_tool_call_waits_for_its_result(opened: Opener) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    session = ScriptedSession(TOOLED, f"Let me look.\n{call}{END}", f"It rains.{END}", context=2000)
    with serving(session) as address, opened(address) as page:
        page.get_by_role("button", name="Settings").click()
        page.fill("[data-setting=tools]", "no list")
        page.locator("[data-setting=tools]").blur()
        page.get_by_text("This is no JSON list of functions").wait_for()
        page.fill("[data-setting=tools]", json.dumps(WEATHER))
        page.locator("[data-setting=tools]").blur()
        page.keyboard.press("Escape")
        say(page, "Weather?")
        card = page.get_by_role("region", name="Tool call: get_weather")
        card.get_by_text('"city": "Paris"').wait_for()
        card.get_by_label("What should get_weather return?").fill("rain")
        card.get_by_role("button", name="Send the result").click()
        page.get_by_text("It rains.").wait_for()
        wait_for_answer(page, 2)
        assert card.get_by_role("button", name="Send the result").count() == 0
    last = session.asked[1].messages[-1]
    assert (last.role, last.content, last.name) == ("tool", "rain", "get_weather")
    assert session.asked[1].messages[-2].tool_calls[0].arguments == '{"city": "Paris"}'


def test_editing_and_answering_again_keep_the_old(opened: Opener) -> None:
    session = ScriptedSession(PLAIN, f"First.{END}", f"Second.{END}", f"Third.{END}")
    with serving(session) as address, opened(address) as page:
        say(page, "Ask.")
        wait_for_answer(page)
        page.get_by_role("button", name="Answer again").click()
        page.get_by_text("Second.").wait_for()
        wait_for_answer(page)
        page.get_by_text("2 of 2").wait_for()
        page.get_by_role("button", name="Previous version").click()
        page.get_by_text("First.").wait_for()
        page.locator("#message").press("ArrowUp")
        field = page.get_by_role("textbox", name="Edit")
        assert field.input_value() == "Ask."
        field.fill("Ask more.")
        field.press("Enter")
        page.get_by_text("Third.").wait_for()
        wait_for_answer(page)
        assert page.get_by_text("First.").count() == 0
        page.reload()
        page.get_by_text("Third.").wait_for()
    assert [asked.messages[-1].content for asked in session.asked] == ["Ask.", "Ask.", "Ask more."]
    assert len(session.asked[2].messages) == 1


def test_conversations_stay_and_can_be_taken_along(opened: Opener, tmp_path: Path) -> None:
    session = ScriptedSession(PLAIN, f"One.{END}", f"Two.{END}", f"Three.{END}")
    with serving(session) as address, opened(address) as page:
        say(page, "The first chat")
        wait_for_answer(page)
        page.keyboard.press("Control+k")
        page.get_by_role("heading", name="What is on your mind?").wait_for()
        say(page, "The second chat")
        wait_for_answer(page)
        page.reload()
        page.get_by_text("Two.").wait_for()
        page.get_by_role("button", name="The first chat", exact=True).click()
        page.get_by_text("One.").wait_for()
        say(page, "More")
        page.get_by_text("Three.").wait_for()
        wait_for_answer(page, 2)

        page.get_by_role("button", name="Settings").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Export all").click()
        kept = tmp_path / "kept.json"
        download.value.save_as(kept)
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete all").click()
        page.wait_for_function("() => !document.querySelector('.list li')")
        page.set_input_files("#settings-dialog input[type=file]", kept)
        page.get_by_text("2 conversations were imported.").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="The first chat", exact=True).click()
        page.get_by_text("Three.").wait_for()
    contents = [message.content for message in session.asked[2].messages]
    assert contents == ["The first chat", "One.", "More"]


def test_deleting_can_be_undone(opened: Opener) -> None:
    with serving(ScriptedSession(PLAIN, f"One.{END}")) as address, opened(address) as page:
        say(page, "The first chat")
        wait_for_answer(page)
        page.get_by_role("button", name="Actions for “The first chat”").click()
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("heading", name="What is on your mind?").wait_for()
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name="The first chat", exact=True).click()
        page.get_by_text("One.").wait_for()


def test_imports_of_other_things_are_refused(opened: Opener, tmp_path: Path) -> None:
    node = {"id": "a", "parent": "b", "role": "user", "content": ""}
    circle = {"a": node, "b": node | {"id": "b", "parent": "a"}}
    wrong = {"id": "x", "title": "", "updated": 1, "leaf": "a", "nodes": circle}
    with serving(ScriptedSession(PLAIN)) as address, opened(address) as page:
        page.get_by_role("button", name="Settings").click()
        for number, text in enumerate(("{", "[]", json.dumps({"conversations": [wrong]}))):
            path = tmp_path / f"{number}.json"
            path.write_text(text)
            page.set_input_files("#settings-dialog input[type=file]", path)
            page.get_by_text("This file holds no conversations").nth(number).wait_for()
        assert page.locator(".list li").count() == 0


# What the model writes

HOSTILE = """<script>window.taken = 1</script><img src=x onerror="window.taken = 2">
<iframe srcdoc="<script>parent.taken = 3</script>"></iframe><svg onload="window.taken = 4"></svg>

[click](javascript:window.taken=5) [data](data:text/html,<script>1</script>) [file](file:///etc)
[up](/v1/models) ![spy](https://spy.example/?q=secret) <javascript:1> [ok](https://good.example/a)

```html"><script>window.taken = 6</script>
</code></pre><script>window.taken = 7</script>
```

| <b>x</b> | `</td>` |
|---|---|
| <script>window.taken = 8</script> | y |
"""


def test_hostile_markdown_is_only_text(opened: Opener) -> None:
    session = ScriptedSession(THINKER, f"{HOSTILE}</think>\n\n{HOSTILE}{END}", context=4000)
    with serving(session) as address, opened(address) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
        say(page, HOSTILE)
        answer = wait_for_answer(page)
        page.get_by_role("button", name="Thought for").click()
        assert answer.locator("td").count() >= 2
        assert page.evaluate("window.taken") is None
        found = "script, img, iframe, object, embed, base, meta, svg:not(.icon)"
        assert page.locator(f"#app :is({found})").count() == 0
        links = page.locator("#app a[target]").evaluate_all("all => all.map(a => [a.href, a.rel])")
        assert {url for url, _ in links} == {
            "https://good.example/a",
            "https://spy.example/?q=secret",  # a picture is a link: nothing is fetched by itself
        }
        assert {rel for _, rel in links} == {"noopener noreferrer nofollow"}
        handlers = "all => all.flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
        assert page.locator("#app *").evaluate_all(handlers) == []


def test_markup_from_text_is_forbidden_by_the_browser(opened: Opener) -> None:
    with serving(ScriptedSession(PLAIN)) as address, opened(address, ("TrustedHTML",)) as page:
        tried = "() => { try { document.body.innerHTML = '<b>x</b>' } catch (e) { return e.name } }"
        assert page.evaluate(tried) == "TypeError"
        page.wait_for_function("() => window.faults.length == 1")
        page.evaluate("window.faults = []")  # it was ours


MARKDOWN = {
    "a\nb": "<p>a<br>b</p>",
    "## Head ##": "<h3>Head</h3>",
    "*a* **b** ***c*** ~~d~~ `e`": (
        "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> <del>d</del> "
        '<code translate="no">e</code></p>'
    ),
    "snake_case_name 2 * 3 * 4": "<p>snake_case_name 2 * 3 * 4</p>",
    "**重点：**后面": "<p><strong>重点：</strong>后面</p>",
    "- a\n  - b\n- c": "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "> a\n> - b": "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "\\*a\\* &lt;b&gt; &#65;": "<p>*a* &lt;b&gt; A</p>",
    "<b>a</b>": "<p>&lt;b&gt;a&lt;/b&gt;</p>",
    "**open": "<p>**open</p>",
    "[a](x y": "<p>[a](x y</p>",
    "$5 and $6, \\(x_1\\)": '<p>$5 and $6, <span class="math">x_1</span></p>',
    "In 2020\n2. not a list": "<p>In 2020<br>2. not a list</p>",
}


def test_markdown(opened: Opener) -> None:
    render = """async text => {
        const { parse } = await import("/static/markdown.js");
        const { elementOf } = await import("/static/render.js");
        return parse(text).map(block => elementOf(block).outerHTML).join("");
    }"""
    with serving(ScriptedSession(PLAIN)) as address, opened(address) as page:
        assert {text: page.evaluate(render, text) for text in MARKDOWN} == MARKDOWN


SLOW = {
    "stars": "*a " * 30000 + "a* " * 30000,
    "brackets": "[" * 50000 + "](a)" * 10000,
    "quotes": "> " * 20000 + "a",
    "items": "- " * 20000,
    "ticks": "`a``b" * 20000,
    "links": '[a](b "' * 20000,
    "table": ("|a" * 2000 + "\n" + "|-" * 2000 + "\n") + ("|x" * 200 + "\n") * 2000,
    "fences": "```\n" * 20000,
}


def test_texts_made_to_be_slow(opened: Opener) -> None:
    """Were any of these more than linear, the test would not come to an end."""
    show = """async text => {
        const { Prose } = await import("/static/render.js");
        const prose = new Prose();
        prose.show(text);
        return prose.element.querySelectorAll("*").length;
    }"""
    with serving(ScriptedSession(PLAIN)) as address, opened(address) as page:
        counts = {name: page.evaluate(show, text) for name, text in SLOW.items()}
    assert all(0 < n < 150_000 for n in counts.values()), counts


def test_code_is_copied_as_it_was_written(opened: Opener) -> None:
    code = "if x < 3:\n    print('<b>')  # done"
    session = ScriptedSession(PLAIN, f"So:\n\n```python\n{code}\n```\n{END}")
    with serving(session) as address, opened(address) as page:
        say(page, "Code.")
        wait_for_answer(page).get_by_role("button", name="Copy code").click()
        page.locator(".code-copy.done").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == code
        assert page.locator(".hl-keyword").first.inner_text() == "if"


# Files


def test_files_are_read_and_sent_with_their_pages(opened: Opener, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(make_pdf("The first page.", "The second page."))
    (tmp_path / "notes.md").write_text("# Notes", encoding="utf-8")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    session = ScriptedSession(PLAIN, f"Read.{END}", context=2000)
    with serving(session) as address, opened(address, allowed=("status of 400",)) as page:
        paths = [tmp_path / name for name in ("a.pdf", "notes.md", "a.png")]
        page.set_input_files(".composer input[type=file]", paths)
        page.get_by_text("2 pages").wait_for()
        page.get_by_text("7 characters").wait_for()
        page.get_by_text("This is a picture").wait_for()
        say(page, "Summarize.")
        wait_for_answer(page)
        page.locator(".question").get_by_role("button", name="a.pdf").click()
        assert "[page 2]" in page.get_by_role("dialog", name="a.pdf").inner_text()
    content = session.asked[0].messages[0].content
    assert content.startswith('<document name="a.pdf">\n[page 1]\nThe first page.')
    assert '<document name="notes.md">\n# Notes\n</document>' in content
    assert content.endswith("Summarize.")
    assert "png" not in content


def test_dropped_files_are_taken(opened: Opener) -> None:
    drop = """() => {
        const data = new DataTransfer();
        data.items.add(new File(["dropped words"], "d.txt"));
        document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
    }"""
    with serving(ScriptedSession(PLAIN)) as address, opened(address) as page:
        page.evaluate(drop)
        page.get_by_text("13 characters").wait_for()
        page.get_by_role("button", name="Remove d.txt").click()
        page.wait_for_function("() => !document.querySelector('.composer .chip')")


# Around the chat


def test_settings_reach_the_model(opened: Opener) -> None:
    session = ScriptedSession(THINKER, f"</think>Yes.{END}")
    values = {"temperature": "0.25", "topP": "0.5", "maxTokens": "40", "seed": "7", "budget": "9"}
    with serving(session) as address, opened(address) as page:
        page.get_by_role("button", name="Settings").click()
        page.fill("[data-setting=system]", "Be brief.")
        for name, value in values.items():
            page.fill(f"[data-setting={name}]", value)
        page.select_option("[data-setting=thinking]", "on")
        page.keyboard.press("Escape")
        page.reload()
        say(page, "Well?")
        wait_for_answer(page)
    asked = session.asked[0]
    params = asked.params
    assert [m.content for m in asked.messages] == ["Be brief.", "Well?"]
    assert (params.temperature, params.top_p, params.max_tokens, params.seed) == (0.25, 0.5, 40, 7)
    assert (asked.thinking, asked.thinking_budget) == (True, 9)


def test_inspector_shows_what_was_sent(opened: Opener) -> None:
    session = ScriptedSession(PLAIN, f"It's.{END}", f"So.{END}")
    sent: list[dict[str, Any]] = []
    with serving(session) as address, opened(address) as page:
        page.on("request", lambda r: "/chat/" in r.url and sent.append(json.loads(r.post_data)))
        say(page, "What's 'this'?")
        wait_for_answer(page)
        say(page, "And $that?")
        wait_for_answer(page, 2)
        page.locator(".answer").last.get_by_role("button", name="Inspect the request").click()
        panel = page.get_by_role("complementary", name="Request")
        facts = panel.inner_text()
        for part in ("from the cache 3", "computed", "Speed of the answer", "req_"):
            assert part in facts
        panel.get_by_role("button", name="Copy JSON").click()
        page.get_by_text("Copied").wait_for(state="attached")
        assert json.loads(page.evaluate("navigator.clipboard.readText()")) == sent[1]
        panel.get_by_role("button", name="Copy as curl").click()
        page.wait_for_function(
            "() => navigator.clipboard.readText().then(t => t.startsWith('curl'))"
        )
        words = shlex.split(page.evaluate("navigator.clipboard.readText()"))
        assert words[2] == f"{address}/v1/chat/completions"
        assert json.loads(words[words.index("-d") + 1]) == sent[1]
        page.locator(".answer").first.hover()
        page.locator(".answer").first.get_by_role("button", name="Inspect the request").click()
        panel.get_by_role("button", name="Copy JSON").click()
        script = "n => navigator.clipboard.readText().then(t => t.length == n)"
        page.wait_for_function(script, arg=len(json.dumps(sent[0], indent=2)))


def test_memory_picture(opened: Opener) -> None:
    with serving(ScriptedSession(PLAIN)) as address, opened(address) as page:
        page.get_by_role("button", name="Memory").click()
        panel = page.get_by_role("complementary", name="Memory")
        panel.get_by_text("Trunk").wait_for()
        assert "1,000 B" in panel.inner_text() or "0.98 KiB" in panel.inner_text()
        page.keyboard.press("Escape")
        assert panel.count() == 0


def test_key_is_asked_for_and_kept(opened: Opener) -> None:
    session = ScriptedSession(PLAIN, f"Welcome.{END}", f"Again.{END}")
    rules = Rules(keys=("secret",))
    with serving(session, rules) as address, opened(address, allowed=("status of 401",)) as page:
        field = page.get_by_label("API key")
        page.keyboard.press("Escape")  # without a key nothing happens, until something is asked
        page.wait_for_function("() => !document.querySelector('dialog')")
        say(page, "Hello?")
        field.fill("wrong")
        field.press("Enter")
        page.get_by_text("This key is not accepted.").wait_for()
        field.fill("secret")
        page.get_by_label("Remember it in this browser").check()
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("Welcome.").wait_for()
        wait_for_answer(page)
        page.reload()
        page.locator(".dot.ready").wait_for()
        say(page, "Hello again.")
        page.get_by_text("Again.", exact=True).wait_for()
        assert page.get_by_label("API key").count() == 0


def test_model_that_is_still_loading(opened: Opener) -> None:
    session, may_load = ScriptedSession(PLAIN, f"Here.{END}"), threading.Event()

    def load(report: Callable[[str, int, int], None]) -> ScriptedSession:
        report("loading", 3 << 30, 12 << 30)
        assert may_load.wait(60)
        return session

    with (
        serving(load, waits=False) as address,
        opened(address, allowed=("status of 503",)) as page,
    ):
        page.locator(".dot.busy").wait_for()
        page.locator(".model-button").click()
        page.get_by_text("loading: 3 GiB of 12 GiB (25 %)").wait_for()
        page.keyboard.press("Escape")
        say(page, "Are you there?")
        page.get_by_text("Waiting for the model to load").wait_for()
        may_load.set()
        page.get_by_text("Here.").wait_for()
        page.locator(".dot.ready").wait_for()


def test_models_are_switched(opened: Opener) -> None:
    sessions = {name: ScriptedSession(PLAIN, f"I am {name}.{END}") for name in ("one", "two")}

    def resident(name: str) -> Resident:
        return Resident(lambda report, plan: sessions[name], name)

    fleet = Fleet([resident("one"), resident("two")])
    with serving(fleet) as address, opened(address) as page:
        menu = page.locator(".model-menu")
        menu.get_by_label("Model: one, loaded").click()
        row = menu.locator(".model-row", has_text="two")
        row.get_by_text("not loaded").wait_for()
        row.get_by_role("button", name="Load", exact=True).click()
        menu.get_by_label("Model: two, loaded").wait_for()
        row = menu.locator(".model-row", has_text="one")
        row.get_by_role("button", name="Unload").click()
        row.get_by_text("not loaded").wait_for()
        page.keyboard.press("Escape")
        say(page, "Who are you?")
        page.get_by_text("I am two.").wait_for()
        wait_for_answer(page)
    assert [len(session.asked) for session in sessions.values()] == [0, 1]


def test_failed_answers_are_no_turns(opened: Opener) -> None:
    session = ScriptedSession(PLAIN, f"Yes.{END}")
    with serving(session) as address, opened(address, allowed=("ERR_FAILED",)) as page:
        page.route("**/v1/chat/completions", lambda route: route.abort(), times=1)
        say(page, "First?")
        page.get_by_role("alert").wait_for()
        wait_for_answer(page)
        say(page, "Second?")
        page.get_by_text("Yes.").wait_for()
        wait_for_answer(page, 2)
    assert [m.content for m in session.asked[0].messages] == ["First?\n\nSecond?"]


def test_server_that_is_gone(opened: Opener) -> None:
    session = ScriptedSession(PLAIN)
    with serving(session) as address, opened(address, allowed=("ERR_FAILED",)) as page:
        page.route("**/v1/chat/completions", lambda route: route.abort())
        say(page, "Hello?")
        page.get_by_role("alert").get_by_text("The server cannot be reached").wait_for()
        page.get_by_role("button", name="Try again").wait_for()


def test_languages(opened: Opener) -> None:
    with serving(ScriptedSession(PLAIN)) as address:
        with opened(address, locale="zh-CN") as page:
            page.get_by_role("heading", name="想聊点什么？").wait_for()
            assert page.evaluate("document.documentElement.lang") == "zh-CN"
        with opened(address) as page:
            page.fill("#message", "half a question")
            page.get_by_role("button", name="Language: 中文").click()
            page.get_by_role("heading", name="想聊点什么？").wait_for()
            assert page.locator("#message").input_value() == "half a question"
            page.reload()
            page.get_by_role("button", name="语言: English").click()
            page.get_by_role("heading", name="What is on your mind?").wait_for()


def test_language_changes_while_the_model_writes(opened: Opener) -> None:
    session = ScriptedSession(PLAIN, f"One two three four five.{END}")
    session.hold()
    with serving(session) as address, opened(address) as page:
        say(page, "Count.")
        session.gate.release(3)
        page.locator(".answer .prose p").wait_for()
        page.get_by_role("button", name="Language: 中文").click()
        session.gate.release(100)
        assert "five." in wait_for_answer(page).inner_text()
        page.get_by_role("button", name="重新回答").wait_for()


def test_keyboard_alone_is_enough(opened: Opener) -> None:
    session = ScriptedSession(PLAIN, f"One.{END}", f"Two.{END}")
    with serving(session) as address, opened(address) as page:
        page.mouse.move(0, 0)
        page.keyboard.type("line one")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("line two")
        page.keyboard.press("Enter")
        wait_for_answer(page)
        focused = "document.activeElement.dataset.act || document.activeElement.id"
        seen = []
        while "again" not in seen and len(seen) < 60:
            page.keyboard.press("Tab")
            seen.append(page.evaluate(focused))
        while "again" not in seen and len(seen) < 120:
            page.keyboard.press("Shift+Tab")
            seen.append(page.evaluate(focused))
        assert seen[-1] == "again"
        page.keyboard.press("Enter")
        page.get_by_text("Two.").wait_for()
        wait_for_answer(page)
        page.keyboard.press("Control+b")
        assert not page.locator(".sidebar").is_visible()
        page.keyboard.press("Control+k")
        assert page.evaluate("document.activeElement.id") == "message"
    assert session.asked[0].messages[0].content == "line one\nline two"


def test_everything_has_a_name(opened: Opener) -> None:
    nameless = """() => [...document.querySelectorAll("button, input, textarea, select, summary")]
        .filter(e => e.checkVisibility())
        .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
        .map(e => e.outerHTML)"""
    with serving(ScriptedSession(PLAIN, f"```\nx\n```{END}")) as address, opened(address) as page:
        say(page, "Hello.")
        wait_for_answer(page)
        page.locator(".icon-button[data-panel=inspector]").click()
        assert page.evaluate(nameless) == []
        page.get_by_role("button", name="Settings").click()
        assert page.evaluate(nameless) == []


CONTRAST = """selectors => {
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map(v => v / 255)
            .map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const ground = e => {
        const found = parts(getComputedStyle(e).backgroundColor);
        return found.length === 4 && found[3] === 0 ? ground(e.parentElement) : found;
    };
    return selectors.flatMap(s => [...document.querySelectorAll(s)])
        .filter(e => e.checkVisibility() && e.textContent.trim())
        .map(e => [e.className, light(parts(getComputedStyle(e).color)), light(ground(e))])
        .map(([name, a, b]) => [name, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)])
        .filter(([, ratio]) => ratio < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read(opened: Opener, scheme: str) -> None:
    """Contrast of at least 4.5, as WCAG 2 asks of text."""
    code = "```python\nif 1: 'a'  # b\n```"
    session = ScriptedSession(THINKER, f"Hm.</think>\n\n[a](https://b.example) `c`\n\n{code}{END}")
    with serving(session) as address, opened(address, color_scheme=scheme) as page:
        selectors = ["button", "p", "span", ".soft", "a", "code", "h1", "h2", "kbd", "textarea"]
        assert page.evaluate(CONTRAST, selectors) == []
        say(page, "Hello.")
        wait_for_answer(page)
        page.get_by_role("button", name="Thought for").click()
        page.locator(".icon-button[data-panel=memory]").click()
        page.get_by_text("Trunk").wait_for()
        assert page.evaluate(CONTRAST, selectors) == []


def test_dark_and_light(opened: Opener) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    is_light = f"() => {ground} === 'rgb(251, 250, 247)'"
    with (
        serving(ScriptedSession(PLAIN)) as address,
        opened(address, color_scheme="dark") as page,
    ):
        assert not page.evaluate(is_light)
        page.get_by_role("button", name="Light or dark").click()
        page.wait_for_function(is_light)
        page.reload()
        page.wait_for_function(is_light)
        page.get_by_role("button", name="Light or dark").click()
        page.wait_for_function(f"() => !({is_light})()")


def test_narrow_screens(opened: Opener) -> None:
    wide = f"{'long' * 60}\n\n| {' | '.join('abcdefghij')} |\n|{'---|' * 10}\n| {'x | ' * 10}\n"
    session = ScriptedSession(PLAIN, f"{wide}```\n{'y' * 300}\n```{END}", context=4000)
    size = {"width": 360, "height": 640}
    with serving(session) as address, opened(address, viewport=size, has_touch=True) as page:
        assert not page.locator(".sidebar").is_visible()
        say(page, "W" * 200)
        wait_for_answer(page)
        over = "document.scrollingElement.scrollWidth - innerWidth"
        inner = "(e => e.scrollWidth - e.clientWidth)(document.querySelector('.scroller'))"
        assert (page.evaluate(over), page.evaluate(inner)) == (0, 0)
        page.get_by_role("button", name="Show conversations").click()
        page.locator("#sidebar").get_by_role("button", name="New chat").click()
        page.get_by_role("heading", name="What is on your mind?").wait_for()
        assert not page.locator(".sidebar").is_visible()
