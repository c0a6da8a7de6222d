"""llama.cpp's shapes, and what is read alike by all: health, properties, metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from serving import END, PLAIN, THINKER, ScriptedSession, serving


@pytest.fixture(scope="module")
def session() -> ScriptedSession:
    return ScriptedSession(THINKER)


@pytest.fixture(scope="module")
def address(session: ScriptedSession) -> Iterator[str]:
    with serving(session) as address:
        yield address


def post(address: str, path: str, **body: Any) -> Any:
    return httpx.post(address + path, json=body).raise_for_status().json()


def test_completion_whole_and_streamed_agree() -> None:
    script = f" was\nlow{END}"
    session = ScriptedSession(PLAIN, script, script)
    with serving(session) as address:
        whole = post(address, "/completion", prompt="The river", n_probs=2, n_predict=50)
        body = {"prompt": "The river", "n_probs": 2, "n_predict": 50, "stream": True}
        text = httpx.post(f"{address}/completion", json=body).text
    chunks = [json.loads(e[6:]) for e in text.split("\n\n") if e.startswith("data: ")]
    assert whole["content"] == " was\nlow"
    assert (whole["stop"], whole["stop_type"], whole["has_new_line"]) == (True, "eos", True)
    assert whole["tokens_evaluated"] == len(session.tokenizer.encode("The river"))
    assert whole["generation_settings"]["n_predict"] == 50
    assert "".join(chunk["content"] for chunk in chunks) == whole["content"]
    assert [chunk["stop"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    streamed = [entry for chunk in chunks for entry in chunk["completion_probabilities"]]
    assert streamed == whole["completion_probabilities"]
    assert session.tokenizer.decode(entry["id"] for entry in streamed) == whole["content"]
    assert len(streamed[0]["top_logprobs"]) == 2


@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [({"n_predict": 2}, "limit", ""), ({"stop": ["l"]}, "word", "l"), ({}, "eos", "")],
)
def test_how_a_completion_stopped(options: Any, kind: str, word: str) -> None:
    with serving(ScriptedSession(PLAIN, f" was low{END}")) as address:
        answer = post(address, "/completion", prompt=[5, "river"], **options)
    assert (answer["stop_type"], answer["stopping_word"]) == (kind, word)


def test_a_prompt_of_texts_and_ids() -> None:
    session = ScriptedSession(PLAIN, END)
    first = session.tokenizer.encode("The")
    with serving(session) as address:
        post(address, "/completion", prompt=[*first, " river"])
    assert session.requests[0][0] == "The river"


def test_tokenize_and_back(address: str, session: ScriptedSession) -> None:
    text = "The ferry 😸 <|im_end|>"
    ids = post(address, "/tokenize", content=text)["tokens"]
    assert ids == session.tokenizer.encode(text, parse_special=True)
    assert post(address, "/detokenize", tokens=ids)["content"] == text
    plain = post(address, "/tokenize", content=text, parse_special=False)["tokens"]
    assert len(plain) > len(ids)
    pieces = post(address, "/tokenize", content=text, with_pieces=True)["tokens"]
    data = b"".join(
        p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces
    )
    assert data.decode() == text


def test_wrong_ids_are_the_callers_fault(address: str) -> None:
    answer = httpx.post(f"{address}/detokenize", json={"tokens": [10**6]})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == 400


def test_apply_template(address: str, session: ScriptedSession) -> None:
    messages = [{"role": "user", "content": "q"}]
    thinks = post(address, "/apply-template", messages=messages)["prompt"]
    answers = post(address, "/apply-template", messages=messages, enable_thinking=False)["prompt"]
    assert thinks.startswith("<|im_start|>user\nq<|im_end|>")
    assert answers == thinks + "\n</think>\n\n"


def test_props(address: str, session: ScriptedSession) -> None:
    props = httpx.get(f"{address}/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 256
    assert props["total_slots"] == 2
    assert props["chat_template"] == THINKER
    assert props["chat_template_caps"]["supports_thinking_switch"] is True
    assert props["eos_token"] == "<|im_end|>"
    assert props["is_sleeping"] is False


def test_slots_and_health(address: str, session: ScriptedSession) -> None:
    session.stats.running = 1
    busy = [slot["is_processing"] for slot in httpx.get(f"{address}/slots").json()]
    health = httpx.get(f"{address}/health")
    session.stats.running = 2
    full = httpx.get(f"{address}/slots?fail_on_no_slot=1")
    session.stats.running = 0
    assert busy == [True, False]
    assert (health.status_code, health.json()["status"]) == (200, "ok")
    assert health.json()["slots_idle"] == 1
    assert full.status_code == 503


def test_metrics_are_prometheus(address: str, session: ScriptedSession) -> None:
    session.stats.generated_tokens = 7
    session.stats.requests["stop"] = 3
    for path in ("/invented/1", "/invented/2", "/v1/models/a", "/v1/models/b"):
        httpx.get(address + path)
    answer = httpx.get(f"{address}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = {}
    kinds = {}
    for line in answer.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kinds[name] = line.split()
        elif not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            assert series not in values
            assert series.partition("{")[0] in kinds
            values[series] = float(value)
    assert values['octavo_generated_tokens_total{model="scripted"}'] == 7
    assert values['llamacpp:tokens_predicted_total{model="scripted"}'] == 7
    assert values['octavo_answers_total{model="scripted",reason="stop"}'] == 3
    assert values['octavo_requests_total{path="other",status="404"}'] == 2
    assert values['octavo_requests_total{path="/v1/models/{name:path}",status="404"}'] == 2
