"""URLs of engines that are servers: ``scheme://user:password@host:port/database``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote

from hashgrove.runtime.parameters import ParameterError

__all__ = ["Server", "without_password"]


@dataclass(frozen=True)
class Server:
    """The parts of the URL of a server; texts are empty where it has none.

    >>> from urllib.parse import urlsplit
    >>> Server.of(urlsplit("postgresql://ann@db.example/photos"), port=5432, secret="PGPASSWORD")
    Server(host='db.example', port=5432, user='ann', password='', database='photos')
    """

    host: str
    port: int
    user: str
    password: str
    database: str

    @classmethod
    def of(cls, url: SplitResult, *, port: int, secret: str) -> Server:
        """Read a URL. ``port`` is the usual one; the environment variable ``secret`` has the password if it has not."""
        try:
            given = url.port
        except ValueError:
            given = 0
        database = unquote(url.path.removeprefix("/"))
        if not url.hostname or given == 0 or "\0" in database or "/" in database:
            raise ParameterError(
                "url",
                f"must be {url.scheme}://user:password@host:port/database, with a port from 1 to "
                f"65535. Got {without_password(url)!r} instead.",
            )
        password = os.environ.get(secret, "") if url.password is None else unquote(url.password)
        return cls(url.hostname, given or port, unquote(url.username or ""), password, database)


def without_password(url: SplitResult) -> str:
    """The URL as it may be shown. (``geturl`` would drop the empty host of a local path.)

    >>> from urllib.parse import urlsplit
    >>> without_password(urlsplit("postgresql://ann:secret@db.example/photos"))
    'postgresql://ann@db.example/photos'
    """
    account, at, host = url.netloc.rpartition("@")
    return f"{url.scheme}://{account.partition(':')[0]}{at}{host}{url.path}"
