"""Counters for Prometheus, in its text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psutil
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse

from octavo.server.asking import fleet_of
from octavo.server.conversations import CAUSES
from octavo.server.fleet import Fleet
from octavo.server.resident import STATES, Resident
from octavo.server.spilling import VideoUse

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
_CACHE = (
    ("cache_hits_total", "counter", "hits", "Prompts of which something was found in the cache"),
    ("cache_misses_total", "counter", "misses", "Prompts of which nothing was found"),
    ("cache_evicted_total", "counter", "evicted", "Kept prefixes given up for lack of room"),
    ("cache_saved_total", "counter", "saved", "Prefixes saved to disk"),
    ("cache_restored_total", "counter", "restored", "Prefixes read from disk"),
    ("cache_prefixes", "gauge", "prefixes", "Kept prefixes"),
    ("cache_snapshots", "gauge", "snapshots", "Recurrent states kept to go back to"),
    ("cache_kept_bytes", "gauge", "bytes", "Memory of what is kept"),
    ("cache_limit_bytes", "gauge", "limit_bytes", "Most that it may be"),
)
# Of the card; keys are those of `VideoUse`.
_VIDEO = {
    "total_bytes": "Memory of the card",
    "free_bytes": "Of it, free",
    "own_bytes": "Of it, held by this program without CUDA's context",
    "spill_bytes": "Video memory of this program that lies in main memory, at least",
}
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


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> PlainTextResponse:
    """All figures of the server and of each loaded model."""
    lines = [*_lines(fleet_of(request)), *_video_lines(request.app.state.watch.latest)]
    text = "\n".join(lines) + "\n"
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _lines(fleet: Fleet) -> Iterator[str]:
    tally = fleet.tally
    requests = {
        f'path="{path}",status="{status}"': n for (path, status), n in tally.requests.items()
    }
    yield from _metric("octavo_requests_total", "counter", "Requests by path and status", requests)
    plain = (
        ("model_ready", "gauge", "1 when the first model is loaded", fleet.first.state == "ready"),
        ("requests_admitted", "gauge", "Answers that run or wait", sum(r.n_running for r in fleet)),
        ("requests_refused_total", "counter", "Refused: queue full", tally.refused_busy),
        ("reasoning_only_total", "counter", "Answers that are only thinking", tally.reasoning_only),
        ("models_evicted_total", "counter", "Models given up for others", fleet.n_evicted),
        ("models_bytes", "gauge", "Memory of all loaded models, as planned", fleet.held_bytes),
        ("models_bytes_limit", "gauge", "Most that they may take; 0: unknown", fleet.max_bytes),
        ("process_resident_bytes", "gauge", "Memory of this process now", _process_bytes()),
    )
    for name, kind, meaning, value in plain:
        yield from _metric(f"octavo_{name}", kind, meaning, {"": int(value or 0)})
    broken = {f'cause="{cause}"': tally.reuse_broken.get(cause, 0) for cause in CAUSES}
    meaning = "Chats whose earlier prompt was not found again"
    yield from _metric("octavo_reuse_broken_total", "counter", meaning, broken)
    states = {
        _labels(model=r.name, state=state): int(r.state == state) for r in fleet for state in STATES
    }
    yield from _metric("octavo_model_state", "gauge", "1 for the state of a model", states)
    yield from _model_lines([resident for resident in fleet if resident.state == "ready"])


def _video_lines(use: VideoUse | None) -> Iterator[str]:
    """Of the card; without values where no model is on one."""
    for name, meaning in _VIDEO.items():
        values = {} if use is None else {"": getattr(use, name)}
        yield from _metric(f"octavo_vram_{name}", "gauge", meaning, values)


def _model_lines(loaded: Sequence[Resident]) -> Iterator[str]:
    """Figures of engines, one line a model."""
    sessions = {_labels(model=resident.name): resident.session for resident in loaded}
    figures = {labels: session.engine.stats.snapshot() for labels, session in sessions.items()}
    for prefix, table in (("octavo_", _ENGINE), ("llamacpp:", _LLAMA)):
        for name, kind, key, meaning in table:
            values = {labels: found[key] for labels, found in figures.items()}
            yield from _metric(prefix + name, kind, meaning, values)
    for name, kind, key, meaning in _CACHE:
        values = {labels: found["cache"].get(key, 0) for labels, found in figures.items()}
        yield from _metric(f"octavo_{name}", kind, meaning, values)
    waiting = {_labels(model=resident.name): resident.n_running for resident in loaded}
    yield from _metric("octavo_queue_answers", "gauge", "Answers that run or wait", waiting)
    ended = {
        f'{labels},reason="{reason}"': n
        for labels, found in figures.items()
        for reason, n in found["requests"].items()
    }
    yield from _metric("octavo_answers_total", "counter", "Ended, by finish reason", ended)
    sizes = {
        f'{labels},part="{part}"': n_bytes
        for labels, session in sessions.items()
        for part, n_bytes in (
            ("weights", session.plan.file_bytes),
            ("cache", session.plan.cache_bytes),
            ("states", session.plan.state_bytes),
            ("scratch", session.plan.scratch_bytes),
        )
    }
    yield from _metric("octavo_planned_bytes", "gauge", "Memory by part", sizes)


def _labels(**values: str) -> str:
    """Labels in Prometheus' form; names of models may hold anything."""
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for key, value in values.items()
    }
    return ",".join(f'{key}="{value}"' for key, value in escaped.items())


def _process_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _metric(name: str, kind: str, meaning: str, values: Mapping[str, Any]) -> Iterator[str]:
    """One metric: what it is, and a line for each set of labels."""
    yield f"# HELP {name} {meaning}."
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"
