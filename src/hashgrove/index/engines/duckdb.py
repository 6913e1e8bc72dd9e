"""`DuckdbIndex`: items in a table of a DuckDB file, compared by its ``bit_count`` and ``xor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import SplitResult

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import as_words
from hashgrove.index.engines.base import Engine
from hashgrove.index.engines.connections import Connections
from hashgrove.index.engines.opening import file_path, refuse_missing, required
from hashgrove.index.engines.session import Meta, Session
from hashgrove.index.engines.sql import DEFAULT_TABLE, Identifier, SqlSession

__all__ = ["DuckdbIndex"]

TERMS = 32  # of one sum in a statement


class DuckdbIndex(Engine):
    """Exact search in a table of a DuckDB file: ``duckdb:///codes.duckdb``, or ``duckdb:///codes.duckdb?table=photos``.

    The table has the columns ``id`` (BIGINT or VARCHAR, the primary key), ``rank`` (BIGINT, ascending in the order in
    which items were added) and ``w0``, ``w1``, ... (UBIGINT): the bytes of a code as little-endian words of 64 bits,
    the last one padded with zeros. Changes are transactions, written to disk before they return. One process at a time
    can open the file.
    """

    extra = "duckdb"
    options: ClassVar = {"table": Identifier()}

    def _start(self, url: SplitResult, options: Mapping[str, Any], create: bool) -> None:
        self._table = options.get("table", DEFAULT_TABLE)
        self._duckdb = required("duckdb", self.extra)
        path = file_path(url)
        if not create:
            refuse_missing(path, self.place)
        with self._one_line_errors():
            self._database = self._duckdb.connect(path)
        self._connections = Connections(self._database.cursor, self.place)

    def _failures(self) -> tuple[type[Exception], ...]:
        return (self._duckdb.Error,)

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._connections.borrow() as connection:  # which is closed after an error: that rolls back
            connection.execute("BEGIN TRANSACTION")
            yield _DuckdbSession(connection, self._table, self._ready)
            connection.execute("COMMIT")

    _writing = _reading  # of two changes to the same rows, DuckDB refuses the later one

    def close(self) -> None:
        """Close all connections, so that another process can open the file."""
        self._connections.close()
        self._database.close()


class _DuckdbSession(SqlSession):
    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return list(self.connection.execute(statement, parameters).fetchall())

    def tables(self) -> set[str]:
        return {name for (name,) in self.run("SELECT table_name FROM information_schema.tables")}

    def columns(self, meta: Meta) -> str:
        words = ", ".join(f"{word} UBIGINT NOT NULL" for word in self._words())
        return f"id {'VARCHAR' if meta.texts else 'BIGINT'} PRIMARY KEY, rank BIGINT NOT NULL DEFAULT 0, {words}"

    def distance(self) -> str:
        terms = [f"bit_count(xor({word}, ?::UBIGINT))::INTEGER" for word in self._words()]
        while len(terms) > 1:  # sums of sums, because DuckDB limits how deep an expression is
            terms = [" + ".join(terms[i : i + TERMS]) for i in range(0, len(terms), TERMS)]
            terms = [f"({term})" for term in terms]
        return terms[0]

    def query(self, code: NDArray[np.uint8]) -> list[Any]:
        return list(as_words(code[None])[0].tolist())

    def among(self) -> str:
        return f"id IN (SELECT unnest(?::{'VARCHAR' if self.meta.texts else 'BIGINT'}[]))"

    def listed(self, ids: NDArray[Any]) -> Any:
        return ids.tolist() if self.meta.texts else ids

    def contents(self, ids: NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        names, (condition, listed) = self._words(), self.only(ids)
        found = self.connection.execute(
            f"SELECT id, {', '.join(names)} FROM {self.table}{condition} ORDER BY rank, id", listed
        ).fetchnumpy()
        words = np.stack([np.asarray(found[name], "<u8") for name in names], axis=1)
        return self.ids_of(found["id"].tolist()), words.view(np.uint8)[:, : self.n_bytes].copy()

    def insert(self, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        columns = [self.listed(ids), ranks, *np.ascontiguousarray(as_words(codes).T)]
        unnested = ", ".join(["unnest(?)"] * len(columns))
        self.connection.execute(f"INSERT INTO {self.table} SELECT {unnested}", columns)
        self.note_ranks(ranks)

    def _words(self) -> list[str]:
        return [f"w{number}" for number in range(-(-self.n_bytes // 8))]
