"""`PostgresIndex`: items in a table of a PostgreSQL database, compared by pgvector."""

from __future__ import annotations

import io
import os
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, ClassVar
from urllib.parse import SplitResult

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.engines.base import Engine
from hashgrove.index.engines.connections import Connections
from hashgrove.index.engines.opening import required
from hashgrove.index.engines.server import TIME_LIMITS, Server, limits_of
from hashgrove.index.engines.session import Meta, Neighbours, Session
from hashgrove.index.engines.sql import DEFAULT_TABLE, TABLES, Identifier, SqlSession
from hashgrove.runtime.parameters import OneOf, ParameterError

__all__ = ["PostgresIndex"]

PORT = 5432
ENCRYPTION = {"prefer": None, "disable": False, "require": True}  # what the driver calls them
LOCKS = 0x68677276  # "hgrv": the class of hashgrove's advisory locks, so that they meet no others
GRACE_SECONDS = 5  # in which the server says itself that a statement took too long
CANCELED = "57014"  # what PostgreSQL calls it then
ITEMS_PER_LIST = 1000  # of an IVFFlat index, as pgvector advises
READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"  # every statement sees the items of one moment
WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"  # a statement sees what others wrote while it waited for the lock


class PostgresIndex(Engine):
    """Search in a table of a PostgreSQL database: ``postgresql://user:password@host:5432/database?table=photos``.

    The table has the columns ``id`` (bigint, or text ordered by code points, the primary key), ``rank`` (bigint,
    ascending in the order in which items were added) and ``code`` (``bit(n)``), and is an ordinary one: join it with
    your own tables, and give the ids that a query of yours selects as ``allowed``. The bits of a code are those of its
    bytes in order, each from its highest bit to its lowest, so ``X'07FF'`` is the code with the bytes 7 and 255.

    Changes are transactions: other connections see all of one or nothing, and when it has returned it is as durable as
    the server's ``synchronous_commit`` says, which is safe by default. Writers of a table wait for each other.

    Options, in the URL or as parameters of `hashgrove.connect`:

    - ``table``: the name of the table.
    - ``search``: ``exact`` (the default) compares a query with every item. ``hnsw`` and ``ivfflat`` use such an index
      of pgvector, which is built when you connect to a table that has items and no such index: connect so after you
      have loaded them. They are faster and **not exact**: `search` may miss items, above all where many codes are
      equal, as learned codes are. `search_radius` is always exact.
    - ``sslmode``: ``prefer`` (the default) encrypts if the server can, ``require`` always, ``verify-full`` also checks
      the certificate of the server, ``disable`` never encrypts.
    - ``connect_timeout``: seconds that connecting may take, 10 by default.
    - ``timeout``: seconds that a statement may take, with the time that a writer waits for another one, 60 by default.
      Building an approximate index has no limit.

    A server on this machine is also reached through its Unix socket: give the folder of the socket, percent-encoded, in
    the place of the host, as in ``postgresql://ann@%2Frun%2Fpostgresql/photos``.

    A password that is not in the URL is taken from the environment variable ``PGPASSWORD``. The extension pgvector
    must be available on the server; it is created in the database if it is not there.
    """

    extra = "postgres"
    options: ClassVar = {
        "table": Identifier(),
        "search": OneOf(("exact", "hnsw", "ivfflat")),
        "sslmode": OneOf((*ENCRYPTION, "verify-full")),
        **TIME_LIMITS,
    }

    def _start(self, url: SplitResult, options: Mapping[str, Any], create: bool) -> None:
        self._table, self._search_by = options.get("table", DEFAULT_TABLE), options.get("search", "exact")
        self._driver = required("pg8000.dbapi", self.extra)
        server = Server.of(url, port=PORT, secret="PGPASSWORD")
        if not server.user or not server.database:
            raise ParameterError("url", f"must name a user and a database. Got {self.place!r} instead.")
        mode = options.get("sslmode", "prefer")
        if server.is_local and mode not in ("prefer", "disable"):
            raise ParameterError(
                "sslmode", f"must be left out for a Unix socket, which is not encrypted. Got {mode!r}."
            )
        encryption = ssl.create_default_context() if mode == "verify-full" else ENCRYPTION[mode]
        settings = asdict(server) | {"ssl_context": False if server.is_local else encryption}
        to_connect, self._seconds = limits_of(options)
        self._connections = Connections(lambda: self._connect(settings, to_connect, self._seconds), self.place)
        self._patient = Connections(lambda: self._connect(settings, to_connect, None), self.place)

    def _connect(self, settings: Mapping[str, Any], to_connect: int, seconds: int | None) -> Any:
        """Connect within a limit of time; ``seconds`` limits each statement later on."""
        channel = _channel(settings["host"], settings["port"], to_connect)
        try:
            connection = self._driver.connect(**settings, sock=channel)
            connection.autocommit = True  # transactions are begun and ended by `_transaction`
            if seconds is not None:
                connection.cursor().execute(f"SET statement_timeout = {1000 * seconds}")
            channel.settimeout(None if seconds is None else seconds + GRACE_SECONDS)
        except BaseException:
            channel.close()
            raise
        return connection

    def _failures(self) -> tuple[type[Exception], ...]:
        return self._driver.Error, OSError

    def _said(self, error: Exception) -> str:
        fields = error.args[0] if error.args else None  # of the server's answer
        if isinstance(fields, dict) and "M" in fields:
            hint = f"; 'timeout' is {self._seconds} seconds" if fields.get("C") == CANCELED else ""
            return f"{fields['M']}{hint}"
        if isinstance(error, TimeoutError):
            return "the server does not answer in time; see the options 'connect_timeout' and 'timeout'"
        return str(error)

    def _agree(self, n_bits: int | None, model: Any, create: bool) -> None:
        super()._agree(n_bits, model, create)
        if self._search_by != "exact":
            with self._one_line_errors(), self._transaction(*self._write(), connections=self._patient) as session:
                session.build_index()  # however long it takes

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._transaction(READ) as session:
            yield session

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with self._transaction(*self._write()) as session:
            yield session

    def _write(self) -> tuple[str, str]:
        return WRITE, f"SELECT pg_advisory_xact_lock({LOCKS}, hashtext('{self._table}'))"

    @contextmanager
    def _transaction(self, *beginning: str, connections: Connections | None = None) -> Iterator[_PostgresSession]:
        with (
            connections or self._connections
        ).borrow() as connection:  # which is closed after an error: that rolls back
            for statement in beginning:
                connection.cursor().execute(statement)
            yield _PostgresSession(connection, self._table, self._ready, self._search_by)
            connection.cursor().execute("COMMIT")

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()
        self._patient.close()


def _channel(host: str, port: int, seconds: int) -> socket.socket:
    """Connect to a host, or to the Unix socket that PostgreSQL makes in a folder."""
    if not host.startswith("/"):
        channel = socket.create_connection((host, port), timeout=seconds)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a change is many short messages
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return channel
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no Unix sockets")
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.settimeout(seconds)
        channel.connect(os.path.join(host, f".s.PGSQL.{port}"))
    except BaseException:
        channel.close()
        raise
    return channel


class _PostgresSession(SqlSession):
    def __init__(self, connection: Any, table: str, ready: bool, search: str) -> None:
        self._search = search
        super().__init__(connection, table, ready)

    def run(self, statement: str, parameters: Sequence[Any] = (), *, stream: io.BytesIO | None = None) -> list[Any]:
        cursor = self.connection.cursor()
        cursor.execute(statement.replace("?", "%s"), parameters, stream=stream)
        return [] if cursor.description is None else list(cursor.fetchall())

    def tables(self) -> set[str]:
        statement = "SELECT name FROM unnest(CAST(? AS text[])) AS name WHERE to_regclass(name) IS NOT NULL"
        return {name for (name,) in self.run(statement, [[TABLES, self.table]])}

    def create(self, meta: Meta) -> None:
        self.run(f"SELECT pg_advisory_xact_lock({LOCKS}, 0)")  # both of these are there once per database
        self.run("CREATE EXTENSION IF NOT EXISTS vector")
        super().create(meta)

    def columns(self, meta: Meta) -> str:
        kind = 'text COLLATE "C"' if meta.texts else "bigint"
        return f"id {kind} PRIMARY KEY, rank bigint NOT NULL DEFAULT 0, code bit({8 * (meta.n_bytes or 0)}) NOT NULL"

    def distance(self) -> str:
        # the cast is also what keeps an approximate index of pgvector out of an exact search
        return f"CAST({self._operator()} AS integer)"

    def _operator(self) -> str:
        return f"code <~> CAST(? AS bit({8 * self.n_bytes}))"

    def query(self, code: NDArray[np.uint8]) -> list[Any]:
        return ["x" + code.tobytes().hex()]

    def among(self) -> str:
        return f"id = ANY(CAST(? AS {'text' if self.meta.texts else 'bigint'}[]))"

    def listed(self, ids: NDArray[Any]) -> Any:
        # as text: the driver would convert a list anew for every query
        return f"{{{','.join(map(_quoted if self.meta.texts else str, ids.tolist()))}}}"

    def contents(self, ids: NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        if ids is not None:  # COPY has no parameters
            condition, listed = self.only(ids)
            rows = self.run(f"SELECT id, bit_send(code) FROM {self.table}{condition} ORDER BY rank, id", listed)
            return self._read([i for i, _ in rows], [code for _, code in rows])
        stream = io.BytesIO()
        self.run(f"COPY (SELECT id, code FROM {self.table} ORDER BY rank, id) TO STDOUT (FORMAT binary)", stream=stream)
        fields = list(_unpacked(stream.getbuffer()))
        found = [bytes(i).decode() if self.meta.texts else int.from_bytes(i, signed=True) for i in fields[::2]]
        return self._read(found, fields[1::2])

    def _read(self, ids: Sequence[Any], codes: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Ids and codes as arrays; four bytes before each code have its number of bits."""
        joined = np.frombuffer(bytearray(b"".join(code[4:] for code in codes)), np.uint8)
        return self.ids_of(ids), joined.reshape(len(ids), self.n_bytes)

    def insert(self, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        n_bits = struct.pack(">i", 8 * self.n_bytes)
        keys = (i.encode() if self.meta.texts else i.to_bytes(8, signed=True) for i in ids.tolist())
        places = (rank.to_bytes(8, signed=True) for rank in ranks.tolist())
        rows = ((key, rank, n_bits + code.tobytes()) for key, rank, code in zip(keys, places, codes, strict=True))
        self.run(f"COPY {self.table} (id, rank, code) FROM STDIN (FORMAT binary)", stream=io.BytesIO(_packed(rows)))
        self.note_ranks(ranks)

    def build_index(self) -> None:
        """Build the approximate index, if there are items and it is not there."""
        if self.meta.n_bytes is None or (count := self.count()) == 0:
            return
        setting = f" WITH (lists = {max(1, count // ITEMS_PER_LIST)})" if self._search == "ivfflat" else ""
        name = f"{self.table}_{self._search}"
        self.run(
            f"CREATE INDEX IF NOT EXISTS {name} ON {self.table} USING {self._search} (code bit_hamming_ops){setting}"
        )

    def nearest(self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        if self._search == "exact":
            return super().nearest(codes, k, allowed)
        order = "strict_order" if self._search == "hnsw" else "relaxed_order"
        self.run(f"SET LOCAL {self._search}.iterative_scan = {order}")  # go on until k items are found
        condition, listed = self.only(allowed)
        statement = (
            f"SELECT * FROM (SELECT {self._operator()} AS distance, id FROM {self.table}{condition} "
            "ORDER BY distance LIMIT ?) AS found ORDER BY 1, 2"
        )
        found = [self._found(statement, [*self.query(code), *listed, k]) for code in codes]
        few = [place for place, (distances, _) in enumerate(found) if len(distances) < k]
        for place, exact in zip(few, super().nearest(codes[few], k, allowed), strict=True):
            found[place] = exact
        return found


def _quoted(text: str) -> str:
    """A text as an element of an array."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# The binary format of COPY: a header, then per row the number of fields and each field after its size, then -1. It
# takes half the bytes of text and needs no escapes.
HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)


def _packed(rows: Iterable[tuple[bytes, ...]]) -> bytes:
    parts = [HEADER]
    for row in rows:
        parts.append(struct.pack(">h", len(row)))
        for value in row:
            parts += struct.pack(">i", len(value)), value
    return b"".join([*parts, struct.pack(">h", -1)])


def _unpacked(data: memoryview) -> Iterator[memoryview]:
    """The fields of all rows, one after the other; none is null."""
    place = len(HEADER)
    while (count := struct.unpack_from(">h", data, place)[0]) >= 0:
        place += 2
        for _ in range(count):
            (size,) = struct.unpack_from(">i", data, place)
            yield data[place + 4 : place + 4 + size]
            place += 4 + size
