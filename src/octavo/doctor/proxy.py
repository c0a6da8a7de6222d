"""Proxies that stand between a client and the server on the same machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from octavo.doctor._facts import Facts
from octavo.doctor._finding import Finding


def check(facts: Facts) -> Finding:
    """A proxy for http that also gets 127.0.0.1 keeps browsers and clients from connecting."""
    named = {scheme: url for scheme, url in facts.proxies.items() if scheme != "no"}
    if not named:
        return Finding("ok", "no proxy is set")
    words = ", ".join(f"{scheme} {_without_secrets(url)}" for scheme, url in named.items())
    if facts.bypasses_proxy or not named.keys() & {"http", "all"}:
        return Finding("ok", f"{words}; not used for this machine itself")
    return Finding(
        "wrong",
        f"{words} would be used even for 127.0.0.1, so clients here cannot reach `octavo serve`",
        "Set NO_PROXY=127.0.0.1,localhost.",
    )


def _without_secrets(url: str) -> str:
    """A proxy's address may hold a password."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    return parts.netloc.rpartition("@")[2] or "?"
