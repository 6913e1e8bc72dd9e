"""Comparing all queries of a batch with one tile of the database after the other: which items of the tile are near.

All queries read a tile before the next one is read, so it comes from memory once. With few queries, or long codes, each
query is compared with the tile strip by strip (`hashgrove.index.strips`); with many, the tile is a block that is sliced
for them (`hashgrove.index.sliced`).

A search loops over tiles with `tile_end` and `compare_tile`. Its tiles grow from 64 items to their full size: while a
search is looking for its k-th item, all items of a tile are near.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hashgrove.index.sliced import BLOCK, MAX_SLICED, fewest_queries, near_in_block, offsets_of, slice_block, tables_for
from hashgrove.index.strips import STRIP, next_near
from hashgrove.runtime.compiling import kernel

__all__ = ["TILE_WORDS", "compare_tile", "room_for_tiles", "tile_end"]

TILE_WORDS = 5 * 2**10  # per tile of the database: 40 KB, which the queries of a batch read from the nearest cache


@kernel
def room_for_tiles(queries: Any) -> Any:
    """Arrays that `tile_end` and `compare_tile` need for ``queries``, uint64 (n_queries, n_words).

    The first two are what `compare_tile` writes: ``near``, uint64 (n_queries, n_strips), has a bit for each item of a
    tile, and ``n_strips``, int64 (n_queries,), says how many words of a row count, 0 if no item is near. The other two
    are the tables of a block and the offsets of the queries in them; they are empty if no block is sliced.
    """
    n_queries, n_words = queries.shape
    if n_queries >= fewest_queries() and n_words <= MAX_SLICED:
        size, tables, offsets = BLOCK, tables_for(n_words), offsets_of(queries).reshape(-1)
    else:
        size = max(TILE_WORDS // n_words // STRIP, 1) * STRIP
        tables, offsets = np.empty(0, np.uint64), np.empty(0, np.uint32)
    return np.empty((n_queries, size // STRIP), np.uint64), np.empty(n_queries, np.int64), tables, offsets


@kernel
def tile_end(first: Any, start: Any, last: Any, near: Any) -> Any:
    """The end of the tile that begins at ``start``, in a search of [first, last). Numbers are uint64."""
    size = min(np.uint64(near.shape[1] * STRIP), max(start - first, np.uint64(STRIP)))
    return min(start + size, last)


@kernel
def compare_tile(
    width: Any,
    words: Any,
    n: Any,
    queries: Any,
    n_words: Any,
    limits: Any,
    mask: Any,
    start: Any,
    stop: Any,
    near: Any,
    n_strips: Any,
    tables: Any,
    offsets: Any,
) -> None:
    """Write which allowed items of the tile [start, stop) are at a distance below ``limits[q]`` from each query q.

    ``words``, ``n``, ``queries``, ``n_words``, ``width`` and ``mask`` are those of `hashgrove.index.strips`, and
    ``limits`` is uint64 (n_queries,). The last four arguments are `room_for_tiles`.
    """
    count, first_strip = (stop - start + np.uint64(STRIP - 1)) // np.uint64(STRIP), start // np.uint64(STRIP)
    if tables.size and stop - start == np.uint64(BLOCK):
        slice_block(words, n, n_words, start, tables)
        for q in range(len(limits)):
            some = near_in_block(tables, offsets, np.uint64(q), width, limits[q], near[q])
            n_strips[q] = count if some else 0
            if some and mask.size:
                for s in range(count):
                    near[q, s] &= mask[first_strip + s]
        return
    for q in range(len(limits)):
        n_strips[q] = 0
        query = np.uint64(q) * n_words
        strip, found = next_near(words, n, queries, query, n_words, width, limits[q], mask, start, stop)
        while found:
            if n_strips[q] == 0:
                n_strips[q] = count
                near[q, : np.int64(count)] = 0
            near[q, (strip - start) // np.uint64(STRIP)] = found
            strip = min(strip + np.uint64(STRIP), stop)
            strip, found = next_near(words, n, queries, query, n_words, width, limits[q], mask, strip, stop)
