"""The server process: binds the port, reports its address, and stops gracefully."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import uvicorn

from hashgrove.storage.formats import FileError
from hashgrove.web.app import create_app
from hashgrove.web.collection import Collection
from hashgrove.web.connections import Connection, Door
from hashgrove.web.guard import LOOPBACK, is_loopback
from hashgrove.web.several import RootPath, Several

__all__ = ["Served", "listen", "run", "url_of"]

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


class Served(NamedTuple):
    """An index that is served.

    Attributes
    ----------
    collection : Collection
    name : str
        What its paths begin with, if there are several.
    reopen : function, optional
        Opens the collection anew, when another process has put codes of another model in its place.
    """

    collection: Collection
    name: str = ""
    reopen: Callable[[], Collection] | None = None


def run(
    *served: Served,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    connections_per_address: int | None = PER_ADDRESS,
    host_names: Sequence[str] = (),
    root_path: str = "",
    proxy: str | None = None,
    access_log: bool = False,
    listening: socket.socket | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve indexes until the process gets SIGINT (Ctrl+C) or SIGTERM; open requests are answered first.

    Parameters
    ----------
    *served : Served
    host, port
        Address to listen at; port 0 means any free one.
    key : str, optional
        The key that clients must send.
    connections_per_address : int, optional
        Connections of one address; None means no limit, as behind a proxy, where all clients have the same one.
    host_names : sequence of str
        Further names that the header ``Host`` may have on the loopback interface, such as that of a proxy.
    root_path : str
        The start of the paths under which a proxy shows the service, such as ``/codes``.
    proxy : str, optional
        The address of a proxy, whose header ``X-Forwarded-For`` is believed.
    access_log : bool
        Whether a line is written to the standard error stream for each request.
    listening : socket, optional
        Instead of ``host`` and ``port``; see `listen`.
    ready : function
        Called with the URL of the page when the service is ready.
    """
    hosts = LOOPBACK | {name.lower() for name in (host, *host_names)} if is_loopback(host) else None
    common: dict[str, Any] = {"key": key, "hosts": hosts, "access_log": _log_access if access_log else None}
    names = [one.name for one in served] if len(served) > 1 else []
    guards = {one.name: create_app(one.collection, reopen=one.reopen, names=names, **common) for one in served}
    app: Any = Several(guards) if names else next(iter(guards.values()))
    listening = listening or listen(host, port)
    config = uvicorn.Config(
        RootPath(app, root_path) if root_path else app,
        http=partial(Connection, door=Door(room_for(CONNECTIONS), connections_per_address)),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=proxy is not None,  # any other client could choose its address
        forwarded_allow_ips=proxy,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn passes the signal on when it has ended
    try:
        _Server(config, lambda: ready(url_of(listening, host))).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # this is how it is stopped
    finally:
        signal.signal(signal.SIGTERM, before)
        listening.close()


def _log_access(line: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}", file=sys.stderr, flush=True)


def url_of(listening: socket.socket, host: str) -> str:
    """The URL of the page."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


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


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise FileError(f"{host}:{port}: cannot be listened to: {error.strerror}") from error
    return listening
