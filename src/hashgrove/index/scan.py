"""Kernels that compare queries with every code: the k nearest by a bounded buffer, or all within a radius.

All of them read the database in ascending order of position, so items at equal distances are met in the right order.
The kernels for Hamming distances hold no more than their results and a buffer of bounded size, however many codes are
equal. `hashgrove.index.tiles` compares the queries of a batch with the database, tile by tile.

``columns`` is uint64 (n_words, n) and ``queries`` uint64 (n_queries, n_words). ``mask``, uint64 (ceil(n / 64),) or
`ALL`, has a bit for each item that may be found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.strips import STRIP, distance_to, least_distance, lowest, width_of
from hashgrove.index.tiles import compare_tile, room_for_tiles, tile_end
from hashgrove.index.weighted import all_weighted_distances
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import popcount

__all__ = ["ALL", "STRIP", "count_within", "fill_within", "nearest", "nearest_weighted"]

ALL = np.empty(0, np.uint64)  # the mask that allows every item
ALL.flags.writeable = False
SAMPLE = 128  # strips from which the limit of a search is guessed
MIN_STRIPS = 4 * SAMPLE  # a database with fewer strips is searched without a guess


def nearest(
    columns: NDArray[np.uint64],
    mask: NDArray[np.uint64],
    first: int,
    last: int,
    queries: NDArray[np.uint64],
    capacity: int,
    distances: NDArray[np.uint16],
    positions: NDArray[np.int64],
) -> None:
    """Write the k nearest items of [first, last) for each query, sorted by distance and then by position.

    ``distances`` is uint16 and ``positions`` int64, both (n_queries, k) with k < capacity; ``first`` is a multiple of
    64. Where fewer than k are found, the other places are left as they are.

    One pass over the items, with a buffer of ``capacity`` candidates per query. Once k have entered, only items nearer
    than the k-th of them do; when the buffer is full, it is cut back to the best k. The first limit is guessed from a
    sample, so that not all of the first items enter; if fewer than k items are below it, the query is searched again
    without it.
    """
    width = width_of(columns.shape[0])
    _nearest(width, columns, mask, first, last, queries, capacity, distances, positions)


@kernel
def _nearest(
    width: Any,
    columns: Any,
    mask: Any,
    first: int,
    last: int,
    queries: Any,
    capacity: int,
    distances: Any,
    positions: Any,
) -> None:
    """`nearest` for codes of one width."""
    n_queries, k = distances.shape
    no_limit = 64 * columns.shape[0] + 1
    limits, guesses = np.empty(n_queries, np.uint64), np.full(n_queries, no_limit, np.uint64)
    if last - first >= MIN_STRIPS * STRIP:
        _guess_limits(width, columns, mask, first, last, queries, k, guesses)
    for q in range(n_queries):  # numba takes 4 s to compile ``limits[:] = guesses``, for its error message
        limits[q] = guesses[q]
    sizes = np.zeros(n_queries, np.int64)
    near, where = np.empty((n_queries, capacity), np.uint16), np.empty((n_queries, capacity), np.int64)
    _collect(width, columns, mask, first, last, queries, k, limits, sizes, near, where)
    counts = np.empty(no_limit, np.int64)
    for q in range(n_queries):
        if sizes[q] < k and guesses[q] < no_limit:
            limits[q], sizes[q] = no_limit, 0
            one = slice(q, q + 1)
            _collect(width, columns, mask, first, last, queries[one], k, limits[one], sizes[one], near[one], where[one])
        _sort(near[q, : sizes[q]], where[q, : sizes[q]], counts, distances[q], positions[q])


@kernel
def _guess_limits(
    width: Any, columns: Any, mask: Any, first: int, last: int, queries: Any, k: int, limits: Any
) -> None:
    """Write a distance to ``limits`` (n_queries,) below which there are probably k items, but not many more.

    `SAMPLE` strips at equal steps are looked at. If k items were below a limit, ``expected`` of these strips would have
    one of them; the limit is the smallest that more than twice as many strips reach, which chance alone hardly does.
    """
    n_words, n = np.uint64(columns.shape[0]), np.uint64(columns.shape[1])
    words, asked = columns.reshape(-1), queries.reshape(-1)
    step = (last - first) // STRIP // SAMPLE * STRIP
    n_allowed = STRIP * SAMPLE
    if mask.size:
        n_allowed = 0
        for s in range(SAMPLE):
            n_allowed += int(popcount(mask[(first + s * step) // STRIP]))
    expected = k * (STRIP * SAMPLE) / (last - first) * (STRIP * SAMPLE) / max(n_allowed, 1)
    needed = np.int64(2 * expected) + 5
    if needed > SAMPLE // 2:
        return
    counts = np.empty(64 * columns.shape[0] + 1, np.int64)
    for q in range(queries.shape[0]):
        counts[:] = 0
        for s in range(SAMPLE):
            strip = np.uint64(first + s * step)
            counts[least_distance(words, n, asked, np.uint64(q) * n_words, n_words, width, strip)] += 1
        limit, reached = 0, 0
        while reached < needed:
            reached += counts[limit]
            limit += 1
        limits[q] = limit


@kernel
def _collect(
    width: Any,
    columns: Any,
    mask: Any,
    first: int,
    last: int,
    queries: Any,
    k: int,
    limits: Any,
    sizes: Any,
    near: Any,
    where: Any,
) -> None:
    """Put the items of [first, last) that may be among the k nearest into the buffers, in order of position.

    ``near``, uint16, and ``where``, int64, are the buffers, (n_queries, capacity); ``sizes``, int64, says how full they
    are. Only items at a distance below ``limits``, uint64, enter: at most n_distances at first, later that of the k-th.
    """
    n_words = np.uint64(columns.shape[0])
    words, asked, n = columns.reshape(-1), queries.reshape(-1), np.uint64(columns.shape[1])
    counts = np.empty(64 * columns.shape[0] + 1, np.int64)
    found_at, n_below = np.zeros((len(queries), counts.size), np.int64), np.zeros(len(queries), np.int64)
    room = room_for_tiles(queries)
    near_items, hit_at = room[1], room[2]
    start, end = np.uint64(first), np.uint64(last)
    while start < end:
        stop = tile_end(np.uint64(first), start, end, room)
        n_hits = compare_tile(width, words, n, asked, n_words, limits, mask, start, stop, room)
        for hit in range(n_hits):
            found, q, strip = near_items[hit], hit_at[hit, 0], hit_at[hit, 1]
            while found:
                i = strip + lowest(found)
                found &= found - np.uint64(1)
                distance = distance_to(words, n, asked, q * n_words, n_words, i)
                if distance >= limits[q]:  # the limit has fallen since the tile was compared
                    continue
                near[q, sizes[q]] = distance
                where[q, sizes[q]] = i
                sizes[q] += 1
                found_at[q, distance] += 1
                n_below[q] += 1
                while n_below[q] >= k:  # k items are below the limit: only nearer ones than the k-th are needed
                    limits[q] -= np.uint64(1)
                    n_below[q] -= found_at[q, limits[q]]
                if sizes[q] == near.shape[1]:
                    _keep(near[q], where[q], sizes[q], k, counts)
                    sizes[q] = k
        start = stop


def count_within(
    columns: NDArray[np.uint64],
    mask: NDArray[np.uint64],
    queries: NDArray[np.uint64],
    limit: int,
    counts: NDArray[np.int64],
) -> None:
    """Write how many allowed items are at a distance below ``limit`` from each query to ``counts``, int64."""
    _count_within(width_of(columns.shape[0]), columns, mask, queries, limit, counts)


@kernel
def _count_within(width: Any, columns: Any, mask: Any, queries: Any, limit: int, counts: Any) -> None:
    """`count_within` for codes of one width."""
    n_words, limits = np.uint64(columns.shape[0]), np.full(len(queries), limit, np.uint64)
    words, asked, n = columns.reshape(-1), queries.reshape(-1), np.uint64(columns.shape[1])
    room = room_for_tiles(queries)
    near_items, hit_at = room[1], room[2]
    counts[:] = 0
    start = np.uint64(0)
    while start < n:
        stop = tile_end(np.uint64(0), start, n, room)
        n_hits = compare_tile(width, words, n, asked, n_words, limits, mask, start, stop, room)
        for hit in range(n_hits):
            counts[hit_at[hit, 0]] += np.int64(popcount(near_items[hit]))
        start = stop


def fill_within(
    columns: NDArray[np.uint64],
    mask: NDArray[np.uint64],
    queries: NDArray[np.uint64],
    limit: int,
    ends: NDArray[np.int64],
    distances: NDArray[np.uint16],
    positions: NDArray[np.int64],
) -> None:
    """Write the items that `count_within` counts, for each query sorted by distance and then by position.

    Those of query q go to the flat outputs ``distances`` (uint16) and ``positions`` (int64) up to place ``ends[q]``.
    """
    _fill_within(width_of(columns.shape[0]), columns, mask, queries, limit, ends, distances, positions)


@kernel
def _fill_within(
    width: Any, columns: Any, mask: Any, queries: Any, limit: int, ends: Any, distances: Any, positions: Any
) -> None:
    """`fill_within` for codes of one width."""
    n_words, limits = np.uint64(columns.shape[0]), np.full(len(queries), limit, np.uint64)
    words, asked, n = columns.reshape(-1), queries.reshape(-1), np.uint64(columns.shape[1])
    room = room_for_tiles(queries)
    near_items, hit_at = room[1], room[2]
    near, where = np.empty_like(distances), np.empty_like(positions)
    cursors = np.empty(queries.shape[0], np.int64)
    for q in range(queries.shape[0]):
        cursors[q] = ends[q - 1] if q else 0
    start = np.uint64(0)
    while start < n:
        stop = tile_end(np.uint64(0), start, n, room)
        n_hits = compare_tile(width, words, n, asked, n_words, limits, mask, start, stop, room)
        for hit in range(n_hits):
            found, q, strip = near_items[hit], hit_at[hit, 0], hit_at[hit, 1]
            while found:
                i = strip + lowest(found)
                found &= found - np.uint64(1)
                near[cursors[q]] = distance_to(words, n, asked, q * n_words, n_words, i)
                where[cursors[q]] = i
                cursors[q] += 1
        start = stop
    counts = np.empty(64 * columns.shape[0] + 1, np.int64)
    for q in range(queries.shape[0]):
        first, last = ends[q - 1] if q else 0, ends[q]
        _sort(near[first:last], where[first:last], counts, distances[first:last], positions[first:last])


@kernel
def _keep(near: Any, where: Any, size: int, k: int, counts: Any) -> None:
    """Move the best k of ``size`` candidates to the front, in their present order.

    Of the candidates at that distance, the first ones are kept. ``counts`` is scratch space, int64 (n_distances,).
    """
    counts[:] = 0
    for i in range(size):
        counts[near[i]] += 1
    limit = 0
    room = k  # places left for candidates at the distance ``limit``
    while counts[limit] < room:
        room -= counts[limit]
        limit += 1
    kept = 0
    for i in range(size):
        distance = np.int64(near[i])
        if distance < limit or (distance == limit and room > 0):
            if distance == limit:
                room -= 1
            near[kept] = near[i]
            where[kept] = where[i]
            kept += 1


@kernel
def _sort(near: Any, where: Any, counts: Any, distances: Any, positions: Any) -> None:
    """Write the first k candidates after a stable sort by distance; ``counts`` is scratch space."""
    counts[:] = 0
    for i in range(near.size):
        counts[near[i]] += 1
    before = 0
    for d in range(counts.size):
        before, counts[d] = before + counts[d], before
    for i in range(near.size):
        place = counts[near[i]]
        counts[near[i]] += 1
        if place < positions.size:
            distances[place] = near[i]
            positions[place] = where[i]


def nearest_weighted(
    columns: NDArray[np.uint64], allowed: NDArray[np.int64] | None, planes: NDArray[np.uint64], k: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Weighted distances and positions of the ``k`` nearest items of one query, by distance and then position.

    ``allowed`` are the positions that may be found, ascending, at least k; None for all. ``planes`` is one
    entry of those of `hashgrove.index.weighted.weight_planes`.
    """
    distances = np.empty(columns.shape[1], np.uint16)
    all_weighted_distances(columns, planes, distances)
    distances = distances if allowed is None else distances[allowed]
    limit = np.partition(distances, k - 1)[k - 1]
    found = np.flatnonzero(distances <= limit)
    found = found[np.argsort(distances[found], kind="stable")[:k]]
    return distances[found], found if allowed is None else allowed[found]
