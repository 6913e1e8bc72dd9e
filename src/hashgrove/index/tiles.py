"""Comparing all queries of a batch with one tile of the database after the other: which items of the tile are near.

All queries read a tile before the next one is read, so it comes from memory once. With few queries, each is compared
with the tile strip by strip (`hashgrove.index.strips`); with several, all are compared with one strip before the next
(`hashgrove.index.batch`). With many, the tile is a block that is sliced for them (`hashgrove.index.sliced`), if the
processor has no instruction that counts the ones of vectors.

A search loops over tiles with `tile_end` and `compare_tile`. Its tiles grow from 64 items to their full size: while a
search is looking for its k-th item, all items of a tile are near.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hashgrove.index.batch import aligned, compare_strips
from hashgrove.index.sliced import (
    BLOCK,
    MAX_SLICED,
    TABLE_WORDS,
    fewest_queries,
    near_in_block,
    offsets_of,
    slice_block,
)
from hashgrove.index.strips import STRIP, next_near
from hashgrove.runtime.compiling import kernel

__all__ = ["compare_tile", "room_for_tiles", "tile_end"]

SEVERAL = 4  # queries for which a strip is worth a copy
TILE = 2**12  # items; meanwhile the limits stay as they are


@kernel
def room_for_tiles(queries: Any) -> Any:
    """The size of a tile in items, and arrays that `compare_tile` needs for ``queries``, uint64 (n_queries, n_words).

    The first two are what `compare_tile` writes, hit by hit: ``near``, uint64, has a bit for each of 64 items, and
    ``where``, uint64 (n, 2), the number of the query and the first of these items. The others are scratch space, and
    the offsets of the queries in the tables of a block, which are empty if no block is sliced.
    """
    n_queries, n_words = queries.shape
    size, n_scratch, offsets = TILE, 2 * n_words * STRIP, np.empty(0, np.uint32)
    if n_queries >= fewest_queries() and n_words <= MAX_SLICED:
        size, n_scratch, offsets = BLOCK, BLOCK // STRIP + n_words * TABLE_WORDS, offsets_of(queries).reshape(-1)
    elif n_queries < SEVERAL:
        n_scratch = 0
    n_hits = n_queries * (size // STRIP)
    return size, np.empty(n_hits, np.uint64), np.empty((n_hits, 2), np.uint64), aligned(n_scratch), offsets


@kernel
def tile_end(first: Any, start: Any, last: Any, room: Any) -> Any:
    """The end of the tile that begins at ``start``, in a search of [first, last). Numbers are uint64."""
    size = min(np.uint64(room[0]), max(start - first, np.uint64(STRIP)))
    return min(start + size, last)


@kernel
def compare_tile(
    width: Any, words: Any, n: Any, queries: Any, n_words: Any, limits: Any, mask: Any, start: Any, stop: Any, room: Any
) -> Any:  # fmt: skip
    """Write which allowed items of the tile [start, stop) are at a distance below ``limits[q]`` from each query q.

    Returns the number of hits, which are in ``room``, from `room_for_tiles`; those of a query are in ascending order.
    ``words``, ``n``, ``queries``, ``n_words``, ``width`` and ``mask`` are those of `hashgrove.index.strips`, and
    ``limits`` is uint64 (n_queries,).
    """
    _, near, where, scratch, offsets = room
    if len(limits) >= SEVERAL and not (offsets.size and stop - start == np.uint64(BLOCK)):
        return compare_strips(
            width, words, n, queries, n_words, limits, mask, start, stop, scratch, near, where
        )  # fmt: skip
    n_hits = 0
    if offsets.size and stop - start == np.uint64(BLOCK):
        found, tables = scratch[: BLOCK // STRIP], scratch[BLOCK // STRIP :]
        slice_block(words, n, n_words, start, tables)
        for q in range(len(limits)):
            if near_in_block(tables, offsets, np.uint64(q), width, limits[q], found):
                for s in range(BLOCK // STRIP):
                    strip = start + np.uint64(s * STRIP)
                    if mask.size:
                        found[s] &= mask[strip // np.uint64(STRIP)]
                    if found[s]:
                        near[n_hits], where[n_hits, 0], where[n_hits, 1] = found[s], q, strip
                        n_hits += 1
        return n_hits
    for q in range(len(limits)):
        query = np.uint64(q) * n_words
        strip, items = next_near(words, n, queries, query, n_words, width, limits[q], mask, start, stop)
        while items:
            near[n_hits], where[n_hits, 0], where[n_hits, 1] = items, q, strip
            n_hits += 1
            strip = min(strip + np.uint64(STRIP), stop)
            strip, items = next_near(words, n, queries, query, n_words, width, limits[q], mask, strip, stop)
    return n_hits
