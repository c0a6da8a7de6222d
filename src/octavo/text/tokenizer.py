"""Text to ids and back, from the metadata of a GGUF file alone.

Decoding needs no encoder: what encoding needs is made at the first `encode`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from octavo.errors import RequestError, UnsupportedError
from octavo.gguf.meta import Metadata
from octavo.text import pretokenizers
from octavo.text.bpe import BytePairEncoder
from octavo.text.byte_alphabet import unspell, unspell_all
from octavo.text.special import SpecialTexts
from octavo.text.spm import SPACE, PieceEncoder
from octavo.text.vocabulary import BYTE, UNUSED, USER_DEFINED, Vocabulary, string_list

_MODELS = ("gpt2", "llama")


class Tokenizer:
    """One model's vocabulary with its rules. Immutable; safe to share between threads."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._model = metadata.get("tokenizer.ggml.model", str)
        if self._model not in _MODELS:
            raise UnsupportedError(
                f"The file's tokenizer is of the kind {self._model!r}",
                f"Supported are: {', '.join(_MODELS)} (byte-pair and SentencePiece).",
            )
        self._vocabulary = Vocabulary.from_metadata(metadata)
        is_spm = self._model == "llama"
        rule = None if is_spm else self._pretokenizer
        self.add_bos = metadata.get(
            "tokenizer.ggml.add_bos_token", bool, rule.add_bos if rule else True
        )
        self.add_eos = metadata.get("tokenizer.ggml.add_eos_token", bool, False)
        #: A space is put before text, and the first one taken away when decoding.
        self.space_prefix = is_spm and metadata.get("tokenizer.ggml.add_space_prefix", bool, True)
        self.clean_spaces = rule is not None and rule.clean_spaces

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Tokenizer:
        """The tokenizer that the file describes.

        Raises:
            UnsupportedError: a kind or a pre-tokenizer that this version does not know.
            FileFormatError: keys are absent or contradict each other.
        """
        return cls(metadata)

    @classmethod
    def prepared(cls, metadata: Metadata) -> Tokenizer:
        """The same with all that encoding needs; otherwise the first text waits for it."""
        made = cls(metadata)
        _ = made._encoder, made._user_texts, made._parsed_texts, made.stop_ids, made.control_ids
        return made

    @property
    def vocab_size(self) -> int:
        """Number of tokens, unused ones too."""
        return len(self._vocabulary.texts)

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.named.get("bos")

    @property
    def eos_id(self) -> int | None:
        return self._vocabulary.named.get("eos")

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end an answer: eos, eot, eom and the known texts of other families."""
        return self._vocabulary.stop_ids

    @property
    def control_ids(self) -> frozenset[int]:
        """Tokens that steer the model; `skip_special` leaves them out."""
        return self._vocabulary.control_ids

    @cached_property
    def control_texts(self) -> SpecialTexts:
        """The texts that no user's words may turn into tokens."""
        return self._special_texts(self.control_ids)

    @cached_property
    def unused_ids(self) -> frozenset[int]:
        """Padding of the vocabulary; the sampler never chooses these."""
        return frozenset(np.flatnonzero(self._vocabulary.types == UNUSED).tolist())

    def token_id(self, text: str) -> int | None:
        """Id of the token that the file spells so, or None."""
        return self._vocabulary.find([text]).get(text)

    def token_text(self, token: int) -> str:
        """The token as the file spells it: "Ġhello", "▁hello", "<|im_end|>".

        Raises:
            RequestError: no such id.
        """
        if not 0 <= token < self.vocab_size:
            raise RequestError(
                f"Token id {token} does not exist", f"Ids run from 0 to {self.vocab_size - 1}."
            )
        return self._vocabulary.texts[token]

    def piece(self, token: int) -> bytes:
        """What the token stands for. Not always whole characters. Control tokens: their text.

        Raises:
            RequestError: no such id.
        """
        text = self.token_text(token)
        kind = self._vocabulary.types[token]
        if kind == UNUSED:
            return b""
        if kind == USER_DEFINED or token in self.control_ids:
            return text.encode("utf-8", "surrogateescape")
        if self._model == "gpt2":
            return unspell(text)
        if kind == BYTE and re.fullmatch("<0x[0-9A-F]{2}>", text):
            return bytes([int(text[3:5], 16)])
        return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")

    def pieces(self) -> list[bytes]:
        """`piece` of every token, all at once: much faster than one by one."""
        texts = list(self._vocabulary.texts)
        if self._model == "gpt2":
            pieces = unspell_all(texts)
        else:
            pieces = [t.replace(SPACE, " ").encode("utf-8", "surrogateescape") for t in texts]
        odd = np.flatnonzero(np.isin(self._vocabulary.types, (UNUSED, USER_DEFINED, BYTE)))
        for token in {*odd.tolist(), *self.control_ids}:
            pieces[token] = self.piece(token)
        return pieces

    def encode(
        self,
        text: str,
        *,
        parse_special: bool = False,
        add_special: bool = False,
        unmark: str = "",
    ) -> list[int]:
        """Ids of `text`. Half surrogates count as U+FFFD.

        `parse_special`: texts of control tokens become those tokens; never for words of a user.
        `add_special`: BOS in front and EOS at the end where the model wants them and they are
        not there already. `unmark` is taken out of the text after special texts were found: put
        inside of one, it keeps it plain.
        """
        matcher = self._parsed_texts if parse_special else self._user_texts
        ids: list[int] = []
        for part in matcher.split(_valid(text)):
            if isinstance(part, int):
                ids.append(part)
                continue
            plain = part.replace(unmark, "") if unmark else part
            ids += self._encoder.encode(" " + plain if self.space_prefix else plain)
        return self._with_eos(self.with_bos(ids)) if add_special else ids

    def with_bos(self, ids: list[int]) -> list[int]:
        """`ids` with BOS in front, if the model wants one and it is not there."""
        wanted = self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]
        return [self.bos_id, *ids] if wanted else ids  # type: ignore[list-item]

    def decode(
        self, ids: Iterable[int], *, skip_special: bool = False, clean_spaces: bool = False
    ) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD.

        `skip_special` leaves control tokens out. `clean_spaces` does what some vocabularies'
        own detokenisers do (" 's" loses its space); text that was streamed never had it done.

        Raises:
            RequestError: an id does not exist.
        """
        hidden = self.control_ids if skip_special else frozenset()
        pieces = [self.piece(token) for token in ids if token not in hidden]
        if self.space_prefix and pieces:
            pieces[0] = pieces[0].removeprefix(b" ")
        text = b"".join(pieces).decode("utf-8", "replace")
        return clean(text) if clean_spaces else text

    def _with_eos(self, ids: list[int]) -> list[int]:
        wanted = self.add_eos and self.eos_id is not None and ids[-1:] != [self.eos_id]
        return [*ids, self.eos_id] if wanted else ids  # type: ignore[list-item]

    @cached_property
    def _pretokenizer(self) -> pretokenizers.PreTokenizer:
        return pretokenizers.load(self._metadata.get("tokenizer.ggml.pre", str, "default"))

    @cached_property
    def _encoder(self) -> BytePairEncoder | PieceEncoder:
        if self._model == "llama":
            return PieceEncoder(self._vocabulary)
        merges = string_list(self._metadata, "tokenizer.ggml.merges")
        return BytePairEncoder(self._vocabulary.texts, merges, self._pretokenizer)

    @cached_property
    def _user_texts(self) -> SpecialTexts:
        return self._special_texts(self._vocabulary.user_defined_ids)

    @cached_property
    def _parsed_texts(self) -> SpecialTexts:
        return self._special_texts(self._vocabulary.user_defined_ids | self.control_ids)

    def _special_texts(self, ids: frozenset[int]) -> SpecialTexts:
        return SpecialTexts(self._vocabulary.ids_by_text(ids))


def _valid(text: str) -> str:
    """`text` with surrogate pairs joined and half ones replaced, so that it has a UTF-8 form."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean(text: str) -> str:
    """Take away the space before sentence signs and English contractions."""
    text = re.sub(" (?=[.?!,])", "", text).replace(" ' ", "'")
    return re.sub(" (?=n't|'(?:m|s|ve|re))", "", text)
