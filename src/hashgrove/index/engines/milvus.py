"""`MilvusIndex`: items in a collection of a Milvus server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar
from urllib.parse import SplitResult

from hashgrove.index.engines.base import Engine
from hashgrove.index.engines.milvus_session import MilvusSession
from hashgrove.index.engines.opening import required
from hashgrove.index.engines.server import TIME_LIMITS, Server, limits_of
from hashgrove.index.engines.session import Session
from hashgrove.index.engines.sql import DEFAULT_TABLE, Identifier
from hashgrove.runtime.parameters import OneOf

__all__ = ["MilvusIndex"]

PORT = 19530
REQUESTS = {f"{what}_collection" for what in ("create", "describe", "drop", "load", "release")} | {
    "create_index",
    "delete",
    "describe_index",
    "drop_index",
    "query",
    "search",
    "upsert",
}


class MilvusIndex(Engine):
    """Search in a collection of a Milvus server: ``milvus://user:password@host:19530/database?collection=photos``.

    The collection has the fields ``id`` (INT64 or VARCHAR, the primary key), ``rank`` (INT64, ascending in the order in
    which items were added) and ``code`` (BINARY_VECTOR, the bytes of a code); its description has the rest. Ranks are
    times: of items that are added by different computers, the order is that of their clocks. It has one shard, and
    every request asks for strong consistency, so a search sees all changes that have returned before it, of any client.

    **Changes.** Milvus has no transactions. A change of at most 4 MB, about 130,000 items of 64 bits with integer ids,
    is one request, which the server does as a whole. A larger one is sent in parts, and if a part fails, those before
    it stay. Searches of the same `MilvusIndex` never see a part of a change. Those of another process may, and if
    another process changes items during a search that needs several requests, the result may mix both states. `add`
    never makes two items with one id, but if two processes add the same id at the same time, neither gets an error, and
    the later one wins. A change that has returned is in the server's log of messages and survives the end of the server
    process; whether it survives the loss of power depends on how that log is set up.

    **Limits.** The smallest and the largest int64 are refused as ids, because Milvus does not find them again. Milvus
    returns at most 16,384 items per query. Where that is not enough, because ``k`` or ``allowed`` is larger or more
    items are at the same distance, all codes are read and compared here: exact, but slow.

    Options, in the URL or as parameters of `hashgrove.connect`:

    - ``collection``: the name of the collection.
    - ``search``: ``exact`` (the default) compares a query with every item, by BIN_FLAT or by all lists of BIN_IVF_FLAT.
      ``ivf`` replaces BIN_FLAT by BIN_IVF_FLAT with 1,024 lists when you connect, and looks into 32 of them: faster and
      **not exact**. `search` and `search_radius` may then miss items.
    - ``tls``: ``yes`` encrypts and checks the certificate of the server; the default is ``no``.
    - ``connect_timeout``: seconds that connecting may take, 10 by default.
    - ``timeout``: seconds that a request may take, 60 by default.

    A password that is not in the URL is taken from the environment variable ``MILVUS_PASSWORD``.
    """

    extra = "milvus"
    options: ClassVar = {
        "collection": Identifier(),
        "search": OneOf(("exact", "ivf")),
        "tls": OneOf(("no", "yes")),
        **TIME_LIMITS,
    }

    def _start(self, url: SplitResult, options: Mapping[str, Any], create: bool) -> None:
        self._collection = options.get("collection", DEFAULT_TABLE)
        self._is_exact = options.get("search", "exact") == "exact"
        self._library = required("pymilvus", self.extra)
        # it logs the traceback of every error that it raises, which would be said twice
        logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)
        server = Server.of(url, port=PORT, secret="MILVUS_PASSWORD")
        scheme = "https" if options.get("tls") == "yes" else "http"
        to_connect, seconds = limits_of(options)
        with self._one_line_errors():
            client = self._library.MilvusClient(
                uri=f"{scheme}://{server.host}:{server.port}",
                user=server.user,
                password=server.password if server.user else "",
                db_name=server.database,
                timeout=to_connect,
            )
        self._client = _Limited(client, seconds)
        self._turns = _Turns()
        self._last_rank = [0]
        self._largest: list[int] = []  # the largest id, if it is known and has not been removed since

    def _failures(self) -> tuple[type[Exception], ...]:
        return (self._library.MilvusException,)

    def _said(self, error: Exception) -> str:
        return str(getattr(error, "message", error))

    def _agree(self, n_bits: int | None, model: Any, create: bool) -> None:
        super()._agree(n_bits, model, create)
        with self._exclusively(), self._session() as session:
            assert isinstance(session, MilvusSession)
            session.make_searchable()

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._turns.reading():
            yield self._new_session()

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        session = self._new_session()
        yield session
        session.send()

    def _new_session(self) -> MilvusSession:
        return MilvusSession(
            self._client,
            self._library,
            self._collection,
            self._is_exact,
            self._largest,
            self._last_rank,
            self._turns.writing,
        )

    def close(self) -> None:
        """End the connection."""
        self._client.close()


class _Limited:
    """A client of Milvus whose requests all have a limit of time."""

    def __init__(self, client: Any, seconds: float) -> None:
        self._client, self._seconds = client, seconds

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return partial(found, timeout=self._seconds) if name in REQUESTS else found


class _Turns:
    """Many readers or one writer at a time. New readers wait for a writer that waits."""

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._left = threading.Condition()
        self._n_readers = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._door, self._left:
            self._n_readers += 1
        try:
            yield
        finally:
            with self._left:
                self._n_readers -= 1
                self._left.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._door, self._left:
            self._left.wait_for(lambda: self._n_readers == 0)
            yield
