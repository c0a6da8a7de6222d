"""A loaded model, ready for use: what `octavo.load` gives.

Joins the parts in the order of a start: name -> file -> plan -> weights and cache -> engine ->
chat. Each part decides its own matters; nothing is decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from octavo.chat import Answer, Chat, Messages, Reply, messages_of, params_of
from octavo.engine.engine import Engine
from octavo.engine.loader import fingerprint, hold_experts, split_experts
from octavo.engine.places import Place
from octavo.engine.speculative import DraftRule, Source
from octavo.engine.steps import Piece, Steps
from octavo.errors import RequestError
from octavo.gguf.reader import GGUFFile
from octavo.kv import formats
from octavo.kv.cache import Cache, Timeline, pages_of
from octavo.kv.prefix import PrefixStore
from octavo.kv.state import PAGE_TOKENS, AttentionSpec
from octavo.models import Model
from octavo.models.pooling import vector
from octavo.ops.backend import Backend
from octavo.plan.plan import Plan
from octavo.record import dataclass
from octavo.text.template import Template
from octavo.text.tokenizer import Tokenizer
from octavo.types import (
    ChatRequest,
    SamplingParams,
    ToolChoice,
    ToolMode,
)

if TYPE_CHECKING:
    from octavo.kv.shelf import Shelf

Texts = str | Sequence[str | Sequence[int]]
SCORE_TOKENS = 64  # a piece of a scored text; its logits are in memory at once


@dataclass(frozen=True)
class Moved:
    """What was saved or restored."""

    n_tokens: int
    n_bytes: int  # of the file


class Session:
    """One model in memory, with its tokenizer, template, cache and engine thread.

    May be used by several threads at once. Close it, or use it in a `with` block.

    Attributes:
        plan: what lives where.
        tokenizer: text to ids and back.
        template: the chat template, or None if the file has none.
        engine: for those who work with ids.
        residents: experts on the card, where they are in two places; else None.
    """

    def __init__(
        self,
        file: GGUFFile,
        plan: Plan,
        backend: Backend,
        drafts: frozenset[Source],
        model: Future[Model],
        tokenizer: Future[Tokenizer],
        keep: tuple[Path, int] | None = None,
    ) -> None:
        """`file` may be closed afterwards; what is made of it may still be on its way.

        `keep`: where prefixes are saved, in how many bytes.
        """
        self.plan = plan
        self._backend = backend
        self._fingerprint = fingerprint(file)
        self.tokenizer = tokenizer.result()
        self.template = Template.from_metadata(file.metadata, self.tokenizer)
        self._model = model.result()
        cache = Cache(
            self._model.state(),
            n_pages=plan.n_pages,
            n_slots=plan.n_slots,
            format=plan.cache_format,
            backend=backend,
            context=plan.context,
        )
        store = split_experts(self._model, plan, backend)
        with nullcontext() if store is None else store.rehearsing():
            if plan.placement != "cpu":
                Steps(self._model, cache).warm_up(
                    plan.batch_tokens, 1 + plan.draft_tokens, plan.sequences
                )
        self.residents = None if store is None else hold_experts(store, plan, self._fingerprint)
        shelf = keep and _shelf(keep, cache, self._fingerprint)
        self._prefixes = PrefixStore(cache, plan.prefix_bytes, plan.n_snapshots, shelf)
        self._cache = cache
        self.engine = Engine(
            self._model,
            cache,
            vocabulary=self.tokenizer,
            prefixes=self._prefixes,
            max_running=plan.sequences,
            piece_tokens=plan.batch_tokens,
            drafts=DraftRule(drafts, max_tokens=plan.draft_tokens),
            between=None if self.residents is None else self.residents.settle,
        )
        self._chat = Chat(self.engine, self.tokenizer, self.template)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.plan.model

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""
        return self._model.config.n_vocab

    @property
    def n_embd(self) -> int:
        """Width of a token's state, and of the vectors of `embed`."""
        return self._model.config.n_embd

    @property
    def video_bytes(self) -> int | None:
        """What this program holds of the card, all its models; None: there is no card in use."""
        held: Callable[[], int | None] | None = getattr(self._backend, "held_bytes", None)
        return held() if held and self.plan.video else None

    @property
    def pooling(self) -> str:
        """How `embed` makes one vector of a text: "mean", "cls" or "last"; "": it cannot."""
        return self._model.config.pooling

    def ask(self, request: ChatRequest) -> Reply:
        """Start to answer a request; several may run at once.

        Raises:
            UnsupportedError, TemplateError, RequestError, ContextFullError: it cannot be served.
        """
        return self._chat.ask(request)

    def complete(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        stop: Sequence[str] = (),
    ) -> Reply:
        """Start to continue a text, or ids, as it is.

        Raises:
            RequestError, ContextFullError: it cannot be served.
        """
        return self._chat.complete(prompt, params or SamplingParams(), stop)

    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[False] = False, **options: Any
    ) -> Answer: ...
    @overload
    def chat(self, messages: Messages, *, stream: Literal[True], **options: Any) -> Reply: ...
    def chat(
        self,
        messages: Messages,
        *,
        stream: bool = False,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: ToolChoice | ToolMode = "auto",
        stop: Sequence[str] = (),
        thinking: bool | None = None,
        thinking_budget: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Answer | Reply:
        """Answer a chat.

        Args:
            messages: a question, or messages: `Message` or {"role": ..., "content": ...}.
            stream: return at once; the reply is an iterator of `Content`, `Reasoning` and
                `ToolCalled`.
            tools: function declarations as OpenAI's API has them.
            tool_choice: "auto", "required" or "none"; `ToolChoice` says more: one function by
                its name, one call only, calls that are not constrained.
            stop: texts that end the answer.
            thinking: on or off; None: as the model does by itself.
            thinking_budget: most tokens of thinking.
            json_schema: what the answer has to match.
            sampling: fields of `SamplingParams`: max_tokens, temperature, seed ...

        Raises:
            UnsupportedError: the model has no chat template.
            TemplateError, RequestError, ContextFullError: it cannot be served.
        """
        request = ChatRequest(
            messages=messages_of(messages),
            params=params_of(sampling, json_schema),
            tools=tuple(tools),
            tool_choice=(ToolChoice(tool_choice) if isinstance(tool_choice, str) else tool_choice),
            stop=tuple(stop),
            thinking=thinking,
            thinking_budget=thinking_budget,
        )
        reply = self.ask(request)
        return reply if stream else reply.whole()

    @overload
    def generate(
        self, prompt: str, *, stream: Literal[False] = False, **options: Any
    ) -> Answer: ...
    @overload
    def generate(self, prompt: str, *, stream: Literal[True], **options: Any) -> Reply: ...
    def generate(
        self,
        prompt: str,
        *,
        stream: bool = False,
        stop: Sequence[str] = (),
        json_schema: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Answer | Reply:
        """Continue a text as it is: no template. Arguments and errors as of `chat`."""
        reply = self.complete(prompt, params_of(sampling, json_schema), stop)
        return reply if stream else reply.whole()

    def embed(
        self, texts: Texts, dimensions: int | None = None, cancelled: threading.Event | None = None
    ) -> NDArray[np.float32]:
        """Vectors of texts or ids, float32 (n, D), each of length 1; (1, D) for a single text.

        With `dimensions` only the first ones, scaled to length 1 again. `cancelled`, set by
        another thread, ends the work within one step.

        Raises:
            UnsupportedError: the model was not made for embeddings.
            RequestError: an empty text for a model that adds no tokens, or wrong dimensions.
            ContextFullError, CancelledError: a text is longer than the context; it was cancelled.
        """
        ids = [
            self.tokenizer.encode(text, add_special=True) if isinstance(text, str) else text
            for text in ([texts] if isinstance(texts, str) else texts)
        ]
        pooled = self.engine.embed(ids, cancelled=cancelled)
        rows = [vector(row, dimensions) for row in pooled]
        return np.stack(rows) if rows else pooled

    def save_place(self, number: int, path: Path) -> Moved:
        """Save the tokens that were last computed in a place, with their snapshots, to a file.

        Raises:
            RequestError: there is no such place, or it runs, or nothing of it is kept any more.
            NotFoundError: the file cannot be written.
        """

        from octavo.kv import disk  # here, as few start with it

        def save() -> Moved:
            timeline = self._kept_in(number)
            disk.save(timeline, path, self._fingerprint)
            return Moved(timeline.n_tokens, path.stat().st_size)

        return self.engine.call(save)

    def restore_place(self, number: int, path: Path) -> Moved:
        """Read such a file into a place; later prompts that begin so find it.

        -> the tokens that a prompt can go on from.

        Raises:
            RequestError: there is no such place, or it runs.
            NotFoundError, FileFormatError, ContextFullError: as `kv.disk.restore`.
        """

        from octavo.kv import disk

        def restore() -> Moved:
            place = self._idle(number)
            timeline = disk.restore(self._cache, path, self._fingerprint)
            ids, n = timeline.ids.copy(), timeline.reachable(timeline.n_tokens)
            self._prefixes.keep(timeline)
            place.ids = ids
            return Moved(n, path.stat().st_size)

        return self.engine.call(restore)

    def erase_place(self, number: int) -> int:
        """Forget what was last computed in a place -> its number of tokens.

        Raises:
            RequestError: there is no such place, or it runs.
        """

        def erase() -> int:
            place = self._idle(number)
            timeline, n = self._prefixes.holding(place.ids), len(place.ids)
            if timeline is not None:
                self._prefixes.drop(timeline)
            place.ids = place.ids[:0]
            return n

        return self.engine.call(erase)

    def _idle(self, number: int) -> Place:
        if not 0 <= number < len(self.engine.places):
            raise RequestError(
                f"There is no slot {number}", f"They are 0 to {len(self.engine.places) - 1}."
            )
        place = self.engine.places[number]
        if place.job is not None:
            raise RequestError(f"Slot {number} is computing", "Wait until it is idle.")
        return place

    def _kept_in(self, number: int) -> Timeline:
        timeline = self._prefixes.holding(self._idle(number).ids)
        if timeline is None:
            raise RequestError(f"Slot {number} holds nothing", "Let it compute something first.")
        return timeline

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; with `special`, texts of control tokens become those tokens."""
        return self.tokenizer.encode(text, parse_special=special)

    def logits(self, ids: Sequence[int], first: int) -> Iterator[NDArray[np.float32]]:
        """Logits (n, V) at positions `first` and on of a text, piece by piece, for scoring.

        Uses a small cache of its own, beside the engine: call it while no request runs.
        """
        n_pages = pages_of(len(ids))
        cache = Cache(
            self._model.state(),
            n_pages=n_pages,
            n_slots=1,
            format=self.plan.cache_format,
            backend=self._backend,
        )
        steps, timeline = Steps(self._model, cache), cache.open()
        for start in range(0, len(ids), SCORE_TOKENS):
            piece = ids[start : start + SCORE_TOKENS]
            timeline.reserve(len(piece))
            n_wanted = min(len(piece), max(0, start + len(piece) - first))
            output = steps.run([Piece(timeline, start, piece, n_wanted)])
            timeline.advance(piece)
            if n_wanted:
                yield output.logits

    def bytes_per_token(self, depth: int) -> int:
        """Bytes that a decoded token reads: weights used, cache at that depth, states."""
        specs = self._model.state()[: self._model.config.n_layers]
        cached = 0
        for spec in specs:
            if isinstance(spec, AttentionSpec):
                seen = min(depth, spec.window) if spec.window else depth
                cached += seen * formats.page_bytes(self.plan.cache_format, spec) // PAGE_TOKENS
            else:
                cached += 2 * spec.n_bytes  # read and written
        return self.plan.read_bytes_per_token + cached

    def close(self) -> None:
        """End all requests and the engine's thread. Closing again does nothing."""
        self.engine.close()
        if self.residents is not None:
            self.residents.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _shelf(keep: tuple[Path, int], cache: Cache, fingerprint: str) -> Shelf:
    from octavo.kv.shelf import Shelf

    folder, budget_bytes = keep
    return Shelf(folder, cache, fingerprint, budget_bytes=budget_bytes)
