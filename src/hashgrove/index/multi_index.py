"""`MultiIndex`: exact search that reads only the buckets that may hold near codes, and scans where that is faster."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import as_columns, as_words
from hashgrove.index import scan
from hashgrove.index.flat import FlatIndex
from hashgrove.index.items import Items
from hashgrove.index.plan import Plan
from hashgrove.index.prepared import Prepared, ready_tables
from hashgrove.index.probe import nearest_by_tables, within_by_tables
from hashgrove.index.tables import MAX_ITEMS, Tables, table_limits
from hashgrove.runtime.parameters import Integer
from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.storage.formats import one_line

__all__ = ["MultiIndex"]

log = logging.getLogger("hashgrove")

QUERIES_PER_CHUNK = 32
MEMORY = 3  # reading the codes from memory costs as much as comparing them with this many queries


class MultiIndex(FlatIndex):
    """Exact search by multi-index hashing, for millions of items; `Index` states its contract.

    The results are those of `FlatIndex`, always, ties included. Distinct codes are kept in several tables, each sorted
    by some of the bits; see `hashgrove.index.tables`. A query reads the buckets that may hold near codes, nearest
    first, until no other code can be nearer. A query for which that would take long, because its neighbours are far or
    its buckets large, is scanned as in `FlatIndex`; so is a search with ``allowed``. `hashgrove.build_index` chooses
    between the two classes.

    The tables take about 12 bytes per table and distinct code of 64 bits. `prepare` builds them; without it, a thread
    does so when many queries have been scanned, and again after items have been added at other places than the end. No
    search waits for it. `save` writes tables that are ready, unless items have been removed, and `load` maps them.

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
    _min_items = 2**16  # fewer items are scanned in the time that it takes to find buckets
    _patience = 2**14  # queries that are scanned before tables are built, which takes about as long
    _patience_mapped = 2**9  # the same before tables are mapped from the folder and verified
    _prepared: Prepared | None = None
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
        self._preparing = threading.Lock()
        super().__init__(codes, ids=ids, model=model)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_preparing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"_preparing": threading.Lock()})

    @classmethod
    def sharing(cls, index: FlatIndex, tables: Tables) -> MultiIndex:
        """A new index with the items of another one, which are not copied, and their tables."""
        shared = cls(model=index.model)
        items = index._now()
        shared._items = replace(items, tables=lambda: tables)
        return shared

    @classmethod
    def write_tables(cls, index: FlatIndex, plan: Plan) -> None:
        """Write tables to the folder of an index that is writable; it holds a `MultiIndex` from now on."""
        with index._open_store("changed").change() as writing:
            writing.now = replace(writing.now, index=cls.__name__)
            writing.replace_tables(plan)
            writing.commit()

    def prepare(self, *, wait: bool = True) -> None:
        """Have tables ready: map them from the folder, or build them if they are missing or no longer fit.

        If the index is writable, tables that were built are written to its folder. Fewer than 65,536 items get none.

        Parameters
        ----------
        wait : bool
            Whether to return only when the tables are ready. Otherwise a thread does the work, and searches scan until
            it is done; if it fails, the log says why.
        """
        if wait:
            with self._preparing:
                self._make_ready()
        elif not self._preparing.locked():
            threading.Thread(target=self._prepare_in_background, name="hashgrove-tables", daemon=True).start()

    def _prepare_in_background(self) -> None:
        if not self._preparing.acquire(blocking=False):
            return  # another thread has begun
        try:
            self._make_ready()
        except Exception as error:  # searches scan; the next thread tries again
            log.warning("The tables of an index are not used: %s", one_line(error))
        finally:
            self._preparing.release()

    def _make_ready(self) -> None:
        items = self._now()
        if not self.takes_tables(items.size):
            return
        limits = table_limits(8 * items.codes.shape[1])
        Integer(*limits, or_none=True).check("n_tables", self.n_tables)
        prepared = self._prepared
        if prepared is None or not prepared.fits(items):
            tables = ready_tables(items)
            prepared = None if tables is None else Prepared.of(tables, items)
        self._n_scanned = 0  # whatever comes of it
        if prepared is None or not prepared.fits(items):
            prepared = Prepared.of(self._keep(Plan.of(items.codes, self.n_tables), items), items)
        self._prepared = prepared.updated(items)

    def _keep(self, plan: Plan, items: Items) -> Tables:
        """Make the tables of some items, and keep them with the items if they still fit these.

        If the index is writable, they are written to the folder one after the other, and mapped.
        """
        tables = None if self._writable else plan.tables()
        with self._changing:
            now, store = self._items, self._store
            fits = now.lineage is items.lineage
            # after an update, positions are other ones when the folder is loaded
            if tables is None and fits and store is not None and now.size == store.manifest.n_rows:
                with store.change() as writing:
                    writing.replace_tables(plan)
                    tables = writing.tables()
                    writing.commit()
            ready = plan.tables() if tables is None else tables
            if fits:
                self._items = replace(now, tables=lambda: ready)
        return ready

    def _prepared_for(self, items: Items, n_queries: int) -> Prepared | None:
        """The tables for some items; None if they are not ready, in which case a thread may begin to prepare them.

        It begins at once if tables only have to learn what has been removed, and after some queries if there are none.
        """
        prepared = self._prepared
        if prepared is not None and prepared.items is items:
            return prepared
        if prepared is not None and prepared.fits(items):
            if items.alive is prepared.items.alive:
                self._prepared = prepared = prepared.updated(items)
                return prepared
            self.prepare(wait=False)
        elif self.takes_tables(items.size):
            self._n_scanned += n_queries
            if self._n_scanned >= (self._patience if items.tables is None else self._patience_mapped):
                self.prepare(wait=False)
        return None

    def _search_among(
        self, items: Items, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        prepared = self._prepared_for(items, len(codes)) if allowed is None and len(codes) else None
        if prepared is None or k * self._share > prepared.n_alive:
            return super()._search_among(items, codes, k, allowed, n_jobs)
        queries, budget = prepared.tables.permuted(codes), self.budget(items.size, len(codes))
        parts = [(prepared, queries[a:b], k, budget) for a, b in chunks(len(codes), QUERIES_PER_CHUNK)]
        found = zip(*run_tasks(_by_tables, parts, n_jobs=n_jobs), strict=True)
        distances, positions, finished, _ = (np.concatenate(part) for part in found)
        if prepared.n < items.size:
            self._merge_tail(items, prepared.n, codes, distances, positions)
        left = np.flatnonzero(~finished)
        if len(left):
            n_items = len(items)
            distances[left], positions[left] = self._nearest(items, codes[left], k, items.alive, n_items, n_jobs)
        return distances, items.ids[positions]

    def takes_tables(self, n: int, *, k: int = 0) -> bool:
        """Whether tables are of use for so many items and, with ``k``, for a search for so many of them."""
        return self._min_items <= n <= MAX_ITEMS and k * self._share <= n

    def budget(self, n: int, n_queries: int) -> int:
        """Comparisons that a query among n items may cost by tables; more for few, whose scan would wait for memory."""
        return int(self._budget * n * (1 + MEMORY / n_queries))

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
        tail = Items(items.codes[places], items.ids.select(places), n_alive=len(places))
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
        queries, budget = prepared.tables.permuted(codes), self.budget(items.size, len(codes))
        tail = as_columns(items.codes[prepared.n :]) if prepared.n < items.size else None
        words = as_words(codes)

        def search_one(number: int) -> tuple[NDArray[np.uint16], NDArray[np.int64]] | None:
            near, found, cost = within_by_tables(*prepared.arrays(), queries[number], radius, budget)
            if cost > budget:
                return None
            starts, ends = (prepared.tables.starts[found + end].astype(np.int64) for end in (0, 1))
            lengths = ends - starts
            shifts = np.repeat(starts - (lengths.cumsum() - lengths), lengths)
            positions = prepared.tables.order[np.arange(int(lengths.sum())) + shifts].astype(np.int64)
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
        both = [next(scanned) if r is None else (r[0], items.ids[r[1]]) for r in results]
        return [distances for distances, _ in both], [ids for _, ids in both]


def _by_tables(
    prepared: Prepared, queries: NDArray[np.uint64], k: int, budget: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """The output of `nearest_by_tables` for some queries, which have their bits in the order of the tables."""
    alive, shape = prepared.items.alive, (len(queries), k)
    out = np.empty(shape, np.uint16), np.zeros(shape, np.int64), np.empty(len(queries), np.bool_)
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
