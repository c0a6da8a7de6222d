"""The events of one answer: tokens of the engine in, pieces of answer, thinking and calls out.

An answer takes one request to the engine, or two: when thinking has to be ended (its budget is
used up, or the model stopped in the middle of it), and when a grammar holds for the answer but
not for the thinking. The second request continues the text of the first; the engine finds that
in its cache, so little is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Protocol

from octavo.errors import ContextFullError
from octavo.record import dataclass
from octavo.text.split import Content, Event, Reasoning, Splitter, ToolCalled
from octavo.types import (
    FinishReason,
    GrammarSpec,
    PromptProgress,
    SamplingParams,
    Token,
    ToolCall,
    Usage,
)


class TokenStream(Protocol):
    """What is needed of `engine.stream.Stream`."""

    @property
    def finish_reason(self) -> FinishReason | None: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def prompt_tokens(self) -> Sequence[Token]: ...
    def items(self, *, wait: bool = True) -> Iterator[Token | PromptProgress | None]: ...
    def listen(self, wake: Callable[[], None]) -> None: ...
    def cancel(self) -> None: ...


class TokenSource(Protocol):
    """What is needed of `engine.engine.Engine`."""

    def submit(
        self, ids: Sequence[int], params: SamplingParams, *, marks: Iterable[int] = ()
    ) -> TokenStream: ...


@dataclass
class Answer:
    """What came of a request. `str(answer)` is its content.

    `stopped_thinking`: the model ended, or ran out of tokens, while it was thinking, and so gave
    no answer. Nobody should take that for success.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stopped_thinking: bool = False
    stop_text: str | None = None  # the stop string that ended it
    reasoning_tokens: int = 0  # of the completion tokens
    tokens: list[Token] = field(default_factory=list)  # of the content, if log-probs were wanted
    usage: Usage = field(default_factory=Usage)

    def __str__(self) -> str:
        return self.content


@dataclass(frozen=True)
class ThinkingLimit:
    """How thinking is ended from outside.

    `n_tokens`: the most there may be; None: no limit. `enough` are the ids that end it at the
    limit, `closing` those that end it where the model stopped, `gap` those between the model's
    own closing tag and the answer.
    """

    n_tokens: int | None
    enough: tuple[int, ...]
    closing: tuple[int, ...]
    gap: tuple[int, ...]


class Reply(Iterator[Event]):
    """The events of one answer as they come; `answer` is whole after the last.

    Who can wait iterates. Who cannot says so with `listen`, and reads what is `ready` whenever
    woken. Leaving its `with` block or `cancel` ends it within a step of the engine. Safe to use
    from any one thread; `cancel` from all.
    """

    def __init__(
        self,
        engine: TokenSource,
        ids: Sequence[int],
        params: SamplingParams,
        marks: tuple[int, ...],
        splitter: Splitter,
        thinking: ThinkingLimit | None = None,
    ) -> None:
        self.answer = Answer()
        self.prompt_tokens = len(ids)
        self._engine = engine
        self._ids = list(ids)  # the prompt, and all that was generated or put in since
        self._params = params
        self._splitter = splitter
        self._thinking = thinking  # None: it cannot be ended any more
        # A grammar is for the answer, not for the thinking before it.
        waits = params.grammar is not None and params.grammar.trigger is None
        self._grammar_waits = waits and splitter.in_reasoning
        self.n_generated = 0
        self._n_streams = 0
        self._is_cancelled = False
        self._must_answer = False
        first = replace(params, grammar=None) if self._grammar_waits else params
        self._wake: Callable[[], None] | None = None
        self.is_over = False  # all events were read
        self._stream = engine.submit(self._ids, first, marks=marks)
        self._events = self._run()

    @property
    def prompt_logprobs(self) -> list[Token]:
        """The prompt's tokens, if `prompt_logprobs` asked for them; whole as `Stream` says."""
        return [Token(self._ids[0]), *self._stream.prompt_tokens]

    def __next__(self) -> Event:
        """The next event; waits for it.

        Raises:
            OctavoError: the request failed.
        """
        for event in self._events:
            if event is not None:
                return event
        raise StopIteration

    def listen(self, wake: Callable[[], None]) -> None:
        """Wait for nothing from now on. `wake` is called now, and when there may be more.

        That is on the engine's thread, so it must be quick; if it raises, the answer is cancelled.
        """
        self._wake = wake
        self._stream.listen(wake)

    def ready(self) -> Iterator[Event]:
        """The events that can be had without waiting, after `listen`.

        Raises:
            OctavoError: the request failed.
        """
        for event in self._events:
            if event is None:
                return
            yield event
        self.is_over = True

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the answer; events that were made can still be read."""
        self._is_cancelled = True
        self._stream.cancel()

    def answer_now(self) -> bool:
        """End the thinking with the next token; False if there is none that could be ended."""
        can = self._thinking is not None and self._splitter.in_reasoning
        self._must_answer = self._must_answer or can
        return can

    def whole(self) -> Answer:
        """Wait for the end.

        Raises:
            OctavoError: the request failed.
        """
        for _ in self:
            pass
        return self.answer

    # None among the events: nothing has come yet, and nobody waits.

    def _run(self) -> Iterator[Event | None]:
        put_in = yield from self._read()
        if put_in and self._go_on(put_in):
            for token in put_in:
                yield from self._collect(self._splitter.push(token))
            yield from self._read()
        yield from self._collect(self._splitter.finish())
        self._conclude()

    def _read(self) -> Generator[Event | None, None, tuple[int, ...]]:
        """The tokens of one stream, to its end or ours -> ids to go on with; none: the end."""
        put_in: tuple[int, ...] = ()
        for token in self._stream.items(wait=self._wake is None):
            if token is None or isinstance(token, PromptProgress):
                yield token
                continue
            self._ids.append(token.id)
            self.n_generated += 1
            thinks = self._splitter.in_reasoning
            events = self._splitter.push(token.id)
            self.answer.reasoning_tokens += thinks
            if token.logprob is not None and not thinks and not self._splitter.in_reasoning:
                self.answer.tokens.append(token)
            yield from self._collect(events)
            put_in = self._end_of_thinking()
            if put_in or self._splitter.stop_text is not None:
                break
        else:
            if self._thinking and self._stopped_thinking:
                put_in = self._thinking.closing
        self._stream.cancel()
        # What was made before the engine saw the cancel; its usage is final then.
        for token in self._stream.items(wait=self._wake is None):
            if token is None:
                yield None
        self._count(self._stream.usage)
        return put_in

    @property
    def _stopped_thinking(self) -> bool:
        """Whether the model ended inside of its thinking, and not with a call."""
        is_open = self._splitter.in_reasoning and not self._splitter.has_thought_call
        return is_open and self._stream.finish_reason == "stop"

    def _end_of_thinking(self) -> tuple[int, ...]:
        """Ids to go on with if the thinking has to end, or has ended and a grammar waits."""
        thinking = self._thinking
        if thinking is None:
            return ()
        if not self._splitter.in_reasoning:
            return thinking.gap if self._grammar_waits else ()
        at_limit = thinking.n_tokens is not None and self.n_generated >= thinking.n_tokens
        return thinking.enough if at_limit or self._must_answer else ()

    def _go_on(self, put_in: tuple[int, ...]) -> bool:
        """Ask the engine to continue behind `put_in`; False if there is no room for it."""
        self._thinking = None
        grammar = _without_thinking(self._params.grammar)
        params = replace(self._params, grammar=grammar, report_progress=False)
        if params.max_tokens >= 0:
            params = replace(params, max_tokens=params.max_tokens - self.n_generated)
        self._ids += put_in
        try:
            if params.max_tokens == 0 or self._is_cancelled:
                return False
            self._stream = self._engine.submit(self._ids, params)
        except ContextFullError:
            return False
        if self._wake is not None:
            self._stream.listen(self._wake)
        if self._is_cancelled:  # in the meantime, by another thread
            self._stream.cancel()
        return True

    def _collect(self, events: Iterable[Event]) -> Iterator[Event]:
        """Add the events to the answer, and pass them on."""
        for event in events:
            if isinstance(event, Content):
                self.answer.content += event.text
            elif isinstance(event, Reasoning):
                self.answer.reasoning += event.text
            elif isinstance(event, ToolCalled):
                self.answer.tool_calls.append(event.call)
            yield event

    def _count(self, usage: Usage) -> None:
        """Add one stream's figures: the prompt's are the first stream's."""
        first, self._n_streams = self._n_streams == 0, self._n_streams + 1
        if first:
            self.answer.usage = replace(usage, completion_tokens=self.n_generated)
            return
        sofar = self.answer.usage
        self.answer.usage = replace(
            sofar,
            completion_tokens=self.n_generated,
            generation_seconds=sofar.generation_seconds
            + usage.first_token_seconds
            + usage.generation_seconds,
            drafted_tokens=sofar.drafted_tokens + usage.drafted_tokens,
            accepted_tokens=sofar.accepted_tokens + usage.accepted_tokens,
        )

    def _conclude(self) -> None:
        answer, reason = self.answer, self._stream.finish_reason
        if self._is_cancelled:
            reason = "cancelled"
        elif self._splitter.stop_text is not None:
            reason = "stop"
        elif reason == "cancelled":  # by us, and there was no room to go on
            reason = "length"
        answer.finish_reason = reason
        answer.stop_text = self._splitter.stop_text
        said_something = answer.content.strip() or answer.tool_calls
        answer.stopped_thinking = (
            reason != "cancelled" and bool(answer.reasoning) and not said_something
        )


def _without_thinking(grammar: GrammarSpec | None) -> GrammarSpec | None:
    """A grammar for an answer whose thinking is over."""
    if grammar is None or grammar.trigger is None:
        return grammar
    trigger = replace(grammar.trigger, in_reasoning=False, reasoning_tags=None)
    return replace(grammar, trigger=trigger)
