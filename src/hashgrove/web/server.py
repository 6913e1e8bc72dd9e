"""The server process: binds the port, reports its address, and stops gracefully."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from functools import partial

import uvicorn

from hashgrove.storage.formats import FileError
from hashgrove.web.app import create_app
from hashgrove.web.collection import Collection
from hashgrove.web.connections import Connection, Door
from hashgrove.web.guard import LOOPBACK, is_loopback

__all__ = ["run"]

CONNECTIONS, PER_ADDRESS = 1024, 256
SPARE_FILES = 256  # that may be open besides the connections
STOP_SECONDS = 10  # for requests that are being answered when the service is stopped


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
    connections_per_address: int | None = PER_ADDRESS,
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
    connections_per_address : int, optional
        Connections of one address; None means no limit, as behind a proxy, where all clients have the same one.
    ready : function
        Called with the URL of the page when the service is ready.
    """
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}/"
    hosts = LOOPBACK | {host.lower()} if is_loopback(host) else None
    config = uvicorn.Config(
        create_app(collection, key=key, hosts=hosts),
        http=partial(Connection, door=Door(room_for(CONNECTIONS), connections_per_address)),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could choose its address
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


def room_for(connections: int) -> int:
    """The number of connections that the process may have, at most so many; its limit of open files is raised for them.

    >>> room_for(100)
    100
    """
    try:
        import resource
    except ImportError:  # Windows
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return (
        connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - min(SPARE_FILES, soft // 2)))
    )


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
