"""Kernels that compare queries with every code: the k nearest by a bounded buffer, all within a radius by counting.

All of them read the database in ascending order of position, so items at equal distances are met in the right order.
The kernels for Hamming distances hold no more than their results and a buffer of bounded size, however many codes are
equal.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from hashgrove.codes import TILE, distances_to_range
from hashgrove.index.weighted import weighted_distances
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import pointer, popcount, splat

__all__ = ["ALL", "count", "count_within", "fill", "fill_within", "nearest", "nearest_weighted"]

ALL = np.empty(0, np.uint64)  # the mask that allows every item
ALL.flags.writeable = False
STRIP = 64  # items that are compared at once: most strips have no near item and are skipped
LANES = 8  # words per vector
TILE_WORDS = 2**12  # words per tile of the database; a tile stays in the first-level cache for all queries


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _below(
    typing_context: Any, words: Any, n: Any, first: Any, queries: Any, query: Any, n_words: Any, limit: Any
) -> Any:
    """Which of 64 items, from item ``first`` on, are at a distance below ``limit`` from a query: one bit per item.

    Word w of item i is ``words[w * n + i]``; word w of the query is ``queries[query + w]``. Nothing is stored in
    memory: the 64 sums stay in registers.
    """
    word = ir.IntType(64)
    vector = ir.VectorType(word, LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words, n, first, queries, query, n_words, limit = arguments
        kind = ir.FunctionType(vector, [vector])
        popcounts = builder.module.declare_intrinsic(f"llvm.ctpop.v{LANES}i64", (), kind)
        zero = ir.Constant(vector, None)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(STRIP // LANES)]
        for total in sums:
            builder.store(zero, total)
        with cgutils.for_range(builder, n_words) as loop:
            w = loop.index
            place = builder.add(query, w)
            query_word = builder.load(pointer(context, builder, signature.args[3], queries, place, word))
            query_word = splat(builder, query_word, LANES)
            start = builder.add(builder.mul(w, n), first)
            for k, total in enumerate(sums):
                place = builder.add(start, ir.Constant(word, k * LANES))
                item = builder.load(pointer(context, builder, signature.args[0], words, place, vector), align=8)
                ones = builder.call(popcounts, [builder.xor(item, query_word)])
                builder.store(builder.add(builder.load(total), ones), total)
        limits = splat(builder, limit, LANES)
        near = [builder.icmp_unsigned("<", builder.load(total), limits) for total in sums]
        found = cgutils.alloca_once_value(builder, ir.Constant(word, 0))
        builder.store(ir.Constant(word, 0), found)
        some = builder.bitcast(reduce(builder.or_, near), ir.IntType(LANES))
        with builder.if_then(builder.icmp_unsigned("!=", some, ir.Constant(some.type, 0)), likely=False):
            for k, lanes in enumerate(near):
                bits = builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), word)
                bits = builder.shl(bits, ir.Constant(word, k * LANES))
                builder.store(builder.or_(builder.load(found), bits), found)
        return builder.load(found)

    number = types.uint64
    return number(words, number, number, queries, number, number, number), generate


@kernel
def nearest(
    columns: Any, mask: Any, first: int, last: int, queries: Any, capacity: int, distances: Any, positions: Any
) -> None:
    """Write the k nearest items of [first, last) for each query, sorted by distance and then by position.

    ``columns`` is uint64 (n_words, n), ``queries`` is uint64 (n_queries, n_words), ``distances`` is uint16 and
    ``positions`` int64, both (n_queries, k) with k < capacity. ``mask``, uint64 (ceil(n / 64),) or `ALL`, has a bit for
    each item that may be found; ``first`` is a multiple of 64. Where fewer than k are found, the other places are left
    as they are. One pass over the items, with a buffer of ``capacity`` candidates per query: when it is full, it is cut
    back to the best k, and from then on only nearer items enter.
    """
    n_queries, k = distances.shape
    n_words, n = np.uint64(columns.shape[0]), np.uint64(columns.shape[1])
    words, asked = columns.reshape(-1), queries.reshape(-1)
    limits = np.full(n_queries, 65535, np.uint64)  # no distance is that large: see codes.MAX_BITS
    sizes = np.zeros(n_queries, np.int64)
    near = np.empty((n_queries, capacity), np.uint16)
    where = np.empty((n_queries, capacity), np.int64)
    counts = np.empty(64 * columns.shape[0] + 1, np.int64)
    tile = max(TILE_WORDS // columns.shape[0] // STRIP, 1) * STRIP
    for start in range(first, last, tile):
        stop = np.uint64(min(start + tile, last))
        for q in range(n_queries):
            query = np.uint64(q) * n_words
            for strip in range(np.uint64(start), stop, np.uint64(STRIP)):
                found = _found(words, n, mask, strip, stop, asked, query, n_words, limits[q])
                while found:
                    i = strip + popcount((found & (~found + np.uint64(1))) - np.uint64(1))
                    found &= found - np.uint64(1)
                    distance = _distance(words, n, i, asked, query, n_words)
                    if distance >= limits[q]:  # the limit has fallen since the strip was compared
                        continue
                    near[q, sizes[q]] = distance
                    where[q, sizes[q]] = i
                    sizes[q] += 1
                    if sizes[q] == capacity:
                        limits[q] = _keep(near[q], where[q], capacity, k, counts)
                        sizes[q] = k
    for q in range(n_queries):
        _sort(near[q, : sizes[q]], where[q, : sizes[q]], counts, distances[q], positions[q])


@kernel
def _found(
    words: Any, n: int, mask: Any, strip: int, stop: int, queries: Any, query: int, n_words: int, limit: int
) -> Any:
    """Which of the 64 items from ``strip`` on, up to ``stop``, are allowed and nearer to a query than ``limit``."""
    wanted = ~np.uint64(0)
    if mask.size:
        wanted = mask[strip // np.uint64(STRIP)]
        if wanted == 0:
            return wanted
    if strip + np.uint64(STRIP) <= stop:
        return wanted & _below(words, n, strip, queries, query, n_words, limit)
    return wanted & _below_one_by_one(words, n, strip, stop, queries, query, n_words, limit)


@kernel
def count_within(columns: Any, mask: Any, queries: Any, limit: int, counts: Any) -> None:
    """Write how many allowed items are at a distance below ``limit`` from each query to ``counts``, int64."""
    n_words, n = np.uint64(columns.shape[0]), np.uint64(columns.shape[1])
    words, asked = columns.reshape(-1), queries.reshape(-1)
    tile = np.uint64(max(TILE_WORDS // columns.shape[0] // STRIP, 1) * STRIP)
    counts[:] = 0
    for start in range(np.uint64(0), n, tile):
        stop = min(start + tile, n)
        for q in range(queries.shape[0]):
            query = np.uint64(q) * n_words
            for strip in range(start, stop, np.uint64(STRIP)):
                found = _found(words, n, mask, strip, stop, asked, query, n_words, np.uint64(limit))
                counts[q] += np.int64(popcount(found))


@kernel
def fill_within(columns: Any, mask: Any, queries: Any, limit: int, ends: Any, distances: Any, positions: Any) -> None:
    """Write the items that `count_within` counts, for each query sorted by distance and then by position.

    Those of query q go to the flat outputs ``distances`` (uint16) and ``positions`` (int64) up to place ``ends[q]``.
    """
    n_words, n = np.uint64(columns.shape[0]), np.uint64(columns.shape[1])
    words, asked = columns.reshape(-1), queries.reshape(-1)
    tile = np.uint64(max(TILE_WORDS // columns.shape[0] // STRIP, 1) * STRIP)
    near, where = np.empty_like(distances), np.empty_like(positions)
    cursors = np.empty(queries.shape[0], np.int64)
    for q in range(queries.shape[0]):
        cursors[q] = ends[q - 1] if q else 0
    for start in range(np.uint64(0), n, tile):
        stop = min(start + tile, n)
        for q in range(queries.shape[0]):
            query = np.uint64(q) * n_words
            for strip in range(start, stop, np.uint64(STRIP)):
                found = _found(words, n, mask, strip, stop, asked, query, n_words, np.uint64(limit))
                while found:
                    i = strip + popcount((found & (~found + np.uint64(1))) - np.uint64(1))
                    found &= found - np.uint64(1)
                    near[cursors[q]] = _distance(words, n, i, asked, query, n_words)
                    where[cursors[q]] = i
                    cursors[q] += 1
    counts = np.empty(64 * columns.shape[0] + 1, np.int64)
    for q in range(queries.shape[0]):
        first, last = ends[q - 1] if q else 0, ends[q]
        _sort(near[first:last], where[first:last], counts, distances[first:last], positions[first:last])


@kernel
def _distance(words: Any, n: int, item: int, queries: Any, query: int, n_words: int) -> Any:
    total = np.uint64(0)
    for w in range(n_words):
        total += popcount(words[w * n + item] ^ queries[query + w])
    return total


@kernel
def _below_one_by_one(
    words: Any, n: int, first: int, last: int, queries: Any, query: int, n_words: int, limit: int
) -> Any:
    """The same as `_below`, for fewer than 64 items: those from ``first`` to ``last``."""
    found = np.uint64(0)
    for i in range(first, last):
        found |= np.uint64(_distance(words, n, i, queries, query, n_words) < limit) << (i - first)
    return found


@kernel
def _keep(near: Any, where: Any, size: int, k: int, counts: Any) -> Any:
    """Move the best k of ``size`` candidates to the front, in their present order; return their largest distance.

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
    return np.uint64(limit)


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


@kernel
def _all_weighted(columns: Any, table: Any, out: Any) -> None:
    for start in range(0, len(out), TILE):
        stop = min(start + TILE, len(out))
        weighted_distances(columns, table, start, stop, out[start:stop])


def nearest_weighted(
    columns: NDArray[np.uint64], allowed: NDArray[np.int64] | None, table: NDArray[np.uint16], k: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Weighted distances and positions of the ``k`` nearest items of one query, by distance and then position.

    ``allowed`` are the positions that may be found, ascending, at least k; None for all. ``table`` is one row of
    `hashgrove.index.weighted.byte_tables`.
    """
    distances = np.empty(columns.shape[1], np.uint16)
    _all_weighted(columns, table, distances)
    distances = distances if allowed is None else distances[allowed]
    limit = np.partition(distances, k - 1)[k - 1]
    found = np.flatnonzero(distances <= limit)
    found = found[np.argsort(distances[found], kind="stable")[:k]]
    return distances[found], found if allowed is None else allowed[found]
