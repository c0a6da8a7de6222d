"""A server on a port of its own, with a model whose answers are written down."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from octavo.chat import Chat, Reply
from octavo.engine.places import PlaceView
from octavo.engine.stats import Stats
from octavo.errors import ContextFullError, OctavoError
from octavo.plan.plan import Plan
from octavo.server.app import make_app
from octavo.server.fleet import Fleet
from octavo.server.guard import Rules
from octavo.server.resident import Resident, Served
from octavo.session import Moved
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import (
    ChatRequest,
    FinishReason,
    PromptProgress,
    SamplingParams,
    Token,
    TopLogprob,
    Usage,
)
from tiny_models import as_metadata
from tiny_vocabulary import byte_level

# Thinks unless told otherwise, as the templates of the Qwen family do.
THINKER = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
<think>
{% if enable_thinking is defined and enable_thinking is false %}

</think>

{% endif %}"""
PLAIN = THINKER.partition("<think>")[0]
END = "<|im_end|>"


def make_plan(**values: Any) -> Plan:
    """A plan in which only what matters here is true."""
    plain: dict[str, Any] = {
        "model": "scripted.gguf",
        "context": 256,
        "sequences": 2,
        "weight_bytes": {"trunk": 1000},
        "weights": "read",
        "slow_formats": (),
    }
    zero = {"int": 0, "str": ""}
    needed = [f for f in fields(Plan) if f.default is MISSING and f.default_factory is MISSING]
    empty = {field.name: zero.get(str(field.type), "") for field in needed}
    return Plan(**(empty | plain | values))


class Gate:
    """Permits for tokens. Who listens is called when there are more."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._changed = threading.Condition()
        self._listeners: dict[object, Callable[[], None]] = {}

    def release(self, n: int = 1) -> None:
        with self._changed:
            self._n += n
            self.tell()

    def tell(self) -> None:
        """Have everyone look."""
        with self._changed:
            self._changed.notify_all()
            for listener in [*self._listeners.values()]:
                with contextlib.suppress(RuntimeError):  # its server has ended
                    listener()

    def take(self, wait: bool, is_enough: Callable[[], bool]) -> bool:
        """Use up a permit, if there is one, or wait for it until it is enough."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._n > 0 or is_enough())
            if is_enough() or self._n == 0:
                return False
            self._n -= 1
            return True

    def listen(self, who: object, wake: Callable[[], None]) -> None:
        with self._changed:
            self._listeners[who] = wake


class ScriptedStream:
    """The tokens of one script. Each takes a permit of `gate`; ends when cancelled.

    `reports`: it tells of the prompt in ten steps, too.
    """

    def __init__(self, ids: Sequence[int], finish: FinishReason, n_prompt: int, gate: Gate) -> None:
        self._ids = list(ids)
        self._finish = finish
        self._gate = gate
        self._n_prompt = n_prompt
        self.n_logprobs: int | None = None
        self.reports = False
        self.error: OctavoError | None = None
        self.cancelled = threading.Event()
        self.finish_reason: FinishReason | None = None
        self.n_read = 0
        self.prompt_tokens: list[Token] = []

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._n_prompt,
            cached_tokens=3,
            completion_tokens=self.n_read,
            prompt_seconds=0.5,
            generation_seconds=1.0,
            first_token_seconds=0.5,
        )

    def items(self, *, wait: bool = True) -> Iterator[Token | PromptProgress | None]:
        cached, total = 3, self._n_prompt
        for step in range(1, 11) if self.reports else ():
            done = cached + (total - cached) * step // 10
            yield PromptProgress(total, cached, done, step / 100)
        self.reports = False
        while self._ids and not self.cancelled.is_set():
            if self._gate.take(wait, self.cancelled.is_set):
                self.n_read += 1
                yield self._token(self._ids.pop(0))
            elif not wait and not self.cancelled.is_set():
                yield None
        if self.error is not None:
            raise self.error
        is_cancelled = self.cancelled.is_set()
        self.finish_reason = self.finish_reason or ("cancelled" if is_cancelled else self._finish)

    def listen(self, wake: Callable[[], None]) -> None:
        self._gate.listen(self, wake)
        wake()

    def cancel(self) -> None:
        self.cancelled.set()
        self._gate.tell()

    def _token(self, id: int) -> Token:
        if self.n_logprobs is None:
            return Token(id)
        tops = tuple(TopLogprob(id + i, -0.5 - i) for i in range(self.n_logprobs))
        return Token(id, -0.5, tops)


class ScriptedSession:
    """Implements `server.resident.Served`: each request gets the next script.

    A script that ends in END stops by itself, and so does one of ids. `requests` has
    (prompt, params) of each.
    `gate` holds permits for tokens; at the beginning there is no lack of them.
    """

    def __init__(
        self, template: str | None, *scripts: str | list[int] | OctavoError, context: int = 256
    ):
        self.plan = make_plan(context=context)
        self.tokenizer = Tokenizer.from_metadata(as_metadata(byte_level("qwen2")))
        self.template = Template(template, self.tokenizer) if template is not None else None
        self.stats = Stats()
        self.n_embd, self.pooling = 4, "last"
        self.video_bytes: int | None = None
        self.requests: list[tuple[str, SamplingParams]] = []
        self.asked: list[ChatRequest] = []
        self.streams: list[ScriptedStream] = []
        self.gate = Gate(10**6)
        self.closed = threading.Event()
        self._scripts = list(scripts)
        self._chat = Chat(self, self.tokenizer, self.template)

    def start_anew(self, *scripts: str | list[int] | OctavoError) -> None:
        """Forget what was asked; these are the next answers."""
        self._scripts = list(scripts)
        self.requests.clear()
        self.asked.clear()
        self.streams.clear()

    @property
    def engine(self) -> ScriptedSession:
        return self

    @property
    def places(self) -> ScriptedSession:
        return self

    def views(self) -> list[PlaceView]:
        n = self.plan.sequences
        return [PlaceView(i, i, i < self.stats.running, 0, 0, 0, -1) for i in range(n)]

    def save_place(self, number: int, path: Path) -> Moved:
        return Moved(3, 100)

    restore_place = save_place

    def erase_place(self, number: int) -> int:
        return 3

    def set_context(self, n_tokens: int) -> None:
        self.plan = make_plan(context=n_tokens)

    def hold(self) -> None:
        """Let no token come without a permit of `gate`."""
        self.gate = Gate(0)

    def ask(self, request: ChatRequest) -> Reply:
        self.asked.append(request)
        return self._chat.ask(request)

    def complete(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        stop: Sequence[str] = (),
    ) -> Reply:
        return self._chat.complete(prompt, params or SamplingParams(), stop)

    def embed(
        self,
        texts: str | Sequence[str | Sequence[int]],
        dimensions: int | None = None,
        cancelled: threading.Event | None = None,
    ) -> np.ndarray:
        rows = [np.full(4, len(text), np.float32) for text in texts]
        return np.array(rows, np.float32).reshape(-1, 4)[:, : dimensions or 4]

    def close(self) -> None:
        self.closed.set()

    def submit(
        self, ids: Sequence[int], params: SamplingParams, *, marks: Iterable[int] = ()
    ) -> ScriptedStream:
        if len(ids) >= self.plan.context:
            limit = self.plan.context
            raise ContextFullError(
                f"the prompt has {len(ids)} tokens and the context holds {limit}",
                n_tokens=len(ids),
                limit_tokens=limit,
            )
        self.requests.append((self.tokenizer.decode(ids), params))
        script = self._scripts.pop(0)
        error = script if isinstance(script, OctavoError) else None
        whole = "A" if isinstance(script, OctavoError) else script
        text = whole.removesuffix(END) if isinstance(whole, str) else ""
        made = self.tokenizer.encode(text, parse_special=True)
        if not isinstance(whole, str):  # ids as they are, and then an end
            made, whole = list(whole), END
        limit = len(made) if params.max_tokens < 0 else params.max_tokens
        finish: FinishReason = "stop" if whole != text and len(made) <= limit else "length"
        stream = ScriptedStream(made[:limit], finish, len(ids), self.gate)
        stream.n_logprobs, stream.error = params.n_logprobs, error
        stream.reports = params.report_progress
        if params.prompt_logprobs:
            stream.prompt_tokens = [stream._token(id) for id in ids[1:]]
        self.streams.append(stream)
        return stream


@contextlib.contextmanager
def serving(
    load: Served | Callable[..., Served] | Fleet,
    rules: Rules | None = None,
    *,
    waits: bool = True,
    slot_folder: Path | None = None,
    **options: Any,
) -> Iterator[str]:
    """The address of a server that runs while the block does.

    `waits`: until the model is there. `options` are those of `Resident`.
    """
    if isinstance(load, Fleet):
        fleet = load
    else:
        loader = load if callable(load) else lambda report: load
        fleet = Fleet([Resident(lambda report, plan: loader(report), "scripted", **options)])
    loaded = threading.Event()
    fleet.first.on_end_of_loading = loaded.set
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    config = uvicorn.Config(
        make_app(fleet, rules, slot_folder), log_config=None, ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    assert not waits or loaded.wait(20)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
