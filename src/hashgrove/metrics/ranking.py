"""Rankings are measured by counting distances: nothing is sorted and no ranking is kept in memory.

Two histograms of distances per query, of all items and of the relevant ones, are enough for the expectation over random
orders of tied items (`hashgrove.metrics.expectation`). If ties are ranked by id, a second pass in ascending order of
position gives each relevant item its rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import TILE, distances_to_range
from hashgrove.index.counting import BYTE_TILE, BYTE_WORDS, TABLE_SIZE, add_histogram, byte_distances
from hashgrove.index.strips import width_of
from hashgrove.index.weighted import weighted_distances
from hashgrove.metrics.relevance import mark
from hashgrove.runtime.compiling import kernel

__all__ = [
    "count_by_class",
    "count_relevant",
    "count_weighted",
    "rank_by_id",
    "vote",
]

LANES = 4  # histograms that are filled in turn: items in a row at one distance would wait for each other's store


@kernel
def count_relevant(
    columns: Any,
    queries: Any,
    label_columns: Any,
    labels: Any,
    min_shared: int,
    left_out: Any,
    totals: Any,
    relevant: Any,
) -> None:
    """Write the number of items and of relevant items at each distance to ``totals`` and ``relevant``.

    Both are int64 (n_queries, n_distances). ``columns`` is uint64 (n_words, n), ``queries`` is uint64 (n_queries,
    n_words); the labels are those of `mark`. ``left_out[q]`` is the position of an item that is not counted for query
    ``q``, or -1.
    """
    n = columns.shape[1]
    n_queries, n_distances = totals.shape
    tables = np.zeros((n_queries, LANES, 2 * n_distances), np.uint32)
    tile, marks = np.empty(TILE, np.uint16), np.empty(TILE, np.uint16)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(n_queries):
            distances_to_range(columns, queries[q], start, stop, tile)
            mark(label_columns, labels[q], min_shared, start, stop, marks)
            table = tables[q]
            for i in range(np.uint64(stop - start)):
                cell = np.uint64(2) * np.uint64(tile[i]) + np.uint64(marks[i])
                table[i % np.uint64(LANES), cell] += np.uint32(1)
            if start <= left_out[q] < stop:
                place = left_out[q] - start
                table[place % LANES, 2 * np.int64(tile[place]) + np.int64(marks[place])] -= np.uint32(1)
    for q in range(n_queries):
        for d in range(n_distances):
            irrelevant = np.int64(0)
            hits = np.int64(0)
            for lane in range(LANES):
                irrelevant += np.int64(tables[q, lane, 2 * d])
                hits += np.int64(tables[q, lane, 2 * d + 1])
            totals[q, d] = irrelevant + hits
            relevant[q, d] = hits


@kernel
def count_weighted(
    columns: Any,
    planes: Any,
    label_columns: Any,
    labels: Any,
    min_shared: int,
    left_out: Any,
    totals: Any,
    relevant: Any,
) -> None:
    """The same as `count_relevant`, for weighted distances; ``planes`` are those of `weight_planes`."""
    n = columns.shape[1]
    tile, marks, sums = np.empty(TILE, np.uint16), np.empty(TILE, np.uint16), np.empty(TILE, np.uint64)
    totals[:] = 0
    relevant[:] = 0
    for q in range(len(planes)):
        for start in range(0, n, TILE):
            stop = min(start + TILE, n)
            weighted_distances(columns, planes[q], start, stop, sums, tile)
            mark(label_columns, labels[q], min_shared, start, stop, marks)
            for i in range(stop - start):
                if start + i != left_out[q]:
                    totals[q, tile[i]] += 1
                    relevant[q, tile[i]] += marks[i]


def count_by_class(
    columns: NDArray[np.uint64],
    queries: NDArray[np.uint64],
    firsts: NDArray[np.int64],
    lasts: NDArray[np.int64],
    left_out: NDArray[np.int64],
    totals: NDArray[np.int64],
    relevant: NDArray[np.int64],
) -> None:
    """The same as `count_relevant`, for class labels and a database that is sorted by class.

    The items of the class of query q are those from ``firsts[q]`` to ``lasts[q]``, so no item needs a mark.
    """
    arguments = columns, queries, firsts, lasts, left_out, totals, relevant
    if columns.shape[0] <= BYTE_WORDS:
        _count_by_class_in_bytes(width_of(columns.shape[0]), *arguments)
    else:
        _count_by_class(*arguments)


@kernel
def _count_by_class_in_bytes(
    width: Any, columns: Any, queries: Any, firsts: Any, lasts: Any, left_out: Any, totals: Any, relevant: Any
) -> None:
    """`count_by_class` for codes of at most `BYTE_WORDS` words."""
    n_words, n = columns.shape
    n_queries, n_distances = totals.shape
    words, asked, step = columns.reshape(-1), queries.reshape(-1), np.uint64(n_words)
    tile = np.empty(BYTE_TILE, np.uint8)
    found, hits = np.zeros((n_queries, TABLE_SIZE), np.int64), np.zeros((n_queries, TABLE_SIZE), np.int64)
    for start in range(0, n, BYTE_TILE):
        stop = min(start + BYTE_TILE, n)
        for q in range(n_queries):
            byte_distances(
                words, np.uint64(n), asked, np.uint64(q) * step, step, width, np.uint64(start), np.uint64(stop), tile
            )
            add_histogram(tile[: stop - start], found[q])
            first, last = max(firsts[q], start) - start, min(lasts[q], stop) - start
            if first < last:
                add_histogram(tile[first:last], hits[q])
            if start <= left_out[q] < stop:
                distance = tile[left_out[q] - start]
                found[q, distance] -= 1
                hits[q, distance] -= firsts[q] <= left_out[q] < lasts[q]
    for q in range(n_queries):  # totals[:] = found[...] takes numba about a second to compile
        for distance in range(n_distances):
            totals[q, distance] = found[q, distance]
            relevant[q, distance] = hits[q, distance]


@kernel
def _count_by_class(
    columns: Any, queries: Any, firsts: Any, lasts: Any, left_out: Any, totals: Any, relevant: Any
) -> None:
    """`count_by_class` for codes of any length."""
    n = columns.shape[1]
    n_queries, n_distances = totals.shape
    tables = np.zeros((n_queries, LANES, n_distances), np.uint32)
    tile = np.empty(TILE, np.uint16)
    relevant[:] = 0
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(n_queries):
            distances_to_range(columns, queries[q], start, stop, tile)
            table = tables[q]
            for i in range(np.uint64(stop - start)):
                table[i % np.uint64(LANES), tile[i]] += np.uint32(1)
            for i in range(max(firsts[q], start) - start, min(lasts[q], stop) - start):
                relevant[q, tile[i]] += 1
            if start <= left_out[q] < stop:
                place = left_out[q] - start
                table[place % LANES, tile[place]] -= np.uint32(1)
                relevant[q, tile[place]] -= firsts[q] <= left_out[q] < lasts[q]
    for q in range(n_queries):
        for d in range(n_distances):
            totals[q, d] = 0
            for lane in range(LANES):
                totals[q, d] += np.int64(tables[q, lane, d])


@kernel
def rank_by_id(
    columns: Any,
    queries: Any,
    label_columns: Any,
    labels: Any,
    min_shared: int,
    left_out: Any,
    ranks: Any,
    seen: Any,
    interval: Any,
    precision_sums: Any,
    hits: Any,
) -> None:
    """Second pass, for ties by position: add up the precision at the ranks of relevant items, and count these.

    ``ranks`` and ``seen``, int64 (n_queries, n_distances), must hold the number of items and of relevant items nearer
    than each distance; both are overwritten. A relevant item at a rank is counted in the column ``interval[rank]``
    of ``hits``, int64 (n_queries, n_depths); ranks beyond the end of ``interval`` are not counted. The sums go to
    ``precision_sums``, float64 (n_queries,).
    """
    n = columns.shape[1]
    tile, marks = np.empty(TILE, np.uint16), np.empty(TILE, np.uint16)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(queries.shape[0]):
            distances_to_range(columns, queries[q], start, stop, tile)
            mark(label_columns, labels[q], min_shared, start, stop, marks)
            skip = left_out[q] - start
            for i in range(np.uint64(stop - start)):
                if np.int64(i) == skip:
                    continue
                d = np.uint64(tile[i])
                ranks[q, d] += 1
                if marks[i]:
                    seen[q, d] += 1
                    if ranks[q, d] < len(interval):
                        precision_sums[q] += seen[q, d] / ranks[q, d]
                        hits[q, interval[ranks[q, d]]] += 1


@kernel
def vote(neighbours: Any, left_out: Any, k: int, classes: Any, n_classes: int, predicted: Any) -> None:
    """Write the majority class of the first ``k`` neighbours of each query, without the item ``left_out[q]``.

    ``neighbours`` is int64 (n_queries, m) with positions from near to far; ``classes`` is uint64 (n,). Of classes with
    equally many votes, the one that comes first among the neighbours wins.
    """
    votes = np.zeros(n_classes, np.int64)
    for q in range(neighbours.shape[0]):
        votes[:] = 0
        cast = 0
        for position in neighbours[q]:
            if position != left_out[q] and cast < k:
                votes[classes[position]] += 1
                cast += 1
        best = 0
        for position in neighbours[q]:
            if position != left_out[q] and votes[classes[position]] > best:
                best = votes[classes[position]]
                predicted[q] = classes[position]
