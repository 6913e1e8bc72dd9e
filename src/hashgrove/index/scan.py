"""Kernels of the exact scan: the k nearest by a bounded buffer, and everything within a radius by counting.

All of them read the database in ascending position, so among equal distances the earlier position comes first
by itself. None holds more than it returns plus a buffer of bounded size, however many codes are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hashgrove.codes import TILE, distances_to_range
from hashgrove.jit import kernel

__all__ = ["count", "fill", "nearest"]

STRIP = 64  # distances whose minimum is taken at once, to step over the many that are too far


@kernel
def nearest(columns: Any, first: int, last: int, queries: Any, capacity: int, distances: Any, positions: Any) -> None:
    """Write the k nearest items of [first, last) for each query, by distance and then position.

    ``columns`` is uint64 (n_words, n), ``queries`` uint64 (n_queries, n_words), ``distances`` uint16 and
    ``positions`` int64, both (n_queries, k) with k < capacity and k <= last - first. Holds ``n_queries * capacity``
    candidates. One pass; a buffer that is full is cut back to its best k, after which only nearer items
    enter.
    """
    n_queries, k = distances.shape
    limits = np.full(n_queries, 65535, np.uint16)  # no distance is that large: see codes.MAX_BYTES
    sizes = np.zeros(n_queries, np.int64)
    near = np.empty((n_queries, capacity), np.uint16)
    where = np.empty((n_queries, capacity), np.int64)
    counts = np.empty(64 * columns.shape[0] + 1, np.int64)
    tile = np.empty(TILE, np.uint16)
    for start in range(first, last, TILE):
        stop = min(start + TILE, last)
        for q in range(n_queries):
            distances_to_range(columns, queries[q], start, stop, tile)
            limit = limits[q]
            size = np.uint64(sizes[q])
            length = np.uint64(stop - start)
            for strip in range(np.uint64(0), length, np.uint64(STRIP)):
                end = min(strip + np.uint64(STRIP), length)
                lowest = np.uint16(65535)
                for i in range(strip, end):
                    lowest = min(lowest, tile[i])
                if lowest >= limit:
                    continue
                for i in range(strip, end):
                    if tile[i] < limit:
                        near[q, size] = tile[i]
                        where[q, size] = start + np.int64(i)
                        size += np.uint64(1)
                        if size == np.uint64(capacity):
                            limit = _keep(near[q], where[q], np.int64(size), k, counts)
                            size = np.uint64(k)
            limits[q] = limit
            sizes[q] = size
    for q in range(n_queries):
        _sort(near[q, : sizes[q]], where[q, : sizes[q]], counts, distances[q], positions[q])


@kernel
def _keep(near: Any, where: Any, size: int, k: int, counts: Any) -> Any:
    """Move the best k of ``size`` candidates to the front, in their order; return the worst distance.

    Among the candidates at that distance the first are kept. ``counts`` is scratch, int64 (n_distances,).
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
    return np.uint16(limit)


@kernel
def _sort(near: Any, where: Any, counts: Any, distances: Any, positions: Any) -> None:
    """Write the first k of the candidates, stably sorted by distance; ``counts`` is scratch."""
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


@kernel
def count(columns: Any, queries: Any, counts: Any) -> None:
    """Add the number of items at each distance to ``counts``, int64 (n_queries, n_distances)."""
    n = columns.shape[1]
    tile = np.empty(TILE, np.uint16)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(queries.shape[0]):
            distances_to_range(columns, queries[q], start, stop, tile)
            for i in range(np.uint64(stop - start)):
                counts[q, tile[i]] += 1


@kernel
def fill(columns: Any, queries: Any, limits: Any, cursors: Any, ends: Any, distances: Any, positions: Any) -> None:
    """Write the items at distance <= ``limits[q]`` to where ``cursors`` says; the second pass of two.

    ``cursors`` is int64 (n_queries, n_distances): where the next item at a distance goes in the flat outputs
    ``distances`` (uint16) and ``positions`` (int64). Items whose place is not below ``ends[q]`` are dropped.
    """
    n = columns.shape[1]
    tile = np.empty(TILE, np.uint16)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(queries.shape[0]):
            distances_to_range(columns, queries[q], start, stop, tile)
            limit = limits[q]
            end = ends[q]
            for i in range(np.uint64(stop - start)):
                if tile[i] <= limit:
                    place = cursors[q, tile[i]]
                    if place < end:
                        cursors[q, tile[i]] = place + 1
                        distances[place] = tile[i]
                        positions[place] = start + np.int64(i)
