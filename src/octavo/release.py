"""Which version of Octavo this is."""

from __future__ import annotations


def release() -> str:
    """As "0.1.0"; "" where it runs from its source folder, without having been installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow, and often not needed

    try:
        return version("octavo")
    except PackageNotFoundError:
        return ""


def program() -> str:
    """The program with its version: "octavo 0.1.0"."""
    return f"octavo {release()}".rstrip()
