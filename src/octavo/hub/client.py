"""HTTP for downloads: redirects are checked, tokens stay with their host, dead hosts fail fast.

The standard library is enough for GET requests and keeps the base install small. What it lacks is
added here: a time limit for name look-up and connecting that is shorter than that for data, and
a check of the address that is really connected to, so that no redirect and no name server can
lead a download to a machine on the local network.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, Any

from octavo.errors import DownloadError
from octavo.record import dataclass

_USER_AGENT = "octavo"
_MAX_REDIRECTS = 6
_MAX_JSON_BYTES = 32 << 20


class HttpError(DownloadError):
    """An answer other than success, or none. `http_status` is 0 where none came or it broke off."""

    def __init__(self, message: str, http_status: int = 0, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.retry_after_s = retry_after_s

    @property
    def is_passing(self) -> bool:
        """Whether the source asks to try the same request a little later."""
        return self.http_status in (408, 425, 429) or self.http_status >= 500


class RefusedAddressError(DownloadError):
    """A redirect or a name leads to an address that downloads must not touch."""


@dataclass(frozen=True)
class Client:
    """How long to wait and how hard to try. One instance may be used by several threads.

    `attempts` counts those in a row that brought no new bytes; `workers` files come at a time.
    """

    connect_s: float = 5.0
    read_s: float = 30.0
    attempts: int = 5
    pause_s: float = 1.0
    workers: int = 4

    def get(self, url: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
        """Open a GET request; the caller closes the answer.

        Raises:
            HttpError: no connection, or a status of 400 and more.
            RefusedAddressError: a redirect to a private or link-local address.
            DownloadError: not an http(s) address.
        """
        parts = _parsed(url)
        request = urllib.request.Request(
            url, headers={"User-Agent": _USER_AGENT, **(headers or {})}
        )
        opener = _opener(self, parts.hostname or "")
        host = parts.hostname
        try:
            answer = opener.open(request, timeout=self.read_s)
        except urllib.error.HTTPError as error:
            error.close()
            raise HttpError(
                f"{host} answered {error.code} {error.reason}",
                error.code,
                _seconds(error.headers.get("Retry-After", "")),
            ) from None
        except RefusedAddressError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise HttpError(f"{host} cannot be reached: {_reason(error)}") from error
        return answer  # type: ignore[no-any-return]

    def get_json(self, url: str, headers: dict[str, str] | None = None) -> tuple[Any, str]:
        """The parsed answer and the address of the next page ("" at the end)."""
        host = _parsed(url).hostname
        with self.get(url, headers) as answer:
            try:
                body = answer.read(_MAX_JSON_BYTES)
                found = json.loads(body)
            except (OSError, http.client.HTTPException) as error:
                raise HttpError(f"{host} stopped answering: {_reason(error)}") from error
            except ValueError:
                raise DownloadError(
                    f"{host} sent something that is not JSON: a log-in page of a network, perhaps"
                ) from None
            return found, _next_page(answer.headers.get("Link", ""), url)


def _parsed(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and not parts.username
        _ = parts.port
    except ValueError:
        good = False
    # A backslash or a space is read differently by different parsers.
    if not good or any(c in url for c in "\\ \t\r\n"):
        raise DownloadError(f"{url!r} is not an address that models can be fetched from")
    return parts


def _next_page(link: str, url: str) -> str:
    for part in link.split(","):
        if 'rel="next"' in part:
            return urllib.parse.urljoin(url, part.split(";")[0].strip().strip("<>"))
    return ""


def _seconds(text: str) -> float:
    return min(float(text), 60.0) if text.isdecimal() else 0.0


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        error = inner
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "its name is not known here (no network, or blocked)"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# Connections


def _resolve(host: str, port: int, limit_s: float) -> list[Any]:
    """Addresses of a host. The system's look-up has no time limit, so it runs in a thread."""
    box: list[Any] = []

    def look_up() -> None:
        try:
            box.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            box.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not box:
        raise TimeoutError("name look-up took too long")
    if isinstance(box[0], OSError):
        raise box[0]
    return list(box[0])


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return (mapped or ip).is_global and not (mapped or ip).is_multicast


def _check_address(host: str, address: str, trusted_host: str) -> None:
    if host != trusted_host and not _is_public(address):
        raise RefusedAddressError(
            f"{trusted_host} leads on to {host} ({address}), an address on the local network; "
            "this is not followed",
            "If the network demands a log-in page, log in first. Else do not use this source.",
        )


def _connect(client: Client, host: str, port: int, trusted_host: str) -> socket.socket:
    """Connect to the first address that answers. Only the host that the user named may be local;
    the address that is checked is the one connected to."""
    last: OSError = OSError("no address")
    for family, kind, protocol, _, address in _resolve(host, port, client.connect_s):
        _check_address(host, address[0], trusted_host)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(client.connect_s)
            sock.connect(address)
        except OSError as error:
            sock.close()
            last = error
        else:
            sock.settimeout(client.read_s)
            return sock
    raise last


def _opener(client: Client, trusted_host: str) -> urllib.request.OpenerDirector:
    """Only http and https; `build_opener` would add its own, unchecked, and files and FTP."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _plain_handler(client, trusted_host),
        _tls_handler(client, trusted_host),
        _Redirects(trusted_host),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _plain_handler(client: Client, trusted_host: str) -> urllib.request.HTTPHandler:
    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = _connect(client, self.host, self.port, trusted_host)

    class PlainHttp(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            # A proxy that the user set is trusted, and does the look-up itself.
            kind = http.client.HTTPConnection if req.has_proxy() else Connection
            return self.do_open(kind, req)

    return PlainHttp()


@functools.cache
def _tls() -> ssl.SSLContext:
    """The system's certificates; loading them takes 30 ms."""
    return ssl.create_default_context()


def _tls_handler(client: Client, trusted_host: str) -> urllib.request.BaseHandler:
    class Connection(http.client.HTTPSConnection):
        def connect(self) -> None:
            plain = _connect(client, self.host, self.port, trusted_host)
            self.sock = _tls().wrap_socket(plain, server_hostname=self.host)

    class Https(urllib.request.AbstractHTTPHandler):
        https_request = urllib.request.AbstractHTTPHandler.do_request_

        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            if getattr(req, "_tunnel_host", None):
                return self.do_open(http.client.HTTPSConnection, req, context=_tls())
            return self.do_open(Connection, req)

    return Https()


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _MAX_REDIRECTS

    def __init__(self, trusted_host: str) -> None:
        self.trusted_host = trusted_host

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        try:
            self.check(req, newurl)
        except DownloadError:
            fp.close()
            raise
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and following.host != req.host:
            following.remove_header("Authorization")
        return following

    def check(self, req: urllib.request.Request, newurl: str) -> None:
        target = _parsed(newurl)
        if urllib.parse.urlsplit(req.full_url).scheme == "https" and target.scheme != "https":
            raise RefusedAddressError(
                f"{req.host} leads on to {newurl}, which is not encrypted; this is not followed"
            )
        host = target.hostname or ""
        with contextlib.suppress(ValueError):
            # Behind a proxy the address is not ours to look up, but a plain number is seen here.
            ipaddress.ip_address(host)
            _check_address(host, host, self.trusted_host)
