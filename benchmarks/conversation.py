"""A scripted agent conversation over HTTP: how many prompt tokens are computed in each turn.

    python benchmarks/conversation.py                      # two tiny models made here, 20K tokens
    python benchmarks/conversation.py --model FILE.gguf

The client behaves as agents do: a system prompt with tools and a header that differs each time,
answers sent back without their thinking, results of tools, and side requests in parallel. In the
middle the server is stopped and started again. A turn is good when it computes at most 256 tokens
more than it brought. The last line is JSON; the exit code is 1 if a turn was not good.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from serve_process import serve_process
from tiny_models import make_tiny

SLACK_TOKENS = 256
WORDS = (
    *("river", "summer", "ferry", "water", "stone", "bridge", "letter", "window", "garden"),
    *("engine", "paper", "market", "winter", "harbour", "candle", "railway", "orchard", "signal"),
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Work on a file: {name}.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for name in ("read_file", "write_file", "search")
]


@dataclass(frozen=True)
class Turn:
    """What one turn brought and took, in tokens."""

    number: int
    prompt: int
    new: int  # more than the prompt of the turn before
    cached: int
    computed: int

    @property
    def is_good(self) -> bool:
        return self.computed <= self.new + SLACK_TOKENS


class Client:
    """An agent with one conversation."""

    def __init__(self, system_words: int, max_tokens: int = 24) -> None:
        self._random = random.Random(7)
        self._system = self.words(system_words)
        self._messages: list[dict[str, Any]] = []
        self._max_tokens = max_tokens
        self._last_prompt = 0
        self.n_turns = 0

    def words(self, n: int) -> str:
        return " ".join(self._random.choice(WORDS) for _ in range(n))

    def turn(self, address: str) -> Turn:
        """The next turn, with side requests at the same time."""
        is_result = self.n_turns % 3 == 2
        text = self.words(120 if is_result else 30)
        role: dict[str, Any] = {"role": "tool", "tool_call_id": f"call_{self.n_turns}"}
        self._messages.append({**(role if is_result else {"role": "user"}), "content": text})
        sides = [
            threading.Thread(target=self._side_request, args=(address, self.words(40)))
            for _ in range(2)
        ]
        for side in sides:
            side.start()
        answer = self._ask(address)
        for side in sides:
            side.join()
        message = answer["choices"][0]["message"]  # the thinking stays behind
        self._messages.append({"role": "assistant", "content": message["content"] or ""})
        return self._count(answer["usage"])

    def _ask(self, address: str) -> Any:
        mark = f"{self._random.getrandbits(20):05x}"
        header = f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={mark};"
        system = {"role": "system", "content": f"{header}\n{self._system}"}
        body = {"messages": [system, *self._messages], "tools": TOOLS, "enable_thinking": True}
        return self._post(address, body | {"max_tokens": self._max_tokens})

    def _side_request(self, address: str, text: str) -> None:
        messages = [
            {"role": "system", "content": "Give a title of three words."},
            {"role": "user", "content": text},
        ]
        self._post(address, {"messages": messages, "max_tokens": 8})

    def _post(self, address: str, body: dict[str, Any]) -> Any:
        url = f"{address}/v1/chat/completions"
        answer = httpx.post(url, json=body | {"temperature": 0, "seed": 1}, timeout=3600)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def _count(self, usage: Any) -> Turn:
        prompt = usage["prompt_tokens"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        turn = Turn(self.n_turns, prompt, prompt - self._last_prompt, cached, prompt - cached)
        self._last_prompt, self.n_turns = prompt, self.n_turns + 1
        return turn


def run(client: Client, n_turns: int, address: str) -> list[Turn]:
    """Some turns at a server."""
    return [client.turn(address) for _ in range(n_turns)]


def measure(model: Path, n_turns: int, system_words: int, context: int) -> list[Turn]:
    """The conversation at a server that is started again in the middle."""
    client, turns = Client(system_words), list[Turn]()
    with tempfile.TemporaryDirectory() as folder:
        flags = ("-np", "2", "-c", str(context), "--cache-dir", folder)
        for n in (n_turns // 2, n_turns - n_turns // 2):
            with serve_process(model, *flags) as server:
                turns += run(client, n, server.address)
                show = [line for line in server.lines if '"reuse"' in line]
                sys.stderr.writelines(show)
    return turns


def models(given: str | None, folder: Path, context: int) -> Iterator[tuple[str, Path]]:
    """Those to measure: (name, file)."""
    if given:
        yield Path(given).stem, Path(given)
        return
    for arch in ("llama", "qwen35"):
        changes = {"context_length": context}
        yield f"tiny {arch}", make_tiny(arch, folder / f"{arch}.gguf", changes=changes)


def table(turns: list[Turn], show: Callable[[str], None]) -> None:
    show(f"{'turn':>4} {'prompt':>7} {'new':>6} {'cached':>7} {'computed':>8}")
    for t in turns:
        mark = "" if t.is_good else "  too many"
        show(f"{t.number:>4} {t.prompt:>7} {t.new:>6} {t.cached:>7} {t.computed:>8}{mark}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a GGUF file with a chat template")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--system-words", type=int, default=4500)
    parser.add_argument("--context", type=int, default=40960)
    asked = parser.parse_args()
    found: dict[str, list[Turn]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in models(asked.model, Path(folder), asked.context):
            print(name)
            found[name] = measure(path, asked.turns, asked.system_words, asked.context)
            table(found[name], print)
    print(json.dumps({name: [asdict(t) for t in turns] for name, turns in found.items()}))
    return int(not all(turn.is_good for turns in found.values() for turn in turns))


if __name__ == "__main__":
    sys.exit(main())
