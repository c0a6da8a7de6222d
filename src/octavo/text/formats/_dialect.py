"""What a dialect is to those who use it: how calls open, a parser, the rules of a grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from octavo.record import dataclass
from octavo.text.formats._declared import Tools
from octavo.text.formats._lark import Lark
from octavo.text.split import ContentParser


class ParserMaker(Protocol):
    """Makes a parser of one answer; `in_parts`: calls are shown while they are written."""

    def __call__(self, tools: Tools, in_parts: bool = False) -> ContentParser: ...


@dataclass(frozen=True)
class Dialect:
    """One way to write calls.

    Attributes:
        name: stem of its module.
        opening: the text that begins a call; from behind it on the grammar holds.
        make_parser: declared tools -> a parser of the answer.
        add_rules: writes a rule `calls` into the grammar: what may follow `opening`, up to the
            end of the answer. True allows further calls after the first.
        only_first: the opening counts only as the beginning of an answer.
    """

    name: str
    opening: str
    make_parser: ParserMaker
    add_rules: Callable[[Lark, Tools, bool], None]
    only_first: bool = False
