"""`MultiIndex`: exact search that reads only the buckets that may hold near codes, and scans where that is faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import as_columns, as_words
from hashgrove.index import scan
from hashgrove.index.flat import FlatIndex
from hashgrove.index.ids import decode
from hashgrove.index.items import Items
from hashgrove.index.probe import nearest_by_tables, within_by_tables
from hashgrove.index.strips import width_of
from hashgrove.index.tables import Tables, permute_bits
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import Integer
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["MultiIndex"]

QUERIES_PER_CHUNK = 32
TAIL = 32  # new items are scanned until they are one of this many; then the tables are built again


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Tables, and what they mean for some items: the first ``n`` are in the tables, and some of these are removed."""

    items: Items
    n: int
    tables: Tables
    counts: NDArray[np.int64]  # items alive with each code
    firsts: NDArray[np.int64]  # the first of them

    @property
    def n_alive(self) -> int:
        return int(self.counts.sum())

    def arrays(self) -> tuple[Any, ...]:
        tables = self.tables
        width = width_of(tables.words.shape[1])
        return width, tables.parts, tables.masks, tables.offsets, tables.bases, tables.words, tables.numbers


class MultiIndex(FlatIndex):
    """Exact search by multi-index hashing, for millions of items; `Index` states its contract.

    The results are those of `FlatIndex`, always, ties included. Distinct codes are kept in several tables, each sorted
    by some of the bits; see `hashgrove.index.tables`. A query reads the buckets that may hold near codes, nearest
    first, until no other code can be nearer. A query for which that would take long, because its neighbours are far or
    its buckets large, is scanned as in `FlatIndex`; so is a search with ``allowed``. `hashgrove.build_index` chooses
    between the two classes.

    The tables take about 12 bytes per table and distinct code of 64 bits. They are built after the first 256 queries,
    which is when they pay, or by `prepare`; and again after items have been added at other places than the end.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes), optional
        Codes to start with, as returned by `Hasher.transform` or `pack`. They are copied.
    ids : array-like of int or str, shape (n,), optional
        The ids of these codes, in any order and without duplicates; 0, 1, 2, ... if left out.
    model : str, or an object with the attribute ``digest``, optional
        The model that made the codes.
    n_tables : int, optional
        Number of tables. None chooses it by the number of bits and of distinct codes.

    Examples
    --------
    >>> index = MultiIndex(np.array([[0b0000], [0b0001], [0b1111]], np.uint8))
    >>> distances, ids = index.search(np.array([[0b0011]], np.uint8), 2)
    >>> distances
    array([[1, 2]], dtype=uint16)
    >>> ids
    array([[1, 0]])
    """

    _budget = 0.2  # a query that costs more than this part of a scan by tables is scanned instead
    _share = 16  # tables are used for k up to one in this many of the items
    _min_items = 2**14  # fewer items are scanned faster than buckets can be found
    _patience = 256  # queries that are scanned before tables are built: building costs about as much as they do
    _prepared: _Prepared | None = None
    _n_scanned = 0  # queries since tables would have been of use

    def __init__(
        self,
        codes: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        model: Any = None,
        n_tables: int | None = None,
    ) -> None:
        self.n_tables = n_tables
        super().__init__(codes, ids=ids, model=model)

    @classmethod
    def sharing(cls, index: FlatIndex) -> MultiIndex:
        """A new index with the items of another one, which are not copied."""
        shared = cls(model=index.model)
        shared._items = index._now()
        return shared

    def prepare(self) -> None:
        """Build the tables now, if they are missing or no longer fit."""
        items = self._now()
        if items.size:
            self._prepared_for(items, np.inf)

    def _prepared_for(self, items: Items, n_queries: float) -> _Prepared | None:
        """The tables for some items; None if there are none and it is not yet time to build them."""
        prepared = self._prepared
        if prepared is not None and prepared.items is items:
            return prepared
        fits = prepared is not None and prepared.items.lineage is items.lineage and prepared.n <= items.size
        if prepared is not None and fits and (items.size - prepared.n) * TAIL <= items.size:
            self._prepared = _updated(prepared, items)
            return self._prepared
        self._n_scanned += int(min(n_queries, self._patience))
        if items.size < self._min_items or self._n_scanned < self._patience:
            return None
        Integer(-(-8 * items.codes.shape[1] // 24), 8 * items.codes.shape[1], or_none=True).check(
            "n_tables", self.n_tables
        )
        tables = Tables.of(items.codes, self.n_tables)
        counts = np.diff(tables.starts)
        whole = _Prepared(
            Items(items.codes, items.ids, n_alive=items.size, lineage=items.lineage),
            items.size, tables, counts, tables.order[tables.starts[:-1]],
        )  # fmt: skip
        self._n_scanned = 0
        self._prepared = _updated(whole, items)
        return self._prepared

    def _search_among(
        self, items: Items, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        prepared = self._prepared_for(items, len(codes)) if allowed is None and len(codes) else None
        if prepared is None or k * self._share > prepared.n_alive:
            return super()._search_among(items, codes, k, allowed, n_jobs)
        queries = self._permuted(prepared, codes)
        budget = int(self._budget * items.size)
        parts = [(prepared, queries[a:b], k, budget) for a, b in chunks(len(codes), QUERIES_PER_CHUNK)]
        found = zip(*run_tasks(_by_tables, parts, n_jobs=n_jobs), strict=True)
        distances, positions, finished, _ = (np.concatenate(part) for part in found)
        if prepared.n < items.size:
            self._merge_tail(items, prepared.n, codes, distances, positions)
        left = np.flatnonzero(~finished)
        if len(left):
            n_items = len(items)
            distances[left], positions[left] = self._nearest(items, codes[left], k, items.alive, n_items, n_jobs)
        return distances, decode(items.ids[positions])

    def cost(self, codes: NDArray[np.uint8], *, k: int, radius: int | None = None) -> float:
        """The mean cost of a query by tables, as a part of a scan; `hashgrove.build_index` uses it."""
        items = self._now()
        self.prepare()
        prepared = self._prepared
        if prepared is None or prepared.items is not items or k * self._share > prepared.n_alive:
            return 1.0
        queries, budget = self._permuted(prepared, codes), int(self._budget * items.size)
        if radius is None:
            costs = _by_tables(prepared, queries, k, budget)[3]
        else:
            costs = np.array([within_by_tables(*prepared.arrays(), query, radius, budget)[2] for query in queries])
        return float(np.where(costs > budget, costs + items.size, costs).mean() / items.size)

    def _permuted(self, prepared: _Prepared, codes: NDArray[np.uint8]) -> NDArray[np.uint64]:
        words = as_words(codes)
        queries = np.empty_like(words)
        permute_bits(words, prepared.tables.bits, queries)
        return queries

    def _merge_tail(
        self,
        items: Items,
        n: int,
        codes: NDArray[np.uint8],
        distances: NDArray[np.uint16],
        positions: NDArray[np.int64],
    ) -> None:
        """Put the items that are not in the tables among the results."""
        k, places = distances.shape[1], n + np.flatnonzero(items.mask()[n:])
        tail = Items(items.codes[places], items.ids[places], n_alive=len(places))
        near, found = FlatIndex()._nearest(tail, codes, min(k, len(places)), None, len(places), 1)
        joined = np.concatenate([distances, near], axis=1), np.concatenate([positions, places[found]], axis=1)
        best = np.argsort(joined[0], axis=1, kind="stable")[:, :k]  # stable: the tail comes after the tables
        distances[:], positions[:] = (np.take_along_axis(part, best, axis=1) for part in joined)

    def _search_radius(
        self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[Any]]]:
        items = self._now()
        prepared = self._prepared_for(items, len(codes)) if allowed is None and len(codes) else None
        if prepared is None:
            return super()._search_radius(codes, radius, allowed, n_jobs)
        queries, budget = self._permuted(prepared, codes), int(self._budget * items.size)
        tail = as_columns(items.codes[prepared.n :]) if prepared.n < items.size else None
        words = as_words(codes)

        def search_one(number: int) -> tuple[NDArray[np.uint16], NDArray[np.int64]] | None:
            near, found, cost = within_by_tables(*prepared.arrays(), queries[number], radius, budget)
            if cost > budget:
                return None
            starts, ends = prepared.tables.starts[found], prepared.tables.starts[found + 1]
            lengths = ends - starts
            shifts = np.repeat(starts - (lengths.cumsum() - lengths), lengths)
            positions = prepared.tables.order[np.arange(int(lengths.sum())) + shifts]
            distances = np.repeat(near, lengths)
            if tail is not None:
                more = _tail_within(tail, words[number : number + 1], radius)
                distances = np.concatenate([distances, more[0]])
                positions = np.concatenate([positions, prepared.n + more[1]])
            if items.alive is not None:
                kept = items.alive[positions >> 6] >> (positions & 63).astype(np.uint64) & np.uint64(1) == 1
                distances, positions = distances[kept], positions[kept]
            order = np.lexsort((positions, distances))
            return distances[order], positions[order]

        results = run_tasks(search_one, [(number,) for number in range(len(codes))], n_jobs=n_jobs)
        left = [number for number, result in enumerate(results) if result is None]
        scanned = iter(zip(*super()._search_radius(codes[left], radius, None, n_jobs), strict=True))
        both = [next(scanned) if r is None else (r[0], decode(items.ids[r[1]])) for r in results]
        return [distances for distances, _ in both], [ids for _, ids in both]


def _by_tables(
    prepared: _Prepared, queries: NDArray[np.uint64], k: int, budget: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """The output of `nearest_by_tables` for some queries, which have their bits in the order of the tables."""
    alive, shape = prepared.items.alive, (len(queries), k)
    out = np.empty(shape, np.uint16), np.empty(shape, np.int64), np.empty(len(queries), np.bool_)
    costs = np.empty(len(queries), np.int64)
    tables = prepared.tables
    nearest_by_tables(
        *prepared.arrays(), tables.starts, tables.order, prepared.counts, prepared.firsts,
        scan.ALL if alive is None else alive, queries, budget, *out, costs,
    )  # fmt: skip
    return *out, costs


def _tail_within(
    columns: NDArray[np.uint64], query: NDArray[np.uint64], radius: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    counts = np.empty(1, np.int64)
    scan.count_within(columns, scan.ALL, query, radius + 1, counts)
    distances, positions = np.empty(counts[0], np.uint16), np.empty(counts[0], np.int64)
    scan.fill_within(columns, scan.ALL, query, radius + 1, counts, distances, positions)
    return distances, positions


def _updated(prepared: _Prepared, items: Items) -> _Prepared:
    """The same tables for items of which some have been removed since, or added at the end."""
    n, tables, counts, firsts = prepared.n, prepared.tables, prepared.counts, prepared.firsts
    if items.alive is not prepared.items.alive:
        alive = items.mask()
        gone = np.flatnonzero(prepared.items.mask()[:n] & ~alive[:n])
        numbers = np.empty(n, np.int64)
        numbers[tables.order] = np.repeat(np.arange(tables.n_distinct), np.diff(tables.starts))
        counts, firsts = counts - np.bincount(numbers[gone], minlength=len(counts)), firsts.copy()
        first_alive(np.unique(numbers[gone]), tables.starts, tables.order, alive, firsts)
    return _Prepared(items, n, tables, counts, firsts)


@kernel
def first_alive(numbers: Any, starts: Any, order: Any, alive: Any, firsts: Any) -> None:
    """Write the first item of some codes that is alive (bool) to ``firsts``; those without any are left as they are."""
    for number in numbers:
        for place in range(starts[number], starts[number + 1]):
            if alive[order[place]]:
                firsts[number] = order[place]
                break
