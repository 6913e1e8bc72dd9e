"""Search by counting, for a k that is a large part of the database: one pass counts, a second one writes items.

Both read the database in ascending order of position. ``columns`` is uint64 (n_words, n), ``queries`` uint64
(n_queries, n_words), and ``mask``, uint64 (ceil(n / 64),) or empty, has a bit for each item that may be found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hashgrove.codes import TILE, distances_to_range
from hashgrove.runtime.compiling import kernel

__all__ = ["count", "fill"]


@kernel
def count(columns: Any, mask: Any, queries: Any, counts: Any) -> None:
    """Add the number of allowed items at each distance to ``counts``, int64 (n_queries, n_distances)."""
    n = columns.shape[1]
    tile = np.empty(TILE, np.uint16)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(queries.shape[0]):
            distances_to_range(columns, queries[q], start, stop, tile)
            if mask.size == 0:
                for i in range(np.uint64(stop - start)):
                    counts[q, tile[i]] += 1
            else:
                for i in range(np.uint64(stop - start)):
                    counts[q, tile[i]] += np.int64(_allows(mask, np.uint64(start) + i))


@kernel
def _allows(mask: Any, item: int) -> Any:
    return mask[item >> np.uint64(6)] >> (item & np.uint64(63)) & np.uint64(1)


@kernel
def fill(
    columns: Any, mask: Any, queries: Any, limits: Any, cursors: Any, ends: Any, distances: Any, positions: Any
) -> None:
    """Write the allowed items at distance <= ``limits[q]`` of each query q: the second pass after `count`.

    ``cursors``, int64 (n_queries, n_distances), says where the next item at each distance goes in the flat outputs
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
                if tile[i] <= limit and (mask.size == 0 or _allows(mask, np.uint64(start) + i)):
                    place = cursors[q, tile[i]]
                    if place < end:
                        cursors[q, tile[i]] = place + 1
                        distances[place] = tile[i]
                        positions[place] = start + np.int64(i)
