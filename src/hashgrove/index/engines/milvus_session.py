"""`MilvusSession`: how items are read and changed in a collection of Milvus."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.engines.session import EngineError, Meta, Neighbours, Session
from hashgrove.index.flat import FlatIndex
from hashgrove.index.ids import MAX_ID, MAX_TEXT

__all__ = ["MilvusSession"]

FORMAT = 1
MAX_FOUND = 16_384  # items per query, and ids per list: a limit of Milvus, and where a filter gets slow
SPARE = 48  # items beyond k that are asked for, so that most ties need no second search
MAX_ANSWER = 2**20  # items that one request may find, over all of its queries
MANY = 2**14  # answers that take longer than a page of codes
MAX_REQUEST = 2**22  # bytes of a change: Milvus divides larger ones up into several messages
LISTS, PROBES = 1024, 32
INDEX = "code"
NOT_FOUND = 100  # the code of the error that there is no such collection


class MilvusSession(Session):
    """One operation: it reads, and writes everything at its end, by `send`.

    Parameters
    ----------
    client : MilvusClient
    library : module
        pymilvus
    collection : str
    is_exact : bool
        Whether all lists of BIN_IVF_FLAT are searched.
    largest : list
        Has the largest id as far as it is known. It is shared by all sessions of an index.
    last_rank : list of one int
        At most the next rank. It is shared, too.
    alone : function
        Returns a context in which no other session of the index reads.
    """

    def __init__(
        self,
        client: Any,
        library: Any,
        collection: str,
        is_exact: bool,
        largest: list[int],
        last_rank: list[int],
        alone: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._alone = alone
        self._client, self._library, self._collection = client, library, collection
        self._is_exact, self._largest, self._last_rank = is_exact, largest, last_rank
        self._count: int | None = None
        self._removed: NDArray[Any] = np.empty(0, np.int64)
        self._added: tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.int64]] | None = None
        self.meta = self._read_meta()

    def _read_meta(self) -> Meta:
        try:
            facts = self._client.describe_collection(self._collection)
        except self._library.MilvusException as error:
            if error.code != NOT_FOUND:
                raise
            return Meta()
        fields = {field["name"]: field for field in facts["fields"]}
        try:
            known = json.loads(facts["description"])
            version, model = known["hashgrove"], known["model"]
            n_bytes = int(fields["code"]["params"]["dim"]) // 8
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"the collection {self._collection} must be new, or one that hashgrove has made. It is not."
            ) from error
        if version != FORMAT:
            raise EngineError(f"the collection {self._collection} must have format {FORMAT}. Got {version!r} instead.")
        return Meta(n_bytes, fields["id"]["type"] == self._library.DataType.VARCHAR, model)

    def create(self, meta: Meta) -> None:
        """Make an empty collection; before the number of bytes is known, there can be none."""
        with self._alone():
            self._create(meta)

    def _create(self, meta: Meta) -> None:
        if self.meta.n_bytes is not None:
            self._client.drop_collection(self._collection)
        self.meta = meta
        if meta.n_bytes is None:
            return
        types = self._library.DataType
        schema = self._client.create_schema(
            auto_id=False,
            enable_dynamic_field=False,
            description=json.dumps({"hashgrove": FORMAT, "model": meta.model}),
        )
        if meta.texts:
            schema.add_field("id", types.VARCHAR, max_length=MAX_TEXT, is_primary=True)
        else:
            schema.add_field("id", types.INT64, is_primary=True)
        schema.add_field("rank", types.INT64)
        schema.add_field("code", types.BINARY_VECTOR, dim=8 * meta.n_bytes)
        self._client.create_collection(self._collection, schema=schema, num_shards=1, consistency_level="Strong")
        self._largest.clear()
        self._load()

    def replace(self, meta: Meta, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        """Refused: Milvus cannot replace all items of a collection in one step."""
        raise EngineError(
            f"the items of {self._collection} cannot be replaced in one step, which Milvus does not offer. Encode them "
            "with the new model, push them to another collection (?collection=NAME), and search that one."
        )

    def make_searchable(self) -> None:
        """Build the index of Milvus, if it is not there or not the one that is wanted, and load the collection."""
        if self.meta.n_bytes is not None:
            with self._alone():
                self._load()

    def _load(self) -> None:
        found = self._client.describe_index(self._collection, INDEX)
        kind = found["index_type"] if found else None
        if kind is not None and kind != "BIN_IVF_FLAT" and not self._is_exact:
            self._client.release_collection(self._collection)
            self._client.drop_index(self._collection, INDEX)
            kind = None
        if kind is None:
            parameters = self._client.prepare_index_params()
            parameters.add_index(
                "code",
                index_type="BIN_FLAT" if self._is_exact else "BIN_IVF_FLAT",
                index_name=INDEX,
                metric_type="HAMMING",
                params={} if self._is_exact else {"nlist": LISTS},
            )
            self._client.create_index(self._collection, parameters, sync=False)
        self._client.load_collection(self._collection)

    def _query(self, condition: str, fields: list[str], **options: Any) -> Any:
        return self._client.query(
            self._collection, filter=condition, output_fields=fields, consistency_level="Strong", **options
        )

    def count(self) -> int:
        """Number of items, as of the first call."""
        if self._count is None:
            self._count = int(self._query("", ["count(*)"])[0]["count(*)"])
        return self._count

    def largest(self) -> int | None:
        """The largest id. All ids are read if it is not known, or has been removed."""
        later = self._query(f"id >= {self._largest[0]}", ["id"]) if self._largest else []
        later = [row["id"] for row in later or self._pages(["id"])]
        self._largest[:] = [max(later)] if later else []
        return self._largest[0] if later else None

    def known(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each of these ids is stored."""
        return np.isin(ids, self._ids_of([row["id"] for row in self._rows(ids, ["id"])]))

    def contents(self, ids: NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """All ids and codes, or those of some items, page by page."""
        fields = ["id", "rank", "code"]
        rows = sorted(self._pages(fields) if ids is None else self._rows(ids, fields), key=itemgetter("rank"))
        codes = np.frombuffer(bytearray(b"".join(row["code"][0] for row in rows)), np.uint8)
        return self._ids_of([row["id"] for row in rows]), codes.reshape(len(rows), self.n_bytes)

    def ranks(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """The ranks of these items."""
        found = {row["id"]: row["rank"] for row in self._rows(ids, ["id", "rank"])}
        return np.array([found[i] for i in ids.tolist()], np.int64)

    def next_rank(self) -> int:
        """The time in nanoseconds: Milvus has no cheap way to find the largest rank."""
        self._last_rank[0] = max(time.time_ns(), self._last_rank[0])
        return self._last_rank[0]

    def _rows(self, ids: NDArray[Any], fields: list[str]) -> Iterator[Any]:
        """The rows of these items, of those that are stored."""
        for part in _parts(ids, MAX_FOUND):
            yield from self._query(_listed(part), fields)

    def _pages(self, fields: list[str]) -> Iterator[Any]:
        """All rows in the order of their ids: Milvus returns those with the smallest ids, if there is a limit."""
        condition = ""
        while rows := self._query(condition, fields, limit=MAX_FOUND):
            yield from rows
            condition = f"id > {_literal(rows[-1]['id'])}"

    def delete(self, ids: NDArray[Any]) -> None:
        """Note what `send` will remove."""
        self._removed = ids

    def insert(self, codes: NDArray[np.uint8], ids: NDArray[Any], ranks: NDArray[np.int64]) -> None:
        """Note what `send` will add."""
        lost = [] if self.meta.texts else [i for i in (int(ids[0]), int(ids[-1])) if not -MAX_ID <= i < MAX_ID]
        if lost:
            raise EngineError(
                f"an id must be from {-MAX_ID} to {MAX_ID - 1}: Milvus loses others. Got {lost[0]} instead."
            )
        self._added = codes, ids, ranks
        self._last_rank[0] = max(self._last_rank[0], int(ranks.max()) + 1)

    def send(self) -> None:
        """Write what was noted. A request adds items or gives them new codes, or it removes items."""
        with self._alone():
            self._send()

    def _send(self) -> None:
        codes, ids, ranks = self._added or (np.empty((0, 1), np.uint8), self._removed[:0], np.empty(0, np.int64))
        size = max(1, MAX_REQUEST // (codes.shape[1] + ids.itemsize + 24))
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            rows = zip(ids[part].tolist(), ranks[part].tolist(), codes[part], strict=True)
            # an upsert even where nothing is replaced: an insert would make a second item with the same id
            items = [{"id": i, "rank": rank, "code": code.tobytes()} for i, rank, code in rows]
            self._client.upsert(self._collection, items)
        for gone in _parts(np.setdiff1d(self._removed, ids), MAX_FOUND):
            self._client.delete(self._collection, filter=_listed(gone))
        if len(ids) and not self.meta.texts and self._largest:
            self._largest[0] = max(self._largest[0], int(ids[-1]))

    def nearest(self, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        """Search for a few more than ``k``, and again for many more where items at the k-th distance go on there."""
        found: dict[int, Neighbours] = {}
        most = min(self.count() + 1, MAX_FOUND)
        for limit in (min(k + SPARE, most), most):
            missing = [place for place in range(len(codes)) if place not in found]
            if k > MAX_FOUND or not missing or self._is_quicker_here(len(missing) * limit, allowed):
                break
            for place, (distances, ids) in zip(missing, self._search(codes[missing], limit, allowed), strict=True):
                is_cut = len(distances) == limit and distances[k - 1] == distances[-1]
                if len(distances) >= k and not (is_cut and self._is_exact):
                    found[place] = distances[:k], ids[:k]
        return self._completed(found, codes, lambda here, queries: here.search(queries, k, allowed=allowed))

    def within(self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None) -> list[Neighbours]:
        """Search for all that Milvus can return."""
        found: dict[int, Neighbours] = {}
        limit = min(self.count() + 1, MAX_FOUND)
        if not self._is_quicker_here(len(codes) * limit, allowed):
            answers = self._search(codes, limit, allowed, radius=radius + 1)  # Milvus excludes the radius itself
            found = {place: answer for place, answer in enumerate(answers) if len(answer[0]) < limit}
        return self._completed(found, codes, lambda here, queries: here.search_radius(queries, radius, allowed=allowed))

    def _search(
        self, codes: NDArray[np.uint8], limit: int, allowed: NDArray[Any] | None, **bounds: int
    ) -> Iterator[Neighbours]:
        """The answers of Milvus, sorted by distance and then by id."""
        probes = LISTS if self._is_exact else PROBES  # BIN_FLAT has no lists and ignores it
        for part in _parts(codes, max(1, MAX_ANSWER // limit)):
            answers = self._client.search(
                self._collection,
                [code.tobytes() for code in part],
                filter="" if allowed is None else _listed(allowed),
                limit=limit,
                search_params={"metric_type": "HAMMING", "params": {"nprobe": probes, **bounds}},
                consistency_level="Strong",
            )
            for answer in answers:
                distances = np.array([hit["distance"] for hit in answer], np.uint16)
                ids = self._ids_of([hit["id"] for hit in answer])
                order = np.lexsort((ids, distances))
                yield distances[order], ids[order]

    def _is_quicker_here(self, n_answers: int, allowed: NDArray[Any] | None) -> bool:
        """Whether to read all codes and compare them here: answers or filters of Milvus would take longer."""
        return n_answers > max(MANY, self.count()) or (allowed is not None and len(allowed) > MAX_FOUND)

    def _completed(
        self,
        found: dict[int, Neighbours],
        codes: NDArray[np.uint8],
        search: Callable[[FlatIndex, NDArray[np.uint8]], Any],
    ) -> list[Neighbours]:
        """The answers to all queries: those that were not found, by a search of all items here."""
        missing = [place for place in range(len(codes)) if place not in found]
        if missing:
            ids, items = self.contents()
            answers = zip(*search(FlatIndex(items, ids=ids), codes[missing]), strict=True)
            found = found | dict(zip(missing, answers, strict=True))
        return [found[place] for place in range(len(codes))]

    def _ids_of(self, values: list[Any]) -> NDArray[Any]:
        return np.array(values, np.str_ if self.meta.texts else np.int64)


def _parts(array: NDArray[Any], size: int) -> list[NDArray[Any]]:
    return [array[start : start + size] for start in range(0, len(array), size)]


def _literal(value: Any) -> str:
    """An id in an expression of Milvus, whose texts have the escapes of JSON.

    >>> _literal('a"b')
    '"a\\\\"b"'
    """
    return json.dumps(value, ensure_ascii=False)


def _listed(ids: NDArray[Any]) -> str:
    return f"id in {_literal(ids.tolist())}"
