"""Filling in the middle: the prompt for a text that is missing between two others.

Only models whose vocabulary has tokens for it were trained to do so.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import UnsupportedError
from octavo.record import dataclass
from octavo.text.tokenizer import Tokenizer

# (before the prefix, before the suffix, before what is missing), by family.
_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite, SmolLM
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
)
_SEPARATORS = ("<|file_sep|>", "<file_sep>", "<|file_separator|>")


@dataclass(frozen=True)
class Infill:
    """Ids of the tokens; `file`: stands before the name of another file, if there is one."""

    prefix: int
    suffix: int
    middle: int
    file: int | None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Infill:
        """Those of a vocabulary.

        Raises:
            UnsupportedError: it has none.
        """
        for names in _NAMES:
            ids = [tokenizer.token_id(name) for name in names]
            prefix, suffix, middle = ids
            if prefix is not None and suffix is not None and middle is not None:
                files = (tokenizer.token_id(name) for name in _SEPARATORS)
                return cls(prefix, suffix, middle, next((f for f in files if f is not None), None))
        raise UnsupportedError(
            "This model was not made to fill in the middle of a text: its vocabulary has no tokens "
            "for it",
            "Leave the suffix out.",
        )

    def prompt(
        self,
        tokenizer: Tokenizer,
        before: str,
        after: str,
        *,
        begun: str = "",
        files: Sequence[tuple[str, str]] = (),
    ) -> list[int]:
        """Ids that ask for what is missing between `before` and `after`.

        `begun`: how the missing text begins. `files`: (name, text) of others that may help.
        """
        ids: list[int] = []
        for name, text in files:
            if self.file is not None:
                ids += [self.file, *tokenizer.encode(f"{name}\n{text}\n")]
            else:
                ids += tokenizer.encode(f"{text}\n\n")
        ids += [self.prefix, *tokenizer.encode(before)]
        ids += [self.suffix, *tokenizer.encode(after)]
        return tokenizer.with_bos([*ids, self.middle, *tokenizer.encode(begun)])
