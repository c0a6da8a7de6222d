"""The reading process: a line of JSON and a file on standard input -> JSON on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any

from octavo import registry
from octavo.documents.document import Page
from octavo.documents.sniff import format_of
from octavo.errors import FileFormatError, OctavoError


def main() -> None:
    """Answer one question of `reading.read`."""
    asked = json.loads(sys.stdin.buffer.readline())
    answer = answer_to(asked, sys.stdin.buffer.read())
    sys.stdout.buffer.write(json.dumps(answer).encode())


def answer_to(asked: dict[str, Any], data: bytes) -> dict[str, Any]:
    """The pages of a file, or the error that it is, as `reading.document_of` takes them."""
    try:
        return _read(asked, data)
    except OctavoError as error:
        return _fault(error)
    except Exception as error:  # parsers fail on damaged files in more ways than can be listed
        return _fault(
            FileFormatError(f"the file is damaged ({error})", "Open it and save it again.")
        )


def _read(asked: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Pages up to the limits; `is_cut` if there are more."""
    stem = format_of(asked["name"], data)
    room, is_cut = asked["max_characters"], False
    pages: list[tuple[int | None, str]] = []
    found: Page
    for found in registry.find("documents.formats", stem, "file format").read(data):
        if room <= 0 or len(pages) >= asked["max_pages"]:
            is_cut = True
            break
        text = found.text.encode("utf-8", "replace").decode()  # no halves of surrogate pairs
        is_cut = is_cut or len(text) > room
        pages.append((found.number, text[:room]))
        room -= len(text)
    return {"format": stem, "pages": pages, "is_cut": is_cut}


def _fault(error: OctavoError) -> dict[str, str]:
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint}


if __name__ == "__main__":
    main()
