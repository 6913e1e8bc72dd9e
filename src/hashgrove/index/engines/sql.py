"""Engines that speak SQL: one table of items, one that describes these tables, and the statements.

Statements have ``?`` for parameters. The table of items has the columns ``id``, the primary key, and ``rank``, which
gives the order in which items were added, and those that the dialect stores a code in. The table ``hashgrove_tables``
has a row for each table of items.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.engines.session import EngineError, Meta, Neighbours, Session
from hashgrove.runtime.parameters import Constraint

__all__ = ["DEFAULT_TABLE", "FORMAT", "Identifier", "SqlSession"]

FORMAT = 1
DEFAULT_TABLE = "hashgrove_codes"
TABLES = "hashgrove_tables"


@dataclass(frozen=True)
class Identifier(Constraint):
    """A name that needs no quotes in SQL: letters of ASCII, digits and underscores, at most 50 characters.

    >>> Identifier().check("table", "a; DROP TABLE b")
    Traceback (most recent call last):
        ...
    hashgrove.ParameterError: The 'table' parameter must be a name of 1 to 50 small letters, digits and underscores that begins with a letter. Got 'a; DROP TABLE b' instead.
    """  # noqa: E501

    def allows(self, value: Any) -> bool:
        """Whether ``value`` is such a name, and not that of the table of tables."""
        return isinstance(value, str) and bool(re.fullmatch("[a-z][a-z0-9_]{0,49}", value)) and value != TABLES

    def __str__(self) -> str:
        return "a name of 1 to 50 small letters, digits and underscores that begins with a letter"


class SqlSession(Session):
    """A transaction of a database. A dialect implements the abstract methods below.

    Parameters
    ----------
    connection : object
        Of the database's driver. The caller has begun a transaction on it.
    table : str
        The table of items, an `Identifier`.
    ready : bool
        Whether the table of tables is known to exist; looking for it takes longer than many a search.
    """

    def __init__(self, connection: Any, table: str, ready: bool = False) -> None:
        self.connection, self.table = connection, table
        self.meta = self._read_meta() if ready or TABLES in self.tables() else Meta()

    @abstractmethod
    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run one statement with ``?`` for parameters, and return the rows of its result."""

    @abstractmethod
    def tables(self) -> set[str]:
        """The names of all tables that the transaction sees."""

    @abstractmethod
    def columns(self, meta: Meta) -> str:
        """The definitions of the columns of the table of items, ``id`` and ``rank`` first."""

    @abstractmethod
    def distance(self) -> str:
        """An SQL expression for the Hamming distance from a row to a query; see `query`."""

    @abstractmethod
    def query(self, code: NDArray[np.uint8]) -> list[Any]:
        """The parameters of `distance` for a query, uint8 (n_bytes,)."""

    @abstractmethod
    def among(self) -> str:
        """An SQL condition that is true where ``id`` is in a list of ids, which is one parameter; see `listed`."""

    @abstractmethod
    def listed(self, ids: NDArray[Any]) -> Any:
        """The parameter of `among`."""

    def _read_meta(self) -> Meta:
        rows = self.run(f"SELECT format, n_bytes, texts, model FROM {TABLES} WHERE name = ?", [self.table])
        if not rows:
            return Meta()
        version, n_bytes, texts, model = rows[0]
        if version != FORMAT:
            raise EngineError(f"the table {self.table} must have format {FORMAT}. Got {version!r} instead.")
        return Meta(n_bytes, bool(texts), model)

    def create(self, meta: Meta) -> None:
        """Store ``meta`` in the table of tables, and make an empty table of items."""
        tables = self.tables()
        if TABLES not in tables:
            self.run(
                f"CREATE TABLE {TABLES} (name VARCHAR(50) PRIMARY KEY, format INTEGER NOT NULL, n_bytes INTEGER, "
                "texts INTEGER NOT NULL, model VARCHAR(1024), next_rank BIGINT NOT NULL)"
            )
        row = FORMAT, meta.n_bytes, int(meta.texts), meta.model
        if self.run(f"SELECT 1 FROM {TABLES} WHERE name = ?", [self.table]):
            changed = f"UPDATE {TABLES} SET format = ?, n_bytes = ?, texts = ?, model = ? WHERE name = ?"
        elif self.table in tables:
            raise EngineError(f"the table {self.table} must be new, or one that hashgrove has made. It is not.")
        else:
            changed = f"INSERT INTO {TABLES} (format, n_bytes, texts, model, name, next_rank) VALUES (?, ?, ?, ?, ?, 0)"
        self.run(changed, [*row, self.table])
        self.meta = meta
        if meta.n_bytes is not None:
            self.run(f"DROP TABLE IF EXISTS {self.table}")
            self.run(f"CREATE TABLE {self.table} ({self.columns(meta)})")

    def count(self) -> int:
        """Number of rows."""
        return int(self.run(f"SELECT count(*) FROM {self.table}")[0][0])

    def largest(self) -> int | None:
        """The largest id."""
        largest = self.run(f"SELECT max(id) FROM {self.table}")[0][0]
        return None if largest is None else int(largest)

    def known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each of these ids is in the table."""
        rows = self.run(f"SELECT id FROM {self.table} WHERE {self.among()}", [self.listed(ids)])
        return np.isin(ids, self.ids_of([row[0] for row in rows]))

    def ranks(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """The ranks of rows, by their ids."""
        rows = self.run(f"SELECT id, rank FROM {self.table} WHERE {self.among()}", [self.listed(ids)])
        found = dict(rows)
        return np.array([found[i] for i in ids.tolist()], np.int64)

    def next_rank(self) -> int:
        """The rank of the next item, which the table of tables has."""
        return int(self.run(f"SELECT next_rank FROM {TABLES} WHERE name = ?", [self.table])[0][0])

    def note_ranks(self, ranks: NDArray[np.int64]) -> None:
        """Make `next_rank` larger than these ranks; `insert` calls it."""
        if (following := int(ranks.max()) + 1) > self.next_rank():
            self.run(f"UPDATE {TABLES} SET next_rank = ? WHERE name = ?", [following, self.table])

    def delete(self, ids: NDArray[Any]) -> None:
        """Delete rows."""
        self.run(f"DELETE FROM {self.table} WHERE {self.among()}", [self.listed(ids)])

    def nearest(self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        """The first ``k`` rows by distance and id, for each query."""
        condition, listed = self.only(allowed)
        statement = f"SELECT {self.distance()} AS distance, id FROM {self.table}{condition} ORDER BY 1, 2 LIMIT ?"
        return [self._found(statement, [*self.query(code), *listed, k]) for code in codes]

    def within(self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        """The rows within ``radius``, by distance and id, for each query."""
        condition, listed = self.only(allowed)
        statement = (
            f"SELECT * FROM (SELECT {self.distance()} AS distance, id FROM {self.table}{condition}) AS compared "
            "WHERE distance <= ? ORDER BY 1, 2"
        )
        return [self._found(statement, [*self.query(code), *listed, radius]) for code in codes]

    def ids_of(self, values: Sequence[Any]) -> NDArray[Any]:
        """Ids as an array of the type that they have in this table."""
        return np.array(values, np.str_ if self.meta.texts else np.int64)

    def only(self, allowed: NDArray[Any] | None) -> tuple[str, list[Any]]:
        """The condition that a row is one of these, with its parameters; nothing if all rows are."""
        return ("", []) if allowed is None else (f" WHERE {self.among()}", [self.listed(allowed)])

    def _found(self, statement: str, parameters: Sequence[Any]) -> Neighbours:
        rows = self.run(statement, parameters)
        return np.array([row[0] for row in rows], np.uint16), self.ids_of([row[1] for row in rows])
