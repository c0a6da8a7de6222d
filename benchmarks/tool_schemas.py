"""How many calls of a model without any sense are valid: `python benchmarks/tool_schemas.py`.

A tiny model of random weights is asked, at temperature 1, to call functions of random schemas; what
it says is then checked with the package jsonschema. Each dialect gets all schemas (--schemas of
them). Schemas and model are those of the tests. The last line is JSON; the exit code is 1 if a
call is missing or not valid.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from jsonschema import Draft202012Validator

import octavo
from octavo.types import ChatRequest, Message, SamplingParams, ToolChoice
from random_schemas import random_tools
from tiny_models import make_tiny
from tool_texts import TEMPLATES

AT_ONCE = 16
MOST_TOKENS = 1500  # all schemas limit texts and lists, so a call ends long before
# Shows the names of the tools, and is of the dialect that stands in the comment.
TEMPLATE = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}{# DIALECT #}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--dialects", default=",".join(TEMPLATES))
    given = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for dialect in given.dialects.split(","):
            results.append(_measure(dialect, given.schemas, Path(folder)))
            print(results[-1], flush=True)
    print(json.dumps({"results": results}))
    sys.exit(any(r["valid"] < r["calls"] or r["none"] for r in results))


def _measure(dialect: str, n_schemas: int, folder: Path) -> dict[str, Any]:
    changes = {
        "block_count": 1,
        "context_length": 2048,
        "tokenizer.chat_template": TEMPLATE.replace("DIALECT", TEMPLATES[dialect]),
    }
    path = make_tiny("qwen3", folder / f"{dialect}.gguf", changes=changes)
    n_calls = n_valid = n_none = 0
    start = time.perf_counter()
    with octavo.load(path, context=2048, sequences=AT_ONCE) as session:
        for first in range(0, n_schemas, AT_ONCE):
            requests = [_request(seed) for seed in range(first, min(first + AT_ONCE, n_schemas))]
            replies = [session.ask(request) for request in requests]
            for request, reply in zip(requests, replies, strict=True):
                verdicts = list(_verdicts(request, reply.whole()))
                n_calls += len(verdicts)
                n_valid += sum(verdicts)
                n_none += not verdicts
    seconds = round(time.perf_counter() - start, 1)
    counts = {"schemas": n_schemas, "none": n_none, "calls": n_calls, "valid": n_valid}
    return {"dialect": dialect, **counts, "seconds": seconds}


def _request(seed: int) -> ChatRequest:
    """One to three random functions, one of which has to be called."""
    return ChatRequest(
        (Message("user", "go"),),
        SamplingParams(MOST_TOKENS, 1.0, top_k=0, top_p=1, min_p=0, seed=seed),
        tuple(random_tools(seed, short=True)),
        ToolChoice("required", parallel=False),
    )


def _verdicts(request: ChatRequest, answer: octavo.chat.Answer) -> Iterator[bool]:
    declared = {t["function"]["name"]: t["function"]["parameters"] for t in request.tools}
    for call in answer.tool_calls:
        schema = declared.get(call.name)
        yield schema is not None and Draft202012Validator(schema).is_valid(
            json.loads(call.arguments)
        )


if __name__ == "__main__":
    main()
