"""The page of the API: everything on it is from this server, and requests can be tried."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from octavo.server.guard import Rules
from serving import END, PLAIN, ScriptedSession, serving

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def test_docs_lead_to_the_page_and_nothing_comes_from_elsewhere() -> None:
    with serving(ScriptedSession(PLAIN)) as address, httpx.Client(base_url=address) as client:
        for path in ("/docs", "/redoc"):
            page = client.get(path, follow_redirects=True)
            assert page.status_code == 200
            assert page.url.path == "/static/docs.html"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        names = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert names
        for name in names:
            assert name.startswith("/static/")
            file = client.get(name)
            assert file.status_code == 200
            assert not re.search(
                r"(?:https?:)?//[a-z]+\.[a-z]", file.text.replace("www.w3.org", "")
            )


def test_the_schema_names_every_route_of_the_documentation() -> None:
    with serving(ScriptedSession(PLAIN)) as address:
        paths = httpx.get(f"{address}/openapi.json").json()["paths"]
    wanted = {
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"),
        *("/v1/responses/{id}", "/v1/models", "/v1/messages", "/v1/messages/count_tokens"),
        *("/completion", "/infill", "/tokenize", "/props", "/slots", "/health", "/metrics"),
    }
    assert wanted <= paths.keys()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not here")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        if found is None:
            pytest.skip("there is no Chromium on this machine")
        started = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


def test_requests_can_be_tried_in_a_browser(browser: Any) -> None:
    session = ScriptedSession(PLAIN, f"Hello you.{END}")
    with serving(session, Rules(keys=("secret",))) as address:
        page = browser.new_page()
        page.set_default_timeout(30_000)
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda r: r.url.startswith(address) or faults.append(r.url))
        page.add_init_script(
            "addEventListener('securitypolicyviolation',"
            " e => (window.broken ||= []).push(e.violatedDirective))"
        )
        page.goto(f"{address}/docs")
        page.get_by_label("API key").fill("secret")
        page.get_by_role("button", name="Open").click()
        tokenize = page.locator('details[data-path="/tokenize"]')
        tokenize.locator("summary").click()
        tokenize.locator("textarea").fill('{"content": "The river"}')
        tokenize.get_by_role("button", name="Send").click()
        tokenize.locator("pre", has_text='"tokens"').wait_for()
        ids = session.tokenizer.encode("The river")
        shown = tokenize.locator("pre").inner_text()
        assert shown.startswith("200 req_")
        assert [int(n) for n in re.findall(r"\d+", shown.partition("tokens")[2])] == ids
        chat = page.locator('details[data-path="/v1/chat/completions"]')
        chat.locator("summary").click()
        assert "list of object" in chat.locator("dl").inner_text()
        chat.get_by_role("button", name="Send").click()
        chat.locator("pre", has_text="[DONE]").wait_for()
        deltas = re.findall(r'"delta":\{"content":"([^"]*)"', chat.locator("pre").inner_text())
        assert "".join(deltas) == "Hello you."
        assert page.evaluate("window.broken || []") == []
        page.close()
    assert not faults
