"""The door: who may come in, with what, and a record of everyone who did."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.errors import SettingError
from octavo.server.encoding import encode
from octavo.server.faults import Fault
from octavo.server.record import Record
from octavo.server.resident import Tally

LOG = logging.getLogger("octavo.server")

OPEN_PATHS = frozenset({"/health", "/v1/health", "/", "/docs"})  # no key needed
OPEN_FOLDER = "/static/"  # the page's files: it has to be there to ask for the key
UNKNOWN_PATH = "other"  # so that invented paths do not fill the table of counts


@dataclass(frozen=True)
class Rules:
    """What the guard asks for.

    `hosts`: names that a request may give for this server, besides IP addresses and localhost.
    They are checked where there is no key: a page of another site that has its own name point
    here (DNS rebinding) gives itself away by it, and a key it would not know.
    """

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()  # pages of these may read answers
    max_body_bytes: int = 32 << 20
    body_seconds: float = 60.0  # in which a body has to arrive


def check_address(host: str, keys: Iterable[str]) -> None:
    """Refuse to be open to everyone.

    Raises:
        SettingError: other computers could reach the address, and no key is asked of them.
    """
    if not any(keys) and not _is_loopback(host):
        raise SettingError(
            f"{host} can be reached from other computers, and there is no key",
            "Set one with OCTAVO_API_KEY or --api-key-file, or serve on 127.0.0.1.",
        )


class Guard:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, rules: Rules, tally: Tally) -> None:
        self._app = app
        self._rules = rules
        self._tally = tally
        self._keys = [key.encode() for key in rules.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = scope["octavo.record"] = Record(scope["method"], scope["path"])
        if scope["method"] == "HEAD":  # as GET; the server of this application sends no body
            scope = {**scope, "method": "GET"}

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = headers["request-id"] = record.id
            await send(message)

        try:
            await self._pass(scope, receive, send_marked, record)
        except asyncio.CancelledError:
            record.finish = record.finish or "cancelled"
            raise
        except Exception:
            LOG.exception("request %s failed", record.id)
            if record.status:  # too late to say so: the connection has to break
                raise
            await _answer(send_marked, Fault(500, "the server failed; its log says more"), record)
        finally:
            self._count(scope, record)
            record.write()

    async def _pass(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        fault = self._refusal(scope)
        if fault is None and scope["method"] in ("POST", "PUT", "PATCH"):
            body = await _read(receive, self._rules)
            if body is None:
                return
            if isinstance(body, Fault):
                fault = body
            else:
                receive = _replay(body, receive)
        if fault is not None:
            await _answer(send, fault, record)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Fault | None:
        headers = Headers(scope=scope)
        if not self._keys and not self._knows(headers.get("host", "")):
            return Fault(403, "the Host header names no host of this server (--allowed-host)")
        is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_FOLDER)
        if self._keys and not is_open and not self._has_key(headers):
            return Fault(401, "a valid key is missing (Authorization: Bearer, or x-api-key)")
        if scope["method"] != "POST":
            return None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # other kinds a foreign page could send unasked
            return Fault(415, f"the content type is {kind!r}; send application/json")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            return Fault(400, f"the content length is {length!r}; send a whole number")
        if len(length) > 18 or int(length) > self._rules.max_body_bytes:
            return _too_large(self._rules.max_body_bytes)
        return None

    def _knows(self, host: str) -> bool:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        return name in ("", "localhost", *self._rules.hosts) or _is_address(name)

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = [headers.get("x-api-key", ""), token if scheme.lower() == "bearer" else ""]
        pairs = [(k, g.encode()) for k in self._keys for g in given]
        return any([hmac.compare_digest(key, text) for key, text in pairs])  # none is skipped

    def _count(self, scope: Scope, record: Record) -> None:
        path = getattr(scope.get("route"), "path", UNKNOWN_PATH)
        key = (path, record.status)
        self._tally.requests[key] = self._tally.requests.get(key, 0) + 1
        if cause := record.reuse_cause:
            self._tally.reuse_broken[cause] = self._tally.reuse_broken.get(cause, 0) + 1


async def _read(receive: Receive, rules: Rules) -> bytes | Fault | None:
    """The whole body; None if the client left before its end."""
    body, limit = bytearray(), rules.max_body_bytes
    try:
        async with asyncio.timeout(rules.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > limit:
                    return _too_large(limit)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return Fault(408, f"the body did not arrive within {rules.body_seconds:g} seconds")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once, and then what comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message


def _too_large(limit: int) -> Fault:
    return Fault(413, f"the body is larger than {limit >> 20} MiB (--max-body-mib)")


async def _answer(send: Send, fault: Fault, record: Record) -> None:
    body = encode(fault.body(record.path, record.id))
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    raw = [(k.encode(), v.encode()) for k, v in (headers | fault.headers).items()]
    await send({"type": "http.response.start", "status": fault.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    if not _is_address(host):
        return host == "localhost"
    return ipaddress.ip_address(host).is_loopback
