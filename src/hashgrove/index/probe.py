"""Kernels of multi-index hashing: bucket after bucket of `hashgrove.index.tables.Tables`, nearest buckets first.

The buckets are read in steps. Step r reads, in table r % m, the buckets whose part differs from that of the query in
r // m bits. After step r every code within a distance of r has been seen: if all its parts came later, it would differ
in more than r bits. A code that is in the buckets of several steps counts in the first of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hashgrove.index.buckets import PROBE_COST, n_subsets, next_flips
from hashgrove.index.scan import ALL
from hashgrove.index.strips import STRIP, distance_to, lowest, next_near
from hashgrove.index.tables import part_of
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import popcount, prefetch

__all__ = ["nearest_by_tables", "within_by_tables"]

BATCH = 64  # buckets that are fetched ahead of their use


@kernel
def nearest_by_tables(
    width: Any,
    parts: Any,
    masks: Any,
    offsets: Any,
    bases: Any,
    words: Any,
    numbers: Any,
    starts: Any,
    order: Any,
    counts: Any,
    firsts: Any,
    alive: Any,
    queries: Any,
    budget: int,
    distances: Any,
    positions: Any,
    finished: Any,
    costs: Any,
) -> None:
    """Write the k nearest items of each query, sorted by distance and then by position.

    ``width`` is that of `hashgrove.index.strips`; the next arguments are those of `Tables`. ``counts``, uint32
    (n_distinct,), is how many items with each code are alive, and ``firsts``, uint32, the first of them; both are empty
    if all are alive. ``alive`` is a bitmap of the items, or `ALL`. ``queries`` is uint64 (n_queries, n_words), with the
    bits in the order of the tables; ``distances`` is uint16 and ``positions`` int64, both (n_queries, k); at least k
    items are alive. A query that would cost more than ``budget`` comparisons is given up: ``finished`` (bool) says
    which were not, and ``costs`` (int64) how many comparisons each query cost.
    """
    n_tables, n_words, n_distinct = words.shape
    n_queries, k = distances.shape
    n_distances = 64 * n_words + 1
    flat, asked = words.reshape(-1), queries.reshape(-1)
    capacity = 4 * k + 256
    near, codes = np.empty(capacity, np.uint16), np.empty(capacity, np.int64)
    histogram = np.empty(n_distances, np.int64)
    ranges = np.empty((BATCH, 2), np.int64)
    heap = np.empty(2 * k + 64, np.int64)
    for q in range(n_queries):
        query = np.uint64(q) * np.uint64(n_words)
        histogram[:] = 0
        size, have, spent = 0, 0, 0
        limit = n_distances  # codes at a smaller distance are kept
        finished[q] = False
        step = 0
        while True:
            t, s = step % n_tables, step // n_tables
            first, last = parts[t]
            if first + s > last:
                if s > parts[0, 1] - parts[0, 0]:
                    finished[q] = True
                    break
                step += 1
                continue
            key = part_of(queries[q], first, last)
            spent += max(PROBE_COST // n_words, 1) * n_subsets(last - first, s)
            end = np.uint64(1) << np.uint64(last - first)
            flips = (np.uint64(1) << np.uint64(s)) - np.uint64(1)
            base = np.uint64(t * n_words * n_distinct)
            while flips < end and spent <= budget:
                flips, n_ranges = _next_buckets(offsets, bases[t], key, flips, end, flat, base, ranges)
                for r in range(n_ranges):
                    start, stop = base + np.uint64(ranges[r, 0]), base + np.uint64(ranges[r, 1])
                    spent += ranges[r, 1] - ranges[r, 0]
                    strip, more = start, True
                    while more:
                        strip, found = next_near(
                            flat, np.uint64(n_distinct), asked, query, np.uint64(n_words), width, np.uint64(limit), ALL,
                            strip, stop,
                        )  # fmt: skip
                        more = found > 0
                        while found:
                            i = strip + lowest(found)
                            found &= found - np.uint64(1)
                            place = np.int64(i - base)
                            if _seen(flat, n_distinct, i, asked, query, masks, step):
                                continue
                            distance = np.int64(
                                distance_to(flat, np.uint64(n_distinct), asked, query, np.uint64(n_words), i)
                            )
                            number = np.int64(numbers[t, place])
                            count: Any = np.int64(
                                counts[number] if counts.size else starts[number + 1] - starts[number]
                            )
                            if distance >= limit or count == 0:
                                continue
                            near[size], codes[size] = distance, number
                            size += 1
                            histogram[distance] += count
                            have += count
                            while have - histogram[limit - 1] >= k:
                                have -= histogram[limit - 1]
                                limit -= 1
                            if size == capacity:
                                size = _keep_first(near, codes, size, limit, firsts, starts, order, k)
                        strip = min(strip + np.uint64(STRIP), stop)
            if spent > budget:
                break
            if have >= k and limit - 1 <= step:
                finished[q] = True
                break
            step += 1
        costs[q] = spent
        if finished[q]:
            _write_nearest(near, codes, size, limit, starts, order, alive, heap, distances[q], positions[q])


@kernel
def _next_buckets(
    offsets: Any, base: int, key: int, flips: int, end: int, words: Any, first: int, ranges: Any
) -> tuple[Any, int]:
    """Write the ends of the next (at most 64) buckets that are not empty, and fetch their codes ahead.

    ``flips`` has a one for each bit of the key that is flipped; then come the next numbers with as many ones.
    """
    batch = np.empty(BATCH, np.int64)
    size = 0
    while flips < end and size < BATCH:
        batch[size] = base + np.int64(key ^ flips)
        prefetch(offsets, np.uint64(batch[size]))
        size += 1
        flips = next_flips(flips, end)
    n_ranges = 0
    for b in range(size):
        start, stop = np.int64(offsets[batch[b]]), np.int64(offsets[batch[b] + 1])
        if start < stop:
            ranges[n_ranges, 0], ranges[n_ranges, 1] = start, stop
            prefetch(words, first + np.uint64(start))
            prefetch(words, first + np.uint64(stop - 1))
            n_ranges += 1
    return flips, n_ranges


@kernel
def _seen(words: Any, n: int, item: int, queries: Any, query: int, masks: Any, step: int) -> bool:
    """Whether a code is in a bucket of an earlier step."""
    n_tables, n_words = masks.shape
    for t in range(n_tables):
        differing = 0
        for w in range(n_words):
            word = words[item + np.uint64(w * n)] ^ queries[query + np.uint64(w)]
            differing += np.int64(popcount(word & masks[t, w]))  # type: ignore[assignment, unused-ignore]
        if differing * n_tables + t < step:
            return True
    return False


@kernel
def _first(code: int, firsts: Any, starts: Any, order: Any) -> Any:
    """The first item with a code that is alive."""
    return np.int64(firsts[code] if firsts.size else order[starts[code]])


@kernel
def _keep_first(near: Any, codes: Any, size: int, limit: int, firsts: Any, starts: Any, order: Any, k: int) -> int:
    """Drop what cannot be among the k nearest items; return how many codes are left, at most 2 k.

    Codes at a distance below ``limit - 1`` have fewer than k items together. Of those at that distance, k codes with
    the smallest first items are enough.
    """
    at_limit = 0
    for i in range(size):
        at_limit += int(near[i] == limit - 1)
    last: Any = -1
    if at_limit > k:
        tied = np.empty(at_limit, np.int64)
        at_limit = 0
        for i in range(size):
            if near[i] == limit - 1:
                tied[at_limit] = _first(codes[i], firsts, starts, order)
                at_limit += 1
        last = np.sort(tied)[k - 1]
    kept = 0
    for i in range(size):
        if near[i] < limit - 1 or (
            near[i] == limit - 1 and (last < 0 or _first(codes[i], firsts, starts, order) <= last)
        ):
            near[kept], codes[kept] = near[i], codes[i]
            kept += 1
            if kept == 2 * k:  # more would mean that tables from elsewhere hold a code twice
                break
    return kept


@kernel
def _write_nearest(
    near: Any,
    codes: Any,
    size: int,
    limit: int,
    starts: Any,
    order: Any,
    alive: Any,
    heap: Any,
    distances: Any,
    positions: Any,
) -> None:
    """Write the items of the codes, by distance and then by position, until k are written."""
    k = distances.size
    written = 0
    for distance in range(limit):
        room = k - written
        count, last = 0, np.int64(2**62)
        for c in range(size):
            if near[c] != distance:
                continue
            for place in range(np.int64(starts[codes[c]]), np.int64(starts[codes[c] + 1])):
                position = np.int64(order[place])
                if position > last:
                    break
                if alive.size and not alive[position >> 6] >> np.uint64(position & 63) & np.uint64(1):
                    continue
                if count == 2 * room + 64:
                    heap[:count].sort()
                    count, last = room, heap[room - 1]
                    if position > last:
                        break
                heap[count] = position
                count += 1
        heap[:count].sort()
        for i in range(min(count, room)):
            distances[written], positions[written] = distance, heap[i]
            written += 1
        if written == k:
            return


@kernel
def within_by_tables(
    width: Any,
    parts: Any,
    masks: Any,
    offsets: Any,
    bases: Any,
    words: Any,
    numbers: Any,
    query: Any,
    radius: int,
    budget: int,
) -> Any:
    """Distances, uint16, and numbers, int64, of the distinct codes within a radius of one query, in no certain order.

    Returns these and how many comparisons it cost. It is given up where that is more than ``budget``.
    """
    n_tables, n_words, n_distinct = words.shape
    flat = words.reshape(-1)
    size, spent = 0, 0
    near, codes = np.empty(64, np.uint16), np.empty(64, np.int64)
    ranges = np.empty((BATCH, 2), np.int64)
    for step in range(radius + 1):
        t, s = step % n_tables, step // n_tables
        first, last = parts[t]
        if first + s > last:
            continue
        key = part_of(query, first, last)
        spent += max(PROBE_COST // n_words, 1) * n_subsets(last - first, s)
        end = np.uint64(1) << np.uint64(last - first)
        flips = (np.uint64(1) << np.uint64(s)) - np.uint64(1)
        base = np.uint64(t * n_words * n_distinct)
        while flips < end and spent <= budget:
            flips, n_ranges = _next_buckets(offsets, bases[t], key, flips, end, flat, base, ranges)
            for r in range(n_ranges):
                start, stop = base + np.uint64(ranges[r, 0]), base + np.uint64(ranges[r, 1])
                spent += ranges[r, 1] - ranges[r, 0]
                strip, more = start, True
                while more:
                    strip, found = next_near(
                        flat, np.uint64(n_distinct), query, np.uint64(0), np.uint64(n_words), width,
                        np.uint64(radius + 1), ALL, strip, stop,
                    )  # fmt: skip
                    more = found > 0
                    while found:
                        i = strip + lowest(found)
                        found &= found - np.uint64(1)
                        if _seen(flat, n_distinct, i, query, np.uint64(0), masks, step):
                            continue
                        if size == near.size:
                            near, codes = np.append(near, np.empty_like(near)), np.append(codes, np.empty_like(codes))
                        near[size] = distance_to(
                            flat, np.uint64(n_distinct), query, np.uint64(0), np.uint64(n_words), i
                        )
                        codes[size] = numbers[t, np.int64(i - base)]
                        size += 1
                    strip = min(strip + np.uint64(STRIP), stop)
        if spent > budget:
            return near[:0], codes[:0], spent
    return near[:size], codes[:size], spent
