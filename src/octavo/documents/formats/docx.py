"""Word's .docx, with python-docx: paragraphs, headings, lists, tables and footnotes in order.

Pages are those that Word last drew, else those that begin at a break. Of tracked changes the new
text counts.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from octavo.documents.document import Page
from octavo.errors import UnsupportedError

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_NOTES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
# What was deleted or moved away, and the second form of what stands in a box.
_SKIPPED = frozenset({f"{_W}del", f"{_W}moveFrom", f"{_W}instrText", f"{_W}pPr", _FALLBACK})
_SIGNS = {f"{_W}tab": "\t", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_DRAWN = f"{_W}lastRenderedPageBreak"
_PAGE = "\f"  # in texts, until they are cut into pages


def read(data: bytes) -> Iterator[Page]:
    """Each page; one piece without a number if the file knows no pages."""
    try:
        import docx
    except ImportError as error:
        raise UnsupportedError(
            "Reading Word files needs the package python-docx",
            "Run: pip install 'octavo[documents]'",
        ) from error
    pieces = _Body(docx.Document(io.BytesIO(data))).text().split(_PAGE)
    if len(pieces) == 1:
        yield Page(None, pieces[0].strip())
        return
    for number, piece in enumerate(pieces, 1):
        yield Page(number, piece.strip())


class _Body:
    """The text of one document; `document` is python-docx's."""

    def __init__(self, document: Any) -> None:
        self._body = document.element.body
        self._styles = {style.style_id: (style.name or "").lower() for style in document.styles}
        self._notes = _notes(document)
        # Word notes where its pages began; other programs only know the breaks that were asked for.
        self._is_drawn = next(self._body.iter(_DRAWN), None) is not None

    def text(self) -> str:
        blocks = [*self._blocks(self._body)]
        return "\n\n".join(block for block in blocks if block.strip(" \n"))

    def _blocks(self, parent: Any) -> Iterator[str]:
        for element in parent:
            if element.tag == f"{_W}p":
                yield self._paragraph(element)
            elif element.tag == f"{_W}tbl":
                yield "\n".join(self._rows(element))
            elif element.tag not in _SKIPPED:  # content controls and inserted parts hold blocks
                inner = element.find(f"{_W}sdtContent")
                yield from self._blocks(element if inner is None else inner)

    def _rows(self, table: Any) -> Iterator[str]:
        for row in table.iter(f"{_W}tr"):
            cells = row.iterchildren(f"{_W}tc")
            yield " | ".join(" ".join(self._blocks(cell)).replace("\n", " ") for cell in cells)

    def _paragraph(self, paragraph: Any) -> str:
        used: list[str] = []
        text = "".join(self._runs(paragraph, used))
        mark = self._mark(paragraph)
        head, page, rest = text.rpartition(_PAGE)  # a break may come before the words
        if mark and text.strip():
            text = f"{head}{page}{mark}{rest.lstrip()}" if not head.strip() else f"{mark}{text}"
        notes = [f"[^{id}]: {self._notes[id]}" for id in used if id in self._notes]
        return "\n\n".join([text, *notes])

    def _mark(self, paragraph: Any) -> str:
        style = paragraph.find(f"{_W}pPr/{_W}pStyle")
        name = self._styles.get(style.get(f"{_W}val"), "") if style is not None else ""
        if name == "title":
            return "# "
        if name.startswith("heading") and name[-1:].isdecimal():
            return "#" * min(6, int(name[-1])) + " "
        is_item = paragraph.find(f"{_W}pPr/{_W}numPr") is not None or name.startswith("list")
        return "- " if is_item else ""

    def _runs(self, element: Any, used: list[str]) -> Iterator[str]:
        for child in element:
            if child.tag in _SKIPPED:
                continue
            if child.tag == f"{_W}t":
                yield (child.text or "").replace(_PAGE, " ")
            elif child.tag == _DRAWN:
                yield _PAGE
            elif child.tag == f"{_W}br":
                is_page = child.get(f"{_W}type") == "page"
                yield "\n" if not is_page else "" if self._is_drawn else _PAGE
            elif child.tag == f"{_W}footnoteReference":
                used.append(child.get(f"{_W}id"))
                yield f"[^{used[-1]}]"
            else:
                yield _SIGNS.get(child.tag, "")
                yield from self._runs(child, used)


def _notes(document: Any) -> dict[str, str]:
    """Footnotes by their ids."""
    from docx.oxml.parser import parse_xml

    parts = [rel.target_part for rel in document.part.rels.values() if rel.reltype == _NOTES]
    found = {}
    for note in parse_xml(parts[0].blob) if parts else ():
        words = "".join(t.text or "" for t in note.iter(f"{_W}t"))
        found[note.get(f"{_W}id")] = words.strip()
    return found
