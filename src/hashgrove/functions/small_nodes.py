"""Nodes with few examples, which deep trees have by the thousand: they cost what their examples cost.

A histogram takes longer to clear and to search than a few examples take to add. So the examples of a small node are
compared with each other instead: the best threshold is the bin of one of them.
"""

from __future__ import annotations

import numpy as np

from hashgrove.functions.levels import LANES
from hashgrove.runtime.compiling import kernel

__all__ = ["is_small", "small_scratch", "small_sums"]

SMALL = 16  # examples; from here on a histogram is as fast


@kernel
def is_small(level, node, sibling, kept):
    """Whether the examples of a node are compared with each other: if they are few, and nobody needs its histogram."""
    few = level.starts[node + 1] - level.starts[node] < SMALL
    return few and sibling < 0 and len(kept) == 0


@kernel
def small_scratch(level):
    """Two arrays for `small_sums`: places and sums."""
    return np.empty((LANES, SMALL), level.values.dtype), np.empty((LANES, SMALL), level.values.dtype)


@kernel
def small_sums(bins, gathered, lanes, level, node, scratch):
    """Write the bins of a node's n examples, and the sums of the values up to each of these bins; returns n.

    ``bins`` and ``gathered`` are those of `hashgrove.functions.levels.fill_histogram`. Example t of the node is in bin
    ``places[q, t]`` of feature lanes[q], and ``sums[q, t]`` is what a stump with this threshold has on its left; both
    are parts of ``scratch``. O(n^2), in vector instructions.
    """
    places, sums = scratch
    part = slice(level.starts[node], level.starts[node + 1])
    examples, values = level.examples[part], level.values[part]
    n = np.uint64(len(examples))
    for t in range(n):
        for q in range(LANES):
            places[q, t] = gathered[t, q] if len(gathered) > 0 else bins[lanes[q], examples[t]]
    for q in range(LANES):
        of_lane, sums_of_lane = places[q], sums[q]
        for t in range(n):
            threshold, left = of_lane[t], values[0] - values[0]
            for other in range(n):
                left += values[other] if of_lane[other] <= threshold else 0
            sums_of_lane[t] = left
    return np.int64(n)
