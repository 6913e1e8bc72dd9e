"""`Guard`: access control, limits of size and time, and the headers of every answer.

A service on the loopback interface can be reached by any page that the browser on this machine shows. So a request
needs a ``Host`` that means this machine (against DNS rebinding), and a request that could change something must not
come from another origin (against forged requests). Beyond the loopback interface, a key is needed.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hashgrove.index.ids import CONTROL
from hashgrove.web.counters import Counters
from hashgrove.web.errors import BUSY, ServiceError, error_response
from hashgrove.web.limits import Limits

__all__ = ["HEADERS", "LOOPBACK", "Guard", "is_loopback"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})  # names of this machine
OPEN = frozenset({"/", "/health", "/docs", "/docs/style.css", "/openapi.json"})  # need no key
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
GONE = 499  # what metrics count where the client closed the connection, as other servers do
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Guard:
    """Checks each request before it reaches the application, and counts it.

    Parameters
    ----------
    app : ASGI application
    counters : Counters
    limits : Limits
        Size of a body, and time.
    key : str, optional
        The key that clients must send.
    hosts : set of str, optional
        Allowed names in the header ``Host``; None means any.
    log : function, optional
        Called with a line for each request that was answered, the access log.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        counters: Counters,
        limits: Limits,
        key: str | None = None,
        hosts: frozenset[str] | None = LOOPBACK,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.app, self.counters, self.limits, self.hosts, self.log = app, counters, limits, hosts, log
        self.key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await self.answer(self.app, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request by an application."""
        started = time.perf_counter()
        status: int | None = None
        n_bytes = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status, n_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                add_headers(message)
            n_bytes += len(message.get("body", b""))
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self.check(scope["method"], scope["path"], headers)
            async with asyncio.timeout(self.limits.seconds):
                await app(scope, self._limited(receive), send_guarded)
        except ServiceError as error:
            await error_response(error)(scope, receive, send_guarded)
        except ClientDisconnect:  # in the middle of its request: nobody to answer, and nothing that a log should tell
            status = GONE
        except TimeoutError:
            if status is None:
                message = f"The request took more than {self.limits.seconds:g} seconds."
                await error_response(ServiceError(503, message, headers=BUSY))(scope, receive, send_guarded)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "other")
            self.counters.request(scope["method"], route, status or 500, seconds)
            if self.log is not None:
                self.log(access_line(scope, status or 500, n_bytes, seconds))

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Raise `ServiceError` unless this request may be answered.

        >>> guard = Guard(None, counters=Counters(), limits=Limits(), key="secret")
        >>> guard.check("GET", "/info", {"host": "localhost:8000", "x-api-key": "secret"})
        >>> guard.check("GET", "/info", {"host": "rebound.example"})
        Traceback (most recent call last):
            ...
        hashgrove.web.errors.ServiceError: The 'Host' header must name this machine. Got 'rebound.example' instead.
        """
        if CONTROL.search(path):  # a pattern of a route would end before a line break
            raise ServiceError(400, "The path must have no control characters.")
        host = headers.get("host", "")
        if self.hosts is not None and _name_of(f"//{host}") not in self.hosts:
            raise ServiceError(403, f"The 'Host' header must name this machine. Got {host[:80]!r} instead.")
        if method not in SAFE:
            _check_origin(headers, host)
        if self.key is not None and path not in OPEN and not path.startswith("/page/"):
            self._check_key(headers)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.limits.body_bytes:
            raise self._too_large()

    def _check_key(self, headers: Mapping[str, str]) -> None:
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = headers.get("x-api-key") or (token.strip() if kind.lower() == "bearer" else "")
        if not hmac.compare_digest(given.encode("latin-1"), self.key or b""):
            message = "A key is needed, in the header 'X-Api-Key' or 'Authorization: Bearer'."
            raise ServiceError(401, message, headers={"WWW-Authenticate": "Bearer"})

    def _too_large(self) -> ServiceError:
        return ServiceError(413, f"The body must have at most {self.limits.body_bytes} bytes. Got more.", field="body")

    def _limited(self, receive: Receive) -> Receive:
        """``receive`` with a limit, for a body that does not declare its length."""
        n_bytes = 0

        async def receive_limited() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self.limits.body_bytes:
                raise self._too_large()
            return message

        return receive_limited


def access_line(scope: Scope, status: int, n_bytes: int, seconds: float) -> str:
    """A line of the access log: neither headers nor the query string, which may have secrets, are in it.

    >>> scope = {"client": ("127.0.0.1", 5), "method": "GET", "hashgrove.start": "/photos", "path": "/items/a b"}
    >>> access_line(scope, 200, 12, 0.0015)
    '127.0.0.1 "GET /photos/items/a%20b" 200 12 B 1.5 ms'
    """
    client = (scope.get("client") or ("-",))[0]
    path = quote(scope.get("hashgrove.start", "") + scope["path"], safe="/:@,~()!$*+;=&")
    return f'{client} "{scope["method"]} {path}" {status} {n_bytes} B {1000 * seconds:.1f} ms'


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def add_headers(message: MutableMapping[str, Any]) -> None:
    """Add the headers of every answer; what has no cache-control of its own must not be stored."""
    message["headers"] = [*message["headers"], *ENCODED]
    if not any(name == b"cache-control" for name, _ in message["headers"]):
        message["headers"].append((b"cache-control", b"no-store"))


def _name_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # no URL at all
        return None


def _is_of(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:  # no URL at all
        return False


def _check_origin(headers: Mapping[str, str], host: str) -> None:
    """Refuse requests of pages of another origin."""
    origin = headers.get("origin")
    if (origin is not None and not _is_of(origin, host)) or headers.get("sec-fetch-site", "same-origin") not in (
        "same-origin",
        "none",
    ):
        raise ServiceError(403, "Requests that pages of another origin make are refused.")
