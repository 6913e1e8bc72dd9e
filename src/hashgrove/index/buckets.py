"""Buckets near a query: which come next, how many there are, and what it costs to read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hashgrove.index.tables import part_of
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import popcount

__all__ = ["PROBE_COST", "n_subsets", "next_flips", "probe_costs"]

PROBE_COST = 1024  # finding a bucket, far from the last one in memory, costs as much as scanning this many words


@kernel
def probe_costs(
    n_words: int, parts: Any, offsets: Any, bases: Any, queries: Any, reach: Any, budget: int, costs: Any
) -> None:
    """Write how many comparisons each query costs that is searched up to a distance of ``reach``, int64 (n_queries,).

    The other arguments are those of `nearest_by_tables`; a cost above ``budget`` is not counted to its end.
    """
    n_tables = len(parts)
    for q in range(len(queries)):
        spent = 0
        for step in range(reach[q] + 1):
            t, s = step % n_tables, step // n_tables
            first, last = parts[t]
            if first + s > last:
                continue
            key = part_of(queries[q], first, last)
            spent += max(PROBE_COST // n_words, 1) * n_subsets(last - first, s)
            end = np.uint64(1) << np.uint64(last - first)
            flips = (np.uint64(1) << np.uint64(s)) - np.uint64(1)
            while flips < end and spent <= budget:
                bucket = bases[t] + np.int64(key ^ flips)
                spent += np.int64(offsets[bucket + 1]) - np.int64(offsets[bucket])
                flips = next_flips(flips, end)
            if spent > budget:
                break
        costs[q] = spent


@kernel
def next_flips(flips: Any, end: Any) -> Any:
    """The next number with as many ones; ``end`` after zero."""
    if flips == 0:
        return end
    lowest = flips & (~flips + np.uint64(1))
    ripple = flips + lowest
    ones = popcount(flips ^ ripple) - np.uint64(2)
    return ripple | ((np.uint64(1) << ones) - np.uint64(1))


@kernel
def n_subsets(n: int, size: int) -> int:
    """Number of ways to choose ``size`` of ``n``, or more than 2^40 if that is less."""
    number = 1
    for i in range(size):
        number = number * (n - i) // (i + 1)
        if number > 2**40:
            break
    return number
