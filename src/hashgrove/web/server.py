"""The server process: binds the port, reports its address, and stops gracefully."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hashgrove.storage.formats import FileError
from hashgrove.web.app import create_app
from hashgrove.web.collection import Collection
from hashgrove.web.guard import LOOPBACK, is_loopback

__all__ = ["run"]

MAX_HEAD = 2**20  # bytes of a request before its body; a chunk that is read has up to 256 kB
CONNECTIONS = 1024
STOP_SECONDS = 10  # for requests that are being answered when the service is stopped


class _Protocol(HttpToolsProtocol):
    """HTTP with a limit on the size of the request head, which the parser does not have."""

    _n_head = 0

    def data_received(self, data: bytes) -> None:
        """Parse data from the client, or close the connection if the head is too long."""
        self._n_head += len(data)
        if self._n_head > MAX_HEAD:
            self.transport.close()
            return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Stop counting; the body has a limit of its own."""
        self._n_head = -(2**62)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Start counting again, for the next request."""
        self._n_head = 0
        super().on_message_complete()


class _Server(uvicorn.Server):
    """A server that calls a function when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen and call the function."""
        await super().startup(sockets)
        if self.started:
            self._ready()


def run(
    collection: Collection,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve a collection until the process gets SIGINT (Ctrl+C) or SIGTERM; open requests are answered first.

    Parameters
    ----------
    collection : Collection
    host, port
        Address to listen at; port 0 means any free one.
    key : str, optional
        The key that clients must send.
    ready : function
        Called with the URL of the page when the service is ready.
    """
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}/"
    hosts = LOOPBACK | {host.lower()} if is_loopback(host) else None
    config = uvicorn.Config(
        create_app(collection, key=key, hosts=hosts),
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on the address of a client
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn passes the signal on when it has ended
    try:
        _Server(config, lambda: ready(url)).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # this is how it is stopped
    finally:
        signal.signal(signal.SIGTERM, before)
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise FileError(f"{host}:{port}: cannot be listened to: {error.strerror}") from error
    return listening
