"""Answer a prompt; several are answered at once.

The prompt is a user's message: the model's own chat template is used, unless --raw. A model
without a template always continues the text as it is. A file (-f) follows each prompt, or is
the prompt; "-f -" is standard input, which is also read if there is neither -p nor -f.

The answer goes to standard output, the thinking and the timing to standard error.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli import _screen as screen
from octavo.cli._options import Json, LoadFlags, SamplingFlags, ThinkingFlags
from octavo.errors import NotFoundError, OctavoError, RequestError, SettingError
from octavo.record import dataclass
from octavo.types import ChatRequest, Message, SamplingParams

if TYPE_CHECKING:
    from octavo.chat import Answer, Event, Reply
    from octavo.session import Session

MOST_BEGUN = 128  # prompts at once: more than a model computes, fewer than the engine lets wait


@dataclass
class AskFlags:
    """What is asked."""

    prompts: Annotated[
        list[str] | None,
        typer.Option("-p", "--prompt", help="The prompt; repeat it to ask several at once."),
    ] = None
    file: Annotated[
        str | None, typer.Option("-f", "--file", help="A text that follows each prompt.")
    ] = None
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None
    stop: Annotated[
        list[str] | None, typer.Option("--stop", help="Text that ends the answer; repeatable.")
    ] = None
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text; no template.")] = False

    def texts(self) -> list[str]:
        """The prompts, each with the file behind it.

        Raises:
            RequestError: there is none.
            NotFoundError: the file cannot be read.
        """
        reads_stdin = self.file == "-" or (self.file is None and not self.prompts)
        text = sys.stdin.read() if reads_stdin else _read(self.file)
        texts = [f"{prompt}\n\n{text}" if text else prompt for prompt in self.prompts or ()]
        texts = texts or [text] if text else texts
        if not texts:
            raise RequestError("There is no prompt", 'Give one with -p "..." or on standard input.')
        return texts


def main(
    ask: AskFlags,
    load: LoadFlags,
    sampling: SamplingFlags,
    thinking: ThinkingFlags,
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="Alias, path or repository of the model."),
    ] = None,
    model_flag: Annotated[
        str | None, typer.Option("-m", "--model", help="The same as a flag.")
    ] = None,
    json_output: Json = False,
) -> None:
    """The command."""
    if (model is None) == (model_flag is None):
        raise SettingError("One model is needed", 'For example: octavo run demo -p "Hello"')
    params = sampling.params()
    if sys.stdin.isatty() and not ask.prompts and ask.file is None:
        screen.note("Type the prompt; end it with Ctrl-D (Windows: Ctrl-Z and Enter).")
    texts = ask.texts()
    with screen.loaded(model or model_flag or "", load.wishes()) as session:
        if session.template is None and not ask.raw:
            screen.note("The file has no chat template: the text is continued as it is.")
        jobs = _begun_ahead(
            _Job(text, _start(session, ask, text, params, thinking)) for text in texts
        )
        _show(jobs, len(texts), json_output)


def _start(
    session: Session, ask: AskFlags, text: str, params: SamplingParams, thinking: ThinkingFlags
) -> Reply:
    stop = tuple(ask.stop or ())
    if ask.raw or session.template is None:
        return session.complete(text, params, stop)
    system = (Message("system", ask.system),) if ask.system is not None else ()
    request = ChatRequest(
        messages=(*system, Message("user", text)),
        params=params,
        stop=stop,
        thinking=thinking.think,
        thinking_budget=thinking.think_budget,
    )
    return session.ask(request)


def _read(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(
            f"{path} cannot be read: {error}", "Give a text file in UTF-8."
        ) from error


class _Job:
    """One prompt, answered by a thread of its own so that none waits for the others' output."""

    def __init__(self, prompt: str, reply: Reply) -> None:
        self.prompt = prompt
        self.reply = reply
        self._events: queue.SimpleQueue[Event | OctavoError | None] = queue.SimpleQueue()
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        try:
            for event in self.reply:
                self._events.put(event)
            self._events.put(None)
        except OctavoError as error:
            self._events.put(error)

    def events(self) -> Iterator[Event]:
        """As they come.

        Raises:
            OctavoError: the request failed.
        """
        while (item := self._events.get()) is not None:
            if isinstance(item, OctavoError):
                raise item
            yield item


def _begun_ahead(jobs: Iterator[_Job]) -> Iterator[_Job]:
    """The same in their order, of which `MOST_BEGUN` are begun before the first one is done."""
    begun: deque[_Job] = deque()
    for job in jobs:
        begun.append(job)
        if len(begun) == MOST_BEGUN:
            yield begun.popleft()
    yield from begun


def _show(jobs: Iterator[_Job], n_jobs: int, json_output: bool) -> None:
    """Print the answers in the order of the prompts, the first one while it is made."""
    start = time.perf_counter()
    answers = []
    for number, job in enumerate(jobs, 1):
        if json_output:
            screen.emit({"prompt": job.prompt, **screen.as_json(_finish(job))})
        else:
            if n_jobs > 1:
                title = next(iter(job.prompt.splitlines()), "")[:80]
                screen.note(f"[{number} of {n_jobs}] {title}")
            screen.show(job.events())
            screen.note(screen.summary(job.reply.answer.usage))
        answers.append(job.reply.answer)
    if n_jobs > 1:
        n_tokens = sum(answer.usage.completion_tokens for answer in answers)
        seconds = time.perf_counter() - start
        screen.note(f"together {n_tokens} tokens at {screen.rate(n_tokens, seconds):.1f} tok/s")
    if any(answer.stopped_thinking for answer in answers):
        raise OctavoError(screen.STOPPED_THINKING, "Ask again, or use --no-think.")


def _finish(job: _Job) -> Answer:
    for _ in job.events():
        pass
    return job.reply.answer
