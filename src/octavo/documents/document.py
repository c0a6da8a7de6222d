"""What a file said: its pages, and the limits it was read within."""

from __future__ import annotations

from octavo.record import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds for a file and for the process that reads it. A longer text is cut, not refused."""

    max_bytes: int = 64 << 20
    max_characters: int = 8_000_000
    max_pages: int = 10_000
    seconds: float = 60.0
    memory_bytes: int = 1 << 30


@dataclass(frozen=True)
class Page:
    """A piece of a text. `number` counts from 1; None: the format knows no pages."""

    number: int | None
    text: str


@dataclass(frozen=True)
class Document:
    """A file that was read. `is_cut`: it was longer than the limits allow."""

    name: str
    format: str  # stem of its module in `formats`
    pages: tuple[Page, ...]
    is_cut: bool = False

    @property
    def n_pages(self) -> int | None:
        """Numbered pages; None: the format knows none."""
        numbers = [page.number for page in self.pages if page.number is not None]
        return len(numbers) or None

    @property
    def text(self) -> str:
        """All of it. A line `[page N]` stands before each page, so that answers can refer to it."""
        return "\n\n".join(
            page.text if page.number is None else f"[page {page.number}]\n{page.text}"
            for page in self.pages
        )
