"""Counters for Prometheus, in its text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse

from octavo.server.asking import resident_of
from octavo.server.resident import Resident

router = APIRouter(tags=["Operation"])

# (name, counter or gauge, key of the engine's figures, meaning)
_ENGINE = (
    ("prompt_tokens_total", "counter", "prompt_tokens", "Prompt tokens computed"),
    ("cached_tokens_total", "counter", "cached_tokens", "Prompt tokens found in the cache"),
    ("generated_tokens_total", "counter", "generated_tokens", "Tokens generated"),
    ("prompt_seconds_total", "counter", "prefill_seconds", "Time spent on prompts"),
    ("generation_seconds_total", "counter", "decode_seconds", "Time spent on generating"),
    ("drafted_tokens_total", "counter", "drafted_tokens", "Tokens guessed ahead"),
    ("accepted_tokens_total", "counter", "accepted_tokens", "Guesses that were right"),
    ("preemptions_total", "counter", "preemptions", "Requests that gave up their memory"),
    ("requests_running", "gauge", "running", "Requests that compute"),
    ("requests_waiting", "gauge", "waiting", "Requests that wait in the engine"),
    (
        "prompt_tokens_per_second",
        "gauge",
        "prompt_tokens_per_second",
        "Average speed of prompts",
    ),
    (
        "generated_tokens_per_second",
        "gauge",
        "generated_tokens_per_second",
        "Average speed of generating, all requests together",
    ),
)
# The names under which llama.cpp's dashboards look for the same figures.
_LLAMA = (
    ("prompt_tokens_total", "counter", "prompt_tokens", "Prompt tokens computed"),
    ("prompt_seconds_total", "counter", "prefill_seconds", "Time spent on prompts"),
    ("tokens_predicted_total", "counter", "generated_tokens", "Tokens generated"),
    ("tokens_predicted_seconds_total", "counter", "decode_seconds", "Time spent on generating"),
    ("n_decode_total", "counter", "decode_steps", "Steps of generation"),
    ("prompt_tokens_seconds", "gauge", "prompt_tokens_per_second", "Speed of prompts"),
    ("predicted_tokens_seconds", "gauge", "generated_tokens_per_second", "Speed of generating"),
    ("requests_processing", "gauge", "running", "Requests that compute"),
    ("requests_deferred", "gauge", "waiting", "Requests that wait"),
)


@router.get("/metrics")
async def metrics(request: Request) -> PlainTextResponse:
    """All figures. While the model is being loaded, those of the server alone."""
    text = "\n".join(_lines(resident_of(request))) + "\n"
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _lines(resident: Resident) -> Iterator[str]:
    tally = resident.tally
    requests = {
        f'path="{path}",status="{status}"': n for (path, status), n in tally.requests.items()
    }
    yield from _metric("octavo_requests_total", "counter", "Requests by path and status", requests)
    plain = (
        ("model_ready", "gauge", "1 when the model is loaded", resident.state == "ready"),
        ("requests_admitted", "gauge", "Answers that run or wait", resident.n_running),
        ("requests_refused_total", "counter", "Refused: queue full", tally.refused_busy),
        ("reasoning_only_total", "counter", "Answers that are only thinking", tally.reasoning_only),
    )
    for name, kind, meaning, value in plain:
        yield from _metric(f"octavo_{name}", kind, meaning, {"": int(value)})
    if resident.state == "ready":
        yield from _engine_lines(resident)


def _engine_lines(resident: Resident) -> Iterator[str]:
    session = resident.session
    figures = session.engine.stats.snapshot()
    for prefix, table in (("octavo_", _ENGINE), ("llamacpp:", _LLAMA)):
        for name, kind, key, meaning in table:
            yield from _metric(prefix + name, kind, meaning, {"": figures[key]})
    ended = {f'reason="{reason}"': n for reason, n in figures["requests"].items()}
    yield from _metric("octavo_answers_total", "counter", "Ended, by finish reason", ended)
    plan = session.plan
    sizes = {
        'part="weights"': plan.file_bytes,
        'part="cache"': plan.cache_bytes,
        'part="states"': plan.state_bytes,
        'part="scratch"': plan.scratch_bytes,
    }
    yield from _metric("octavo_planned_bytes", "gauge", "Memory by part", sizes)


def _metric(name: str, kind: str, meaning: str, values: Mapping[str, Any]) -> Iterator[str]:
    """One metric: what it is, and a line for each set of labels."""
    yield f"# HELP {name} {meaning}."
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"
