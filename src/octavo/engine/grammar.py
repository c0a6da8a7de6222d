"""Grammars: which tokens may come next. A small seam with the llguidance package behind it."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from octavo.errors import OctavoError, RequestError
from octavo.types import GrammarSpec

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions


MAX_FRESH = 64  # compiled grammars kept for each vocabulary


class Vocabulary(Protocol):
    """What the engine needs of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def stop_ids(self) -> Iterable[int]:
        """Tokens that end an answer."""
        ...

    @property
    def unused_ids(self) -> Iterable[int]:
        """Ids that stand for nothing and must never be chosen."""
        ...

    @property
    def control_ids(self) -> Iterable[int]:
        """Control tokens: no part of the text."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes that the token adds to the text."""
        ...

    def pieces(self) -> list[bytes]:
        """`piece` of every token, faster than one by one."""
        ...

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, as the model is used to them."""
        ...


class Grammar(Protocol):
    """The state of one sequence's grammar."""

    @property
    def is_complete(self) -> bool:
        """Nothing can follow but the end."""
        ...

    def mask(self, row: NDArray[np.float32]) -> int | None:
        """Set the logits (V,) of all tokens that may not come next to -inf.

        Stop tokens are left where the text may end. -> how many tokens are left; None: it does
        not hold yet.
        """
        ...

    def accept(self, token: int) -> None:
        """Note the token that came next.

        Raises:
            OctavoError: the grammar does not allow it.
        """
        ...

    def rollback(self, n: int) -> None:
        """Forget the latest n accepted tokens."""
        ...

    def forced(self) -> list[int]:
        """Tokens that very likely come next, because their text is the only one allowed."""
        ...


class TextGrammar(Grammar, Protocol):
    """A grammar that can also be fed text, in front of its first token."""

    def accept_text(self, text: str) -> int:
        """Note a text that is no whole token -> tokens that count for `rollback`.

        -1: the text is not allowed, and nothing was noted.
        """
        ...


# JSON as json.dumps writes it: where blanks are free, a weak model may write them for ever.
_JSON_STYLE: JsonCompileOptions = {
    "whitespace_flexible": False,
    "key_separator": ": ",
    "item_separator": ", ",
}


def compile_grammar(spec: GrammarSpec, vocabulary: Vocabulary) -> TextGrammar:
    """Start a grammar, its trigger left aside.

    The first one of a vocabulary takes a second, the next ones milliseconds.

    Raises:
        RequestError: the schema, expression or grammar is wrong; the message says where.
    """
    from llguidance import LLMatcher

    sources: dict[str, Callable[[str], str]] = {
        "json_schema": partial(LLMatcher.grammar_from_json_schema, defaults=_JSON_STYLE),
        "regex": LLMatcher.grammar_from_regex,
        "lark": LLMatcher.grammar_from_lark,
    }
    kind = spec.kind.replace("_", " ")
    tokenizer, fresh = _compiled(vocabulary)
    matcher = fresh.get((spec.kind, spec.text))
    if matcher is None:
        try:
            source = sources[spec.kind](spec.text)
        except ValueError as error:
            raise RequestError(f"the {kind} is no valid JSON: {error}", "Correct it.") from error
        matcher = LLMatcher(tokenizer, source, log_level=0)
        if matcher.is_error():
            reason = matcher.get_error().strip()
            raise RequestError(f"the {kind} cannot be used: {reason}", "Correct or simplify it.")
        fresh.put((spec.kind, spec.text), matcher)
    stops = np.array(sorted(vocabulary.stop_ids), np.int64) if spec.calm else None
    return _Matcher(matcher.deep_copy(), tokenizer, vocabulary.encode, stops)


class _Matcher:
    """A `Grammar` that llguidance runs.

    `stops`: stop tokens, for a text that ends where the model would say more and may not: to
    force upon it what the grammar has besides the end is not what it means. Weak models would make
    the same call again and again.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        tokenizer: LLTokenizer,
        encode: Callable[[str], list[int]],
        stops: NDArray[np.int64] | None = None,
    ) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._encode = encode
        self._stops = stops

    @property
    def is_complete(self) -> bool:
        return bool(self._matcher.is_stopped())

    def mask(self, row: NDArray[np.float32]) -> int:
        allowed = np.unpackbits(
            np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little"
        )[: len(row)].view(np.bool_)
        self._check()
        if self._stops is not None:
            self._end_early(row, allowed, self._stops)
        known = row[: len(allowed)]
        known[...] = np.where(allowed, known, np.float32(-np.inf))
        row[len(allowed) :] = -np.inf
        return int(np.count_nonzero(allowed))

    def _end_early(
        self, row: NDArray[np.float32], allowed: NDArray[np.bool_], stops: NDArray[np.int64]
    ) -> None:
        """Leave stop tokens alone where the model would say more and may not."""
        ends = stops[allowed[stops]]
        if not len(ends):
            return
        wanted = int(row.argmax())
        is_known = wanted < len(allowed)
        if is_known and not allowed[wanted] and _is_said(self._tokenizer.decode_bytes([wanted])):
            allowed[...] = False
            allowed[ends] = True

    def accept(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            self._check()

    def accept_text(self, text: str) -> int:
        ids = self._tokenizer.tokenize_bytes(text.encode())
        if self._tokenizer.decode_bytes(ids) != text.encode():
            return -1
        if self._matcher.validate_tokens(ids) < len(ids):
            return -1
        self._matcher.consume_tokens(ids)
        return len(ids)

    def rollback(self, n: int) -> None:
        self._matcher.rollback(n)
        self._check()

    def forced(self) -> list[int]:
        text = self._matcher.compute_ff_bytes()
        try:
            ids = self._encode(text.decode()) if text else []
        except UnicodeDecodeError:  # part of a character
            return []
        # The last token may be the beginning of a longer one.
        return ids[:-1] if self._tokenizer.decode_bytes(ids) == text else []

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().split("\n")[0]
            raise OctavoError(f"the grammar failed: {reason}", "Simplify the grammar.")


def _is_said(piece: bytes) -> bool:
    """Whether a token begins something said: no blank, and no sign that a tag may begin with."""
    first = piece.decode("utf-8", "replace").strip()[:1]
    return first not in ("", *"<[{;,\ufffd")


class _Pieces:
    """A vocabulary in the form in which llguidance wants it."""

    is_tokenizer_wrapper = True  # how llguidance knows its own

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = min(vocabulary.stop_ids, default=0)
        self.bos_token_id = None
        special, unused = set(vocabulary.control_ids), set(vocabulary.unused_ids)
        self.tokens = [
            # The byte 255 is in no text: such a token fits only where a grammar names it.
            b"\xff" + (piece or b"<%d>" % id) if id in special or id in unused else piece
            for id, piece in enumerate(vocabulary.pieces())
        ]
        self.special_token_ids = sorted(special | unused)
        self._of_byte = {p[0]: id for id, p in enumerate(self.tokens) if len(p) == 1}
        self._vocabulary = weakref.ref(vocabulary)  # what is kept for it must not keep it

    def __call__(self, text: bytes | str) -> list[int]:
        """The tokens of a text.

        They have to be those that the model knows: where only one text may follow, llguidance
        allows nothing but the first of them.
        """
        data = text.encode() if isinstance(text, str) else text
        vocabulary = self._vocabulary()
        assert vocabulary is not None, "a grammar outlives its vocabulary"
        # Some vocabularies put a blank before a text: behind a line break they do not.
        for before in ("", "\n"):
            ids = vocabulary.encode(before + data.decode("utf-8", "replace"))
            while ids and (said := b"".join(self.tokens[id] for id in ids)) != data:
                ids = ids[1:] if len(said) > len(data) else []
            if ids:
                return ids
        return [self._of_byte[b] for b in data if b in self._of_byte]


class _Fresh:
    """Compiled grammars that nothing was fed yet, to be copied; the latest ones.

    An agent sends the same tools with every request, and many of them compile for 0.1 s.
    """

    def __init__(self) -> None:
        self._matchers: OrderedDict[tuple[str, str], LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> LLMatcher | None:
        with self._lock:
            if key in self._matchers:
                self._matchers.move_to_end(key)
            return self._matchers.get(key)

    def put(self, key: tuple[str, str], matcher: LLMatcher) -> None:
        with self._lock:
            self._matchers[key] = matcher
            if len(self._matchers) > MAX_FRESH:
                self._matchers.popitem(last=False)


_tokenizers: WeakKeyDictionary[Vocabulary, tuple[LLTokenizer, _Fresh]] = WeakKeyDictionary()
_building = threading.Lock()


def _compiled(vocabulary: Vocabulary) -> tuple[LLTokenizer, _Fresh]:
    """What is kept for a vocabulary."""
    from llguidance import LLTokenizer

    with _building:
        if vocabulary not in _tokenizers:
            stops = sorted(vocabulary.stop_ids) or None
            pieces: Any = _Pieces(vocabulary)  # looks like what it takes, is no subclass
            _tokenizers[vocabulary] = LLTokenizer(pieces, eos_token=stops), _Fresh()
        return _tokenizers[vocabulary]
