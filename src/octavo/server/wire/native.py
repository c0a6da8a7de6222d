"""llama.cpp's own shapes: `/completion` and the routes around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from octavo.chat import Answer
from octavo.server.wire.body import Body, SamplingBody
from octavo.server.wire.declared import Ids, Mixed, Text, add_ranges, one_of
from octavo.server.wire.openai import ChatBody
from octavo.server.wire.openai_answer import Piece, floor, progress_of, timings
from octavo.text.split import Content, Event
from octavo.types import PromptProgress, SamplingParams, Token


class NativeBody(SamplingBody):
    """`/completion`."""

    model_config = ConfigDict(json_schema_extra=one_of("prompt", "input_prefix", "input_suffix"))

    prompt: Mixed = None
    input_prefix: Text = None
    input_suffix: Text = None
    stream: bool | None = None
    stop: str | list[str] | None = None
    n_probs: Annotated[int, Field(ge=0, le=100)] | None = None

    @property
    def fills_in(self) -> bool:
        """Whether the text between two others is asked for."""
        return self.input_prefix is not None or self.input_suffix is not None


class ExtraBody(Body):
    """Another file that may help."""

    filename: str = ""
    text: str


class InfillBody(NativeBody):
    """`/infill`."""

    model_config = ConfigDict(json_schema_extra=add_ranges)

    prompt: str | None = None
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[ExtraBody] | None = None


class TokenizeBody(Body):
    """`/tokenize`."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(Body):
    """`/detokenize`."""

    tokens: Ids


class TemplateBody(ChatBody):
    """`/apply-template`."""


class NativeWriter:
    """One response of `/completion`, streamed or whole."""

    def __init__(
        self, model: str, answer: Answer, prompt: str, params: SamplingParams, piece: Piece | None
    ) -> None:
        """`piece`: probabilities are wanted."""
        self._model = model
        self._answer = answer
        self._prompt = prompt
        self._params = params
        self._piece = piece
        self._n_tokens = 0

    def chunk(self, event: Event, prompt_tokens: int, n_generated: int) -> dict[str, Any]:
        """A piece of the answer; `n_generated`: tokens so far."""
        chunk: dict[str, Any] = {
            "index": 0,
            "content": event.text if isinstance(event, Content) else "",
            "tokens": [],
            "stop": False,
            "id_slot": 0,
            "tokens_predicted": n_generated,
            "tokens_evaluated": prompt_tokens,
        }
        if isinstance(event, PromptProgress):
            chunk["prompt_progress"] = progress_of(event)
        return chunk | self._probabilities()

    def last(self) -> dict[str, Any]:
        """The last chunk: the text is out, the figures follow."""
        return self._figures("") | self._probabilities()

    def whole(self) -> dict[str, Any]:
        """Everything in one."""
        return self._figures(self._answer.content) | self._probabilities()

    def _figures(self, content: str) -> dict[str, Any]:
        answer = self._answer
        usage = answer.usage
        return {
            "index": 0,
            "content": content,
            "tokens": [],
            "id_slot": 0,
            "stop": True,
            "model": self._model,
            "tokens_predicted": usage.completion_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": usage.cached_tokens,
            "generation_settings": settings_of(self._params),
            "prompt": self._prompt,
            "has_new_line": "\n" in answer.content,
            "truncated": self._is_cut,
            "stop_type": _stop_type(answer),
            "stopping_word": answer.stop_text or "",
            "timings": timings(usage),
        }

    @property
    def _is_cut(self) -> bool:
        """Whether the answer ended because the context did."""
        limit, n = self._params.max_tokens, self._answer.usage.completion_tokens
        return self._answer.finish_reason == "length" and (limit < 0 or n < limit)

    def _probabilities(self) -> dict[str, Any]:
        """Of the tokens that were made since the last call, if they were asked for."""
        if self._piece is None:
            return {}
        new = self._answer.tokens[self._n_tokens :]
        self._n_tokens += len(new)
        return {"completion_probabilities": probabilities(new, self._piece)}


def probabilities(tokens: Sequence[Token], piece: Piece) -> list[dict[str, Any]]:
    """Log-probabilities with ids."""

    def one(id: int, logprob: float) -> dict[str, Any]:
        data = piece(id)
        text = data.decode("utf-8", "replace")
        return {"id": id, "token": text, "bytes": list(data), "logprob": floor(logprob)}

    return [
        {
            **one(token.id, token.logprob or 0.0),
            "top_logprobs": [one(top.id, top.logprob) for top in token.top_logprobs],
        }
        for token in tokens
    ]


_UNSAID = (
    *("dry_breakers", "stop_ids", "grammar", "n_logprobs", "logit_bias"),
    *("prompt_logprobs", "report_progress"),
)


def settings_of(params: SamplingParams) -> dict[str, Any]:
    """Sampling parameters with llama.cpp's names."""
    own = asdict(params)
    for name in _UNSAID:
        del own[name]
    own["n_predict"] = params.max_tokens
    own["n_probs"] = params.n_logprobs or 0
    own["dry_penalty_last_n"] = own.pop("dry_last_n")
    own["seed"] = -1 if params.seed is None else params.seed
    return own


def _stop_type(answer: Answer) -> str:
    if answer.stop_text is not None:
        return "word"
    return {"stop": "eos", "length": "limit"}.get(answer.finish_reason or "", "none")
