"""The open nodes of one level of a growing tree, and the histograms of their examples' values.

Each example has a value that is a whole number, so sums are exact and do not depend on their order, and the histogram
of a node is exactly that of its parent minus that of its sibling. `hashgrove.trees.splitting` says what the values are.

Bins are read in one of three ways:

- from ``bins``, one row per feature: for nodes with many examples;
- from ``rows``, a copy with one row per example: the examples of a node that is not large are far apart in the rows of
  a feature, each value in another cache line, while in the copy all features that a node draws are in the few cache
  lines of each example. They are gathered once per node;
- one by one, without a histogram, for nodes with so few examples that clearing and searching a histogram takes longer
  than comparing the examples with each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import prefetch

__all__ = [
    "HISTOGRAM",
    "LANES",
    "SMALL",
    "OpenNodes",
    "example_ahead",
    "fill_histogram",
    "gathered_bins",
    "is_small",
    "prefetch_row",
    "room_for_gathered",
    "small_scratch",
    "small_sums",
]

LANES = 8  # features that share one pass over the examples and one histogram
HISTOGRAM = 256 * LANES  # entries of a histogram: 256 bins for each of these features
SMALL = 16  # examples; from here on a histogram is as fast as comparing the examples with each other
CACHE_LINE = 64  # bytes
EXAMPLES_AHEAD = 24  # examples between the one whose bin is read and the one whose bin is prefetched
ROWS_AHEAD = 16  # examples between the one whose row is read and the one whose row is prefetched


class OpenNodes(NamedTuple):
    """The open nodes of one level of a tree.

    Node k has the number ``nodes[k]`` in the tree and holds ``examples[starts[k]:starts[k + 1]]``. The same part of
    ``values`` has the values of these examples, int32 or int64, which sum to ``totals[k]``. ``parents[k]`` is the
    position of its parent in the previous level.
    """

    examples: NDArray[np.uint32]
    values: NDArray[Any]
    nodes: NDArray[np.int64]
    starts: NDArray[np.int64]
    totals: NDArray[np.int64]
    parents: NDArray[np.int64]


@kernel
def fill_histogram(bins, gathered, lanes, level, node, shift, histogram):
    """Write the sum of a node's values in each cell of feature lanes[q] to histogram[cell * 8 + q]. O(examples).

    A cell holds 2^``shift`` bins, which are read from ``gathered`` (see `gathered_bins`), unless that is empty.
    """
    part = slice(level.starts[node], level.starts[node + 1])
    if len(gathered) > 0:
        _gathered_histogram(gathered, level.values[part], np.uint32(shift), histogram)
    else:
        _histogram(bins, lanes, level.examples[part], level.values[part], np.uint32(shift), histogram)


@kernel
def _gathered_histogram(gathered, values, shift, histogram):
    histogram[:] = 0
    for t in range(np.uint64(len(values))):
        value = values[t]
        for q in range(np.uint64(LANES)):
            histogram[np.uint64(gathered[t, q] >> shift) * np.uint64(LANES) + q] += value


@kernel
def _histogram(bins, lanes, index, values, shift, histogram):
    histogram[:] = 0
    x0, x1, x2, x3 = bins[lanes[0]], bins[lanes[1]], bins[lanes[2]], bins[lanes[3]]
    x4, x5, x6, x7 = bins[lanes[4]], bins[lanes[5]], bins[lanes[6]], bins[lanes[7]]
    for t in range(np.uint64(0), np.uint64(len(index))):
        i = index[t]
        v = values[t]
        histogram[(np.uint32(x0[i]) >> shift) * np.uint32(8)] += v
        histogram[(np.uint32(x1[i]) >> shift) * np.uint32(8) + np.uint32(1)] += v
        histogram[(np.uint32(x2[i]) >> shift) * np.uint32(8) + np.uint32(2)] += v
        histogram[(np.uint32(x3[i]) >> shift) * np.uint32(8) + np.uint32(3)] += v
        histogram[(np.uint32(x4[i]) >> shift) * np.uint32(8) + np.uint32(4)] += v
        histogram[(np.uint32(x5[i]) >> shift) * np.uint32(8) + np.uint32(5)] += v
        histogram[(np.uint32(x6[i]) >> shift) * np.uint32(8) + np.uint32(6)] += v
        histogram[(np.uint32(x7[i]) >> shift) * np.uint32(8) + np.uint32(7)] += v


@kernel
def example_ahead(examples, t):
    """The example whose bin is prefetched while example t is read: those of a small node are in other cache lines."""
    return np.uint64(examples[min(t + np.uint64(EXAMPLES_AHEAD), np.uint64(len(examples) - 1))])


@kernel
def prefetch_row(flat, size, row):
    """Prefetch all bins of a row; ``flat`` has the bins of all rows, ``size`` (uint64) of each."""
    for line in range(np.uint64(0), size, np.uint64(CACHE_LINE)):
        prefetch(flat, np.uint64(row) * size + line)


@kernel
def _is_gathered(rows, level, features, node):
    """Whether the bins of a node's examples are gathered: if they are in much fewer cache lines than in ``bins``.

    Half as many, because a processor fetches neighbouring lines of a feature by itself. If all nodes have the same
    features, they are searched group by group, and gathering all groups at once would not pay.
    """
    if len(rows) == 0 or len(features) == 1:
        return False
    n, width = level.starts[node + 1] - level.starts[node], features.shape[1]
    lines_of_example = min((rows.shape[1] + CACHE_LINE - 1) // CACHE_LINE, width)
    lines_of_feature = min(n, len(rows) // CACHE_LINE + 1)
    return 2 * n * lines_of_example < width * lines_of_feature


@kernel
def room_for_gathered(rows, level, features):
    """An array with room for the gathered bins of any node of a level, shape (groups, examples, LANES)."""
    largest = 0
    for node in range(len(level.nodes)):
        if _is_gathered(rows, level, features, node):
            largest = max(largest, level.starts[node + 1] - level.starts[node])
    return np.empty((features.shape[1] // LANES, largest, LANES), np.uint8)


@kernel
def gathered_bins(rows, level, features, node, group, room, current):
    """The bins of a node's examples in a group of features, shape (examples, LANES); no examples if not gathered.

    ``room`` is the array of `room_for_gathered`, and ``current[0]`` is the node whose bins it has, -1 at first.
    """
    if not _is_gathered(rows, level, features, node):
        return room[0, :0]
    if current[0] != node:
        _gather(rows, level, features[node], node, room)
        current[0] = node
    return room[group, : level.starts[node + 1] - level.starts[node]]


@kernel
def _gather(rows, level, features, node, gathered):
    """Write the bin of the node's example t and feature features[8 * g + q] to gathered[g, t, q]. O(examples)."""
    flat, size = rows.reshape(-1), np.uint64(rows.shape[1])
    words = gathered.view(np.uint64)  # a group at a time: with fewer writes, more rows are on their way at once
    start, last = level.starts[node], len(level.examples) - 1
    for t in range(level.starts[node + 1] - start):
        prefetch_row(flat, size, level.examples[min(start + t + ROWS_AHEAD, last)])
        row = rows[level.examples[start + t]]
        for group in range(len(features) // LANES):
            word = np.uint64(0)
            for q in range(LANES):
                word |= np.uint64(row[features[group * LANES + q]]) << np.uint64(8 * q)
            words[group, t, 0] = word


@kernel
def is_small(level, node, sibling, kept):
    """Whether a node's examples are compared with each other: if they are few and its histogram is not needed later."""
    few = level.starts[node + 1] - level.starts[node] < SMALL
    return few and sibling < 0 and len(kept) == 0


@kernel
def small_scratch(level):
    """Two arrays for `small_sums`: places and sums."""
    return np.empty((LANES, SMALL), level.values.dtype), np.empty((LANES, SMALL), level.values.dtype)


@kernel
def small_sums(bins, gathered, lanes, level, node, shift, scratch):
    """Write the cells of a node's n examples, and the sums of the values up to each of these cells; returns n.

    ``bins``, ``gathered`` and ``shift`` are those of `fill_histogram`. Example t of the node is in cell
    ``places[q, t]`` of feature lanes[q], and ``sums[q, t]`` is the sum on the left of a stump with this threshold; both
    are parts of ``scratch``. O(n^2), in vector instructions.
    """
    places, sums = scratch
    part = slice(level.starts[node], level.starts[node + 1])
    examples, values = level.examples[part], level.values[part]
    n = np.uint64(len(examples))
    for t in range(n):
        for q in range(LANES):
            places[q, t] = (gathered[t, q] if len(gathered) > 0 else bins[lanes[q], examples[t]]) >> shift
    for q in range(LANES):
        of_lane, sums_of_lane = places[q], sums[q]
        for t in range(n):
            threshold, left = of_lane[t], values[0] - values[0]
            for other in range(n):
                left += values[other] if of_lane[other] <= threshold else 0
            sums_of_lane[t] = left
    return np.int64(n)
