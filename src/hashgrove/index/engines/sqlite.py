"""`SqliteIndex`: items in a table of an SQLite file, compared by sqlite-vec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import SplitResult

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.engines.base import Engine
from hashgrove.index.engines.connections import Connections
from hashgrove.index.engines.opening import file_path, refuse_missing, required
from hashgrove.index.engines.session import Meta, Session
from hashgrove.index.engines.sql import DEFAULT_TABLE, Identifier, SqlSession

__all__ = ["SqliteIndex"]

WAIT_MS = 60_000  # for the lock of another writer


class SqliteIndex(Engine):
    """Exact search in a table of an SQLite file: ``sqlite:///codes.db``, or ``sqlite:///codes.db?table=photos``.

    The table has the columns ``id`` (INTEGER or TEXT, the primary key), ``rank`` (INTEGER, ascending in the order in
    which items were added) and ``code`` (BLOB, the bytes of a code), and is an ordinary one: any program can read it.
    Changes are transactions, written to disk before they return. Other processes can read while one writes; a writer
    waits for another one for up to a minute.
    """

    extra = "sqlite"
    options: ClassVar = {"table": Identifier()}

    def _start(self, url: SplitResult, options: Mapping[str, Any], create: bool) -> None:
        self._table = options.get("table", DEFAULT_TABLE)
        self._apsw, self._vec = required("apsw", self.extra), required("sqlite_vec", self.extra)
        path = file_path(url)
        if not create:
            refuse_missing(path, self.place)
        self._connections = Connections(lambda: self._connect(path), self.place)

    def _connect(self, path: str) -> Any:
        connection = self._apsw.Connection(path)
        connection.set_busy_timeout(WAIT_MS)
        connection.enable_load_extension(True)
        connection.load_extension(self._vec.loadable_path())
        connection.enable_load_extension(False)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        return connection

    def _failures(self) -> tuple[type[Exception], ...]:
        return (self._apsw.Error,)

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._transaction("BEGIN") as session:
            yield session

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with self._transaction("BEGIN IMMEDIATE") as session:
            yield session

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Session]:
        with self._connections.borrow() as connection:  # which is closed after an error: that rolls back
            connection.execute(begin)
            yield _SqliteSession(connection, self._table, self._ready)
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()


class _SqliteSession(SqlSession):
    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return list(self.connection.execute(statement, parameters))

    def tables(self) -> set[str]:
        return {name for (name,) in self.run("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")}

    def columns(self, meta: Meta) -> str:
        kind = "TEXT" if meta.texts else "INTEGER"
        return f"id {kind} PRIMARY KEY NOT NULL, rank INTEGER NOT NULL DEFAULT 0, code BLOB NOT NULL"

    def distance(self) -> str:
        return "CAST(vec_distance_hamming(vec_bit(code), vec_bit(?)) AS INTEGER)"

    def query(self, code: NDArray[np.uint8]) -> list[Any]:
        return [code.tobytes()]

    def among(self) -> str:
        return "id IN (SELECT value FROM json_each(?))"

    def listed(self, ids: NDArray[Any]) -> Any:
        return json.dumps(ids.tolist())

    def contents(self, ids: NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        condition, listed = self.only(ids)
        rows = self.run(f"SELECT id, code FROM {self.table}{condition} ORDER BY rank, id", listed)
        codes = np.frombuffer(bytearray(b"".join(code for _, code in rows)), np.uint8)
        return self.ids_of([i for i, _ in rows]), codes.reshape(len(rows), self.n_bytes)

    def insert(self, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        rows = zip(ids.tolist(), ranks.tolist(), map(bytes, codes), strict=True)
        self.connection.executemany(f"INSERT INTO {self.table} (id, rank, code) VALUES (?, ?, ?)", rows)
        self.note_ranks(ranks)
