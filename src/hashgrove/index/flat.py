"""`FlatIndex`: exact search that compares each query with every code."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import as_columns, as_words, check_codes
from hashgrove.index import scan
from hashgrove.index.base import Index, Items
from hashgrove.index.weighted import byte_tables, check_weights
from hashgrove.runtime.parameters import Integer
from hashgrove.runtime.threads import available_threads, chunks, run_tasks

__all__ = ["FlatIndex"]

QUERIES_PER_CHUNK = 32  # queries that read the same tile of the database from the cache
MIN_SLICE = 2**16  # a slice of the database with fewer items is not worth another thread


class FlatIndex(Index):
    """Exact search that compares each query with every code; `Index` states its contract.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes), optional
        Codes to start with, as returned by `Hasher.transform` or `pack`. They are copied.
    ids : array-like of int, shape (n,), optional
        The ids of these codes, in any order and without duplicates; 0, 1, 2, ... if left out.

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
        """All codes in the layout of `hashgrove.codes.as_columns`, read-only."""
        return self._columns_of(self._items)

    def _columns_of(self, items: Items) -> NDArray[np.uint64]:
        derived = self._derived
        if derived is None or derived[0] is not items:
            self._derived = None  # frees the memory of the old columns before there are new ones
            # an index that never held a code does not know its number of bytes: any will do
            derived = items, as_columns(items.codes if len(items) else np.empty((0, 1), np.uint8))
            self._derived = derived
        return derived[1]

    def search(
        self, codes: ArrayLike, k: int, *, n_jobs: int | None = None
    ) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Find the ``k`` nearest items of each query, sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        k : int
            At least 1. If it is larger than the number of items, all items are returned.
        n_jobs : int, optional
            Number of threads; None or -1 means all cores.

        Returns
        -------
        distances : uint16 array of shape (n_queries, min(k, n))
        ids : int64 array of shape (n_queries, min(k, n))

        Examples
        --------
        >>> FlatIndex(np.array([[7], [1]], np.uint8)).search(np.array([[0]], np.uint8), 10)
        (array([[1, 3]], dtype=uint16), array([[1, 0]]))
        """
        items = self._items
        codes = check_codes(codes, n_bytes=items.n_bytes)
        k = min(int(Integer(1).check("k", k)), len(items))
        n_threads = available_threads(n_jobs)
        if k == 0 or len(codes) == 0:
            return np.empty((len(codes), k), np.uint16), np.empty((len(codes), k), np.int64)
        # With a small k, the buffers of a chunk take at most 20 bytes per item.
        search_all = _search_buffered if _capacity(k) <= len(items) // 16 else _search_counting
        distances, positions = search_all(self._columns_of(items), as_words(codes), k, n_threads)
        return distances, items.ids[positions]

    def search_weighted(
        self, codes: ArrayLike, weights: ArrayLike, k: int, *, n_jobs: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the ``k`` nearest items of each query where each bit that differs counts with its weight.

        With the margins of the query's bits as weights, this ranks better than the Hamming distance and needs no more
        bytes per item, but it takes several times as long. Results are sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        weights : array of shape (n_queries, n_bits)
            Not negative; for example ``abs(hasher.decision_function(X))``. They are rounded to multiples of about
            1 / 32,768 of their sum over the query, and so are the distances. Only their ratios matter for the order.
        k : int
            At least 1. If it is larger than the number of items, all items are returned.
        n_jobs : int, optional
            Number of threads; None or -1 means all cores.

        Returns
        -------
        distances : float32 array of shape (n_queries, min(k, n))
            In the unit of the weights; infinity or 0 where float32 cannot hold them.
        ids : int64 array of shape (n_queries, min(k, n))

        Examples
        --------
        >>> index = FlatIndex(np.array([[0b00], [0b01], [0b10]], np.uint8))
        >>> distances, ids = index.search_weighted(np.array([[0b11]], np.uint8), [[3.0, 1.0]], 3)
        >>> distances.round(3).tolist(), ids.tolist()
        ([[1.0, 3.0, 4.0]], [[1, 2, 0]])
        """
        items = self._items
        codes = check_codes(codes, n_bytes=items.n_bytes)
        amounts = check_weights(weights, codes)
        k = min(int(Integer(1).check("k", k)), len(items))
        distances, ids = np.empty((len(codes), k), np.float32), np.empty((len(codes), k), np.int64)
        if k == 0:
            return distances, ids
        columns = self._columns_of(items)

        def search_chunk(start: int, stop: int) -> None:
            tables, units = byte_tables(codes[start:stop], amounts[start:stop])
            for row, table, unit in zip(range(start, stop), tables, units, strict=True):
                whole, positions = scan.nearest_weighted(columns, table, k)
                with np.errstate(over="ignore"):  # a distance beyond float32 becomes infinity
                    distances[row], ids[row] = whole * unit, items.ids[positions]

        run_tasks(search_chunk, chunks(len(codes), QUERIES_PER_CHUNK), n_jobs=n_jobs)
        return distances, ids

    def search_radius(
        self, codes: ArrayLike, radius: int, *, n_jobs: int | None = None
    ) -> tuple[list[NDArray[np.uint16]], list[NDArray[np.int64]]]:
        """Find all items within ``radius`` (inclusive) of each query, sorted by distance and then by id.

        Parameters
        ----------
        codes : uint8 array of shape (n_queries, n_bytes)
            The queries.
        radius : int
            At least 0; 0 finds equal codes.
        n_jobs : int, optional
            Number of threads; None or -1 means all cores.

        Returns
        -------
        distances : list of n_queries uint16 arrays
        ids : list of n_queries int64 arrays

        Examples
        --------
        >>> index = FlatIndex(np.array([[0], [1], [3]], np.uint8))
        >>> distances, ids = index.search_radius(np.array([[0]], np.uint8), 1)
        >>> distances[0], ids[0]
        (array([0, 1], dtype=uint16), array([0, 1]))
        """
        items = self._items
        codes = check_codes(codes, n_bytes=items.n_bytes)
        radius = int(Integer(0).check("radius", radius))
        columns, queries = self._columns_of(items), as_words(codes)

        def search_chunk(start: int, stop: int) -> tuple[list[NDArray[np.uint16]], list[NDArray[np.int64]]]:
            counts = _counts(columns, queries[start:stop])
            counts[:, radius + 1 :] = 0
            ends = counts.sum(axis=1).cumsum()
            cursors = counts.ravel().cumsum().reshape(counts.shape) - counts
            limits = np.full(stop - start, min(radius, counts.shape[1] - 1))
            distances, positions = np.empty(int(ends[-1]), np.uint16), np.empty(int(ends[-1]), np.int64)
            scan.fill(columns, queries[start:stop], limits, cursors, ends, distances, positions)
            return np.split(distances, ends[:-1]), np.split(items.ids[positions], ends[:-1])

        parts = run_tasks(search_chunk, chunks(len(codes), QUERIES_PER_CHUNK), n_jobs=n_jobs)
        return [d for part in parts for d in part[0]], [i for part in parts for i in part[1]]


def _search_buffered(
    columns: NDArray[np.uint64], queries: NDArray[np.uint64], k: int, n_threads: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Search in one pass with a buffer. Threads divide up the queries and, if these are few, the database too."""
    n, capacity = columns.shape[1], _capacity(k)
    query_parts = chunks(len(queries), QUERIES_PER_CHUNK)
    n_slices = min(-(-n_threads // len(query_parts)), max(1, n // max(16 * capacity, MIN_SLICE)))
    slices = chunks(n, -(-n // n_slices))
    distances = np.empty((len(slices), len(queries), k), np.uint16)
    positions = np.empty((len(slices), len(queries), k), np.int64)
    tasks = [
        (columns, first, last, queries[a:b], capacity, distances[s, a:b], positions[s, a:b])
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
    columns: NDArray[np.uint64], queries: NDArray[np.uint64], k: int, n_threads: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Search in two passes, for a k that is a large part of the database."""
    distances, positions = np.empty((len(queries), k), np.uint16), np.empty((len(queries), k), np.int64)

    def search_chunk(start: int, stop: int) -> None:
        part = slice(start, stop)
        counts = _counts(columns, queries[part])
        first = np.arange(stop - start)[:, None] * k
        found = counts.cumsum(axis=1)
        limits = np.argmax(found >= k, axis=1)
        flat = distances[part].reshape(-1), positions[part].reshape(-1)
        scan.fill(columns, queries[part], limits, first + found - counts, first[:, 0] + k, *flat)

    run_tasks(search_chunk, chunks(len(queries), QUERIES_PER_CHUNK), n_jobs=n_threads)
    return distances, positions


def _capacity(k: int) -> int:
    """Size of the buffer of candidates per query: a smaller one is cut back too often, a larger one too late."""
    return 2 * k + 32


def _counts(columns: NDArray[np.uint64], queries: NDArray[np.uint64]) -> NDArray[np.int64]:
    counts = np.zeros((len(queries), 64 * queries.shape[1] + 1), np.int64)
    scan.count(columns, queries, counts)
    return counts
