"""`LanceIndex`: items in a table of a LanceDB folder, searched by LanceDB."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import SplitResult

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.engines.base import Engine
from hashgrove.index.engines.opening import file_path, only_writer, refuse_missing, required
from hashgrove.index.engines.session import EngineError, Meta, Neighbours, Session
from hashgrove.index.engines.sql import DEFAULT_TABLE, Identifier
from hashgrove.index.flat import FlatIndex

__all__ = ["LanceIndex"]

FORMAT = 1
KEY = b"hashgrove"  # of the metadata in the schema of a table
SPARE = 64  # items beyond k that are asked for, to see whether all that tie with the last one have been found
VERSIONS = 64  # after this many changes, the small files that they have left are joined
KEPT = timedelta(minutes=10)  # for which readers may go on to use files that have been joined


class LanceIndex(Engine):
    """Exact search in a table of a LanceDB folder: ``lance:///codes.lance``, or ``lance:///codes.lance?table=photos``.

    The table has the columns ``id`` (int64 or string), ``rank`` (int64, ascending in the order in which items were
    added) and ``code`` (a list of uint8 of fixed length, the bytes of a code). Each change makes a new version of the
    table, as a whole; after every 64th, small files are joined. Other processes can read while one writes; a writer
    waits for another one for up to a minute.

    LanceDB does not say which of several items at the same distance it finds, so a few more than ``k`` are asked for,
    and all that tie with the last one if these are not enough. A search with ``allowed`` reads the codes of these items
    and compares them in memory.
    """

    extra = "lance"
    options: ClassVar = {"table": Identifier()}

    def _start(self, url: SplitResult, options: Mapping[str, Any], create: bool) -> None:
        self._table = options.get("table", DEFAULT_TABLE)
        lancedb, self._arrow = required("lancedb", self.extra), required("pyarrow", self.extra)
        self._path = file_path(url)
        if os.path.isfile(self._path):
            raise EngineError(f"{self.place}: must be a folder. Got a file instead.")
        if not create:
            refuse_missing(self._path, self.place)
        with self._one_line_errors():
            self._database = lancedb.connect(self._path)

    def _failures(self) -> tuple[type[Exception], ...]:
        return (OSError, RuntimeError)

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        yield self._session_now()

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with only_writer(os.path.join(self._path, "hashgrove.lock"), self.place):
            session = self._session_now()
            yield session
            session.commit()

    def _session_now(self) -> _LanceSession:
        if self._database is None:
            raise ValueError(f"{self.place}: the index must not be closed when it is used. Connect again.")
        return _LanceSession(self._database, self._table, self._arrow)

    def close(self) -> None:
        """Forget the folder."""
        self._database = None


class _LanceSession(Session):
    """Reads the version of the table that was the latest at its start. What is written waits for `commit`."""

    def __init__(self, database: Any, name: str, arrow: Any) -> None:
        self.database, self.name, self.arrow = database, name, arrow
        self.table = self._opened()
        self.meta = Meta() if self.table is None else _stored(self.table.schema, name)
        self.deleted: NDArray[Any] | None = None
        self.inserted: Any = None

    def _opened(self) -> Any:
        """The table as it is now, which later changes do not reach; None if there is none."""
        try:
            return self.database.open_table(self.name)
        except ValueError:  # so LanceDB says that there is no such table
            return None

    def create(self, meta: Meta) -> None:
        # An item that is to be deleted goes with the old table, and an empty new one is what a change may leave.
        self.table = self.database.create_table(self.name, schema=self._schema(meta), mode="overwrite")
        self.meta, self.deleted = meta, None

    def replace(self, meta: Meta, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        self.meta = meta
        rows = self._rows_of(codes, ids, ranks, self._schema(meta))
        self.table = self.database.create_table(self.name, data=rows, mode="overwrite")  # one version, at once

    def _schema(self, meta: Meta) -> Any:
        about = {"format": FORMAT, "n_bytes": meta.n_bytes, "texts": meta.texts, "model": meta.model}
        fields = [self.arrow.field("id", self.arrow.string() if meta.texts else self.arrow.int64(), nullable=False)]
        if meta.n_bytes is not None:
            fields.append(self.arrow.field("rank", self.arrow.int64(), nullable=False))
            fields.append(self.arrow.field("code", self.arrow.list_(self.arrow.uint8(), meta.n_bytes), nullable=False))
        return self.arrow.schema(fields, metadata={KEY: json.dumps(about).encode()})

    def count(self) -> int:
        return int(self.table.count_rows())

    def largest(self) -> int | None:
        ids = self._rows(["id"], None)[0]
        return int(ids.max()) if len(ids) else None

    def known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        return np.isin(ids, self._rows(["id"], ids)[0])

    def contents(self, ids: NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        found, rows = self._rows(["id", "rank", "code"], ids)
        order = np.argsort(_integers(rows["rank"]))
        return found[order], self._codes_of(rows)[order]

    def ranks(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        found, rows = self._rows(["id", "rank"], ids)
        ranks = dict(zip(found.tolist(), _integers(rows["rank"]).tolist(), strict=True))
        return np.array([ranks[i] for i in ids.tolist()], np.int64)

    def next_rank(self) -> int:
        return int(_integers(self._rows(["id", "rank"], None)[1]["rank"]).max(initial=-1)) + 1

    def delete(self, ids: NDArray[Any]) -> None:
        self.deleted = ids

    def insert(self, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        self.inserted = self._rows_of(codes, ids, ranks, self.table.schema)

    def _rows_of(self, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64], schema: Any) -> Any:
        values = self.arrow.FixedSizeListArray.from_arrays(self.arrow.array(codes.reshape(-1)), self.n_bytes)
        columns = [self.arrow.array(ids.tolist() if self.meta.texts else ids), self.arrow.array(ranks), values]
        return self.arrow.Table.from_arrays(columns, schema=schema)

    def commit(self) -> None:
        """Make one new version of what is to be written: items that are deleted and inserted are updated."""
        if self.inserted is None and self.deleted is not None:
            self.table.delete(self._among(self.deleted))
        elif self.deleted is not None:
            merged = self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merged.execute(self.inserted)
        elif self.inserted is not None:
            self.table.add(self.inserted)
        if self.table is not None and self.table.version % VERSIONS == 0:
            self.table.optimize(cleanup_older_than=KEPT)

    def nearest(self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        if allowed is not None:
            found = self._in_memory(allowed).search(codes, k)
            return list(zip(*found, strict=True))
        n_items = self.count()
        return [self._nearest(code, k, n_items) for code in codes]

    def _nearest(self, code: NDArray[np.uint8], k: int, n_items: int) -> Neighbours:
        asked = min(k + SPARE, n_items)
        distances, ids = self._found(self._query(code).limit(asked))
        if asked < n_items and distances[-1] == distances[k - 1]:
            distances, ids = self._found(self._query(code).distance_range(0, float(distances[-1]) + 0.5).limit(n_items))
        return distances[:k], ids[:k]

    def within(self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        if allowed is not None:
            found = self._in_memory(allowed).search_radius(codes, radius)
            return list(zip(*found, strict=True))
        n_items = self.count()
        return [self._found(self._query(code).distance_range(0, radius + 0.5).limit(n_items)) for code in codes]

    def _query(self, code: NDArray[np.uint8]) -> Any:
        return self.table.search(code, vector_column_name="code").distance_type("hamming").bypass_vector_index()

    def _found(self, query: Any) -> Neighbours:
        rows = query.select(["id", "_distance"]).to_arrow()
        distances, ids = rows["_distance"].to_numpy().astype(np.uint16), self._ids_of(rows["id"])
        order = np.lexsort((ids, distances))
        return distances[order], ids[order]

    def _in_memory(self, ids: NDArray[Any]) -> FlatIndex:
        found, rows = self._rows(["id", "code"], ids)
        return FlatIndex(self._codes_of(rows), ids=found)

    def _codes_of(self, rows: Any) -> NDArray[np.uint8]:
        codes: NDArray[np.uint8] = rows["code"].combine_chunks().flatten().to_numpy()
        return codes.reshape(len(rows), self.n_bytes)

    def _rows(self, columns: list[str], ids: NDArray[Any] | None) -> tuple[NDArray[Any], Any]:
        query = self.table.search().select(columns)
        query = query.limit(max(self.count(), 1)) if ids is None else query.where(self._among(ids)).limit(len(ids))
        rows = query.to_arrow()
        return self._ids_of(rows["id"]), rows

    def _ids_of(self, column: Any) -> NDArray[Any]:
        return np.array(column.to_pylist(), np.str_) if self.meta.texts else _integers(column)

    def _among(self, ids: NDArray[Any]) -> str:
        quoted = ("'" + text.replace("'", "''") + "'" for text in ids.tolist()) if self.meta.texts else map(str, ids)
        return f"id IN ({', '.join(quoted)})"


def _integers(column: Any) -> NDArray[np.int64]:
    return np.asarray(column.to_numpy(), np.int64)


def _stored(schema: Any, name: str) -> Meta:
    """The description of the items in the schema of a table, which is treated as untrusted."""
    content = (schema.metadata or {}).get(KEY)
    if content is None:
        raise EngineError(f"the table {name} must be new, or one that hashgrove has made. It is not.")
    about = json.loads(content)
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise EngineError(f"the table {name} must have format {FORMAT}. Got {about!r} instead.")
    meta = Meta(about.get("n_bytes"), bool(about.get("texts")), about.get("model"))
    if meta.n_bytes is not None and schema.field("code").type.list_size != meta.n_bytes:
        raise EngineError(f"the table {name} must have {meta.n_bytes} bytes per code. It has not.")
    return meta
