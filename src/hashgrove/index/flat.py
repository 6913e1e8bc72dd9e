"""`FlatIndex`: exact search that compares each query with every code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import as_columns, as_words
from hashgrove.index import counting, scan
from hashgrove.index.items import Items, as_mask
from hashgrove.index.memory import MemoryIndex
from hashgrove.index.weighted import weight_planes
from hashgrove.runtime.threads import available_threads, chunks, run_tasks

__all__ = ["FlatIndex"]

QUERIES_PER_CHUNK = 64  # queries that read the same tile of the database from the cache
MIN_SLICE = 2**16  # a slice of the database with fewer items is not worth another thread


class FlatIndex(MemoryIndex):
    """Exact search that compares each query with every code; `Index` states its contract.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes), optional
        Codes to start with, as returned by `Hasher.transform` or `pack`. They are copied.
    ids : array-like of int or str, shape (n,), optional
        The ids of these codes, in any order and without duplicates; 0, 1, 2, ... if left out.
    model : str, or an object with the attribute ``digest``, optional
        The model that made the codes.

    Examples
    --------
    >>> index = FlatIndex(np.array([[0b0000], [0b0001], [0b1111]], np.uint8))
    >>> distances, ids = index.search(np.array([[0b0011]], np.uint8), 2)
    >>> distances
    array([[1, 2]], dtype=uint16)
    >>> ids
    array([[1, 0]])
    """

    _derived: tuple[Items, NDArray[np.uint64]] | None = None  # items and their columns, as of the latest search

    @property
    def columns(self) -> NDArray[np.uint64]:
        """All codes, in ascending order of their ids, in the layout of `hashgrove.codes.as_columns`; read-only."""
        items = self._now()
        return self._columns_of(items if items.alive is None else items.compacted())

    def _columns_of(self, items: Items) -> NDArray[np.uint64]:
        derived = self._derived
        if derived is None or derived[0] is not items:
            self._derived = None  # frees the memory of the old columns before there are new ones
            # an index that never held a code does not know its number of bytes: any will do
            derived = items, as_columns(items.codes if items.size else np.empty((0, 1), np.uint8))
            self._derived = derived
        return derived[1]

    def _search_among(
        self, items: Items, codes: NDArray[np.uint8], k: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        mask, n_allowed = self._allowed_bitmap(items, allowed)
        distances, positions = self._nearest(items, codes, min(k, n_allowed), mask, n_allowed, n_jobs)
        return distances, items.ids[positions]

    def _nearest(
        self,
        items: Items,
        codes: NDArray[np.uint8],
        k: int,
        mask: NDArray[np.uint64] | None,
        n_allowed: int,
        n_jobs: int | None,
    ) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Distances and positions of the nearest items; k is at most ``n_allowed``, the number of bits in ``mask``."""
        if k == 0 or len(codes) == 0:
            return np.empty((len(codes), k), np.uint16), np.empty((len(codes), k), np.int64)
        columns, queries, n_threads = self._columns_of(items), as_words(codes), available_threads(n_jobs)
        places = None
        if mask is not None and _is_gathered(n_allowed, items.size, len(codes)):
            places = np.flatnonzero(as_mask(mask, items.size))
            columns, mask = np.ascontiguousarray(columns[:, places]), None
            columns.flags.writeable = False  # so that kernels are compiled once
        # With a small k, the buffers of a chunk take at most 20 bytes per item.
        search_all = _search_buffered if _capacity(k) <= columns.shape[1] // 16 else _search_counting
        distances, positions = search_all(columns, scan.ALL if mask is None else mask, queries, k, n_threads)
        return distances, positions if places is None else places[positions]

    def _search_radius(
        self, codes: NDArray[np.uint8], radius: int, allowed: NDArray[Any] | None, n_jobs: int | None
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[Any]]]:
        items = self._now()
        bitmap, _ = self._allowed_bitmap(items, allowed)
        columns, queries = self._columns_of(items), as_words(codes)
        mask, limit = scan.ALL if bitmap is None else bitmap, radius + 1

        def search_chunk(start: int, stop: int) -> tuple[list[NDArray[np.uint16]], list[NDArray[Any]]]:
            counts = np.empty(stop - start, np.int64)
            scan.count_within(columns, mask, queries[start:stop], limit, counts)
            ends = counts.cumsum()
            distances, positions = np.empty(int(ends[-1]), np.uint16), np.empty(int(ends[-1]), np.int64)
            scan.fill_within(columns, mask, queries[start:stop], limit, ends, distances, positions)
            return np.split(distances, ends[:-1]), np.split(items.ids[positions], ends[:-1])

        parts = run_tasks(search_chunk, chunks(len(codes), QUERIES_PER_CHUNK), n_jobs=n_jobs)
        return [d for part in parts for d in part[0]], [i for part in parts for i in part[1]]

    def _search_weighted(
        self,
        codes: NDArray[np.uint8],
        weights: NDArray[np.float64],
        k: int,
        allowed: NDArray[Any] | None,
        n_jobs: int | None,
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        items = self._now()
        mask, n_allowed = self._allowed_bitmap(items, allowed)
        k = min(k, n_allowed)
        distances, positions = np.empty((len(codes), k), np.float32), np.empty((len(codes), k), np.int64)
        if k == 0:
            return distances, items.ids[positions]
        columns, places = self._columns_of(items), None if mask is None else np.flatnonzero(as_mask(mask, items.size))

        def search_chunk(start: int, stop: int) -> None:
            planes, units = weight_planes(codes[start:stop], weights[start:stop])
            for row, of_query, unit in zip(range(start, stop), planes, units, strict=True):
                whole, positions[row] = scan.nearest_weighted(columns, places, of_query, k)
                with np.errstate(over="ignore"):  # a distance beyond float32 becomes infinity
                    distances[row] = whole * unit

        run_tasks(search_chunk, chunks(len(codes), QUERIES_PER_CHUNK), n_jobs=n_jobs)
        return distances, items.ids[positions]


def _search_buffered(
    columns: NDArray[np.uint64], mask: NDArray[np.uint64], queries: NDArray[np.uint64], k: int, n_threads: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Search in one pass with a buffer. Threads divide up the queries and, if these are few, the database too."""
    n, capacity = columns.shape[1], _capacity(k)
    query_parts = chunks(len(queries), QUERIES_PER_CHUNK)
    n_slices = min(-(-n_threads // len(query_parts)), max(1, n // max(16 * capacity, MIN_SLICE)))
    slices = chunks(n, -(-n // (n_slices * scan.STRIP)) * scan.STRIP)
    # a slice may have fewer than k allowed items: what it leaves is as far away as nothing can be
    distances = np.full((len(slices), len(queries), k), 2**16 - 1, np.uint16)
    positions = np.zeros((len(slices), len(queries), k), np.int64)
    tasks = [
        (columns, mask, first, last, queries[a:b], capacity, distances[s, a:b], positions[s, a:b])
        for a, b in query_parts
        for s, (first, last) in enumerate(slices)
    ]
    run_tasks(scan.nearest, tasks, n_jobs=n_threads)
    if len(slices) == 1:
        return distances[0], positions[0]
    joined = np.concatenate(list(distances), axis=1), np.concatenate(list(positions), axis=1)
    best = np.argsort(joined[0], axis=1, kind="stable")[:, :k]  # stable: slices are in order of position
    return np.take_along_axis(joined[0], best, axis=1), np.take_along_axis(joined[1], best, axis=1)


def _search_counting(
    columns: NDArray[np.uint64], mask: NDArray[np.uint64], queries: NDArray[np.uint64], k: int, n_threads: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Search in two passes, for a k that is a large part of the database."""
    distances, positions = np.empty((len(queries), k), np.uint16), np.empty((len(queries), k), np.int64)

    def search_chunk(start: int, stop: int) -> None:
        part = slice(start, stop)
        counts = _counts(columns, mask, queries[part])
        first = np.arange(stop - start)[:, None] * k
        found = counts.cumsum(axis=1)
        limits = np.argmax(found >= k, axis=1)
        flat = distances[part].reshape(-1), positions[part].reshape(-1)
        counting.fill(columns, mask, queries[part], limits, first + found - counts, first[:, 0] + k, *flat)

    run_tasks(search_chunk, chunks(len(queries), QUERIES_PER_CHUNK), n_jobs=n_threads)
    return distances, positions


def _is_gathered(n_allowed: int, n: int, n_queries: int) -> bool:
    """Whether it is faster to copy the allowed items and scan the copy than to scan all and skip the others.

    Listing the allowed items costs as much as comparing each item with two queries, and copying one as much as
    comparing it with fifteen, by measurement.
    """
    return 2 * n + (15 + n_queries) * n_allowed < n * n_queries


def _capacity(k: int) -> int:
    """Size of the buffer of candidates per query: a smaller one is cut back too often, a larger one too late."""
    return 2 * k + 32


def _counts(columns: NDArray[np.uint64], mask: NDArray[np.uint64], queries: NDArray[np.uint64]) -> NDArray[np.int64]:
    counts = np.zeros((len(queries), 64 * queries.shape[1] + 1), np.int64)
    counting.count(columns, mask, queries, counts)
    return counts
