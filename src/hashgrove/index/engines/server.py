"""URLs of engines that are servers: ``scheme://user:password@host:port/database``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote

from hashgrove.runtime.credentials import hide_credentials
from hashgrove.runtime.parameters import Integer, ParameterError

__all__ = ["TIME_LIMITS", "Server", "limits_of", "shown_url"]

# options of every engine that is a server: seconds to connect, and seconds for one statement or request
TIME_LIMITS = {"connect_timeout": Integer(1, 3600), "timeout": Integer(1, 10**6)}
CONNECT_SECONDS, SECONDS = 10, 60


@dataclass(frozen=True)
class Server:
    """The parts of the URL of a server; texts are empty where it has none.

    The host may be a folder with a Unix socket, percent-encoded.

    >>> from urllib.parse import urlsplit
    >>> Server.of(urlsplit("postgresql://ann@db.example/photos"), port=5432, secret="PGPASSWORD")
    Server(host='db.example', port=5432, user='ann', database='photos')
    >>> Server.of(urlsplit("postgresql://ann@%2Frun%2Fpostgresql/photos"), port=5432, secret="PGPASSWORD").is_local
    True
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str

    @property
    def is_local(self) -> bool:
        """Whether the host is a folder with a Unix socket."""
        return self.host.startswith("/")

    @classmethod
    def of(cls, url: SplitResult, *, port: int, secret: str) -> Server:
        """Read a URL. ``port`` is the usual one; the environment variable ``secret`` has the password if it has not."""
        try:
            given = url.port
        except ValueError:
            given = 0
        database = unquote(url.path.removeprefix("/"))
        # a folder keeps its capitals, which `hostname` has not
        folder = unquote(url.netloc.rpartition("@")[2].partition(":")[0])
        host = folder if folder.startswith("/") else url.hostname
        if not host or "\0" in host or given == 0 or "\0" in database or "/" in database:
            raise ParameterError(
                "url",
                f"must be {url.scheme}://user@host:port/database, or user:password@, with a port from 1 to "
                f"65535. Got {shown_url(url)!r} instead.",
            )
        password = os.environ.get(secret, "") if url.password is None else unquote(url.password)
        return cls(host, given or port, unquote(url.username or ""), password, database)


def limits_of(options: Mapping[str, Any]) -> tuple[int, int]:
    """Seconds to connect, and seconds for a statement or request, from the options of an engine.

    >>> limits_of({"timeout": 5})
    (10, 5)
    """
    return options.get("connect_timeout", CONNECT_SECONDS), options.get("timeout", SECONDS)


def shown_url(url: SplitResult) -> str:
    """The URL as it may be shown: without password and options. (``geturl`` drops the empty host of a local path.)

    >>> from urllib.parse import urlsplit
    >>> shown_url(urlsplit("postgresql://ann:secret@db.example/photos"))
    'postgresql://ann@db.example/photos'
    """
    return hide_credentials(f"{url.scheme}://{url.netloc}{url.path}")
