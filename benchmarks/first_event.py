"""What a client hears while a long prompt is computed: `python benchmarks/first_event.py MODEL`.

One stream in the shape of each API, each with a prompt of its own: seconds to the first event, the
longest silence after it, and seconds to the first token. The last line is JSON; the exit code is 1
if the first event took more than 0.5 s, or the server was silent for longer than a client waits.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from octavo.loading import locate
from serve_process import serve_process

FIRST_SECONDS = 0.5
SILENT_SECONDS = 11.0  # pings come every 10
WORDS = ("river", "summer", "ferry", "water", "stone", "bridge", "letter", "window", "garden")
# What its first token looks like, and the field of the prompt.
APIS: dict[str, tuple[bytes, str]] = {
    "/v1/completions": (b'"text":"', "prompt"),
    "/v1/responses": (b"_text.delta", "input"),
    "/completion": (b'"content":"', "prompt"),
}


def listen(http: httpx.Client, path: str, words: int, seed: int) -> dict[str, float]:
    """One stream, until its first token."""
    token, field = APIS[path]
    text = " ".join(random.Random(seed).choices(WORDS, k=words))
    body: dict[str, Any] = {field: text, "max_tokens": 4, "ignore_eos": True, "stream": True}
    began = time.perf_counter()
    times, got = [], b""
    with http.stream("POST", path, json=body) as answer:
        answer.raise_for_status()
        for data in answer.iter_raw():
            times.append(time.perf_counter() - began)
            got += data
            if token in got.replace(b'"text":""', b""):
                break
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    return {
        "first_event_seconds": round(times[0], 3),
        "longest_silence_seconds": round(max(gaps, default=0.0), 3),
        "first_token_seconds": round(times[-1], 3),
        "pings": got.count(b": ping"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="alias or path")
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=32_768)
    parser.add_argument("--api", choices=APIS, action="append")
    args = parser.parse_args()
    path = locate(args.model)
    flags = ("-t", str(args.threads), "-c", str(args.context), "--parallel", "1")
    with (
        serve_process(path, *flags) as server,
        httpx.Client(base_url=server.address, timeout=3600) as http,
    ):
        found = {
            api: listen(http, api, args.words, seed) for seed, api in enumerate(args.api or APIS)
        }
    print(json.dumps({"test": "first_event", "model": path.name, "words": args.words, **found}))
    sys.exit(
        any(
            one["first_event_seconds"] > FIRST_SECONDS
            or one["longest_silence_seconds"] > SILENT_SECONDS
            for one in found.values()
        )
    )


if __name__ == "__main__":
    main()
