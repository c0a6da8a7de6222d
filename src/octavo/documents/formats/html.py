"""Web pages: what a reader would see, with headings, lists and tables as Markdown marks them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from octavo.documents.document import Page
from octavo.documents.formats import text

_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "math", "object", "select"})
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "dd", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "li"),
        *("main", "nav", "ol", "p", "pre", "section", "table", "tbody", "tfoot", "thead"),
        *("title", "tr", "ul"),
    )
)
_HEADING = re.compile(r"h([1-6])$")
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w-]{1,40})", re.IGNORECASE)
_CHARSET_BYTES = 2048


def read(data: bytes) -> Iterator[Page]:
    """The visible text as one piece."""
    parser = _Reader()
    parser.feed(_decode(data))
    parser.close()
    yield Page(None, parser.text())


def _decode(data: bytes) -> str:
    named = _CHARSET.search(data[:_CHARSET_BYTES])
    if named is not None and not data.startswith(b"\xef\xbb\xbf"):
        try:
            return data.decode(named[1].decode("ascii"), "replace")
        except LookupError:  # a name that means nothing
            pass
    return text.decode(data)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._unseen = 0  # how deep in what is not shown
        self._in_pre = 0
        self._is_first_cell = True

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        elif heading := _HEADING.match(tag):
            self._parts.append("\n\n" + "#" * int(heading[1]) + " ")
        elif tag == "br":
            self._parts.append("\n")
        elif tag in ("td", "th"):
            self._parts.append("" if self._is_first_cell else " | ")
            self._is_first_cell = False
        elif tag in _BLOCKS:
            self._begin_block(tag)

    def _begin_block(self, tag: str) -> None:
        self._parts.append("\n- " if tag == "li" else "\n" if tag == "tr" else "\n\n")
        self._is_first_cell = True
        self._in_pre += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif tag == "pre":
            self._in_pre = max(0, self._in_pre - 1)
        if _HEADING.match(tag) or (tag in _BLOCKS and tag not in ("li", "tr")):
            self._parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._parts.append(data if self._in_pre else re.sub(r"\s+", " ", data))

    def text(self) -> str:
        """What was read, without empty lines in a row."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        lines = [line if line.startswith("    ") else line.lstrip(" ") for line in lines]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
