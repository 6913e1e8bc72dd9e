"""The bins of a node's examples, gathered from a copy of the bins that has one row per example.

The examples of a node that is not large are far apart in the rows of a feature: each value is in another cache line. In
the copy, all features that a node draws are in the few cache lines of each example. They are gathered once per node,
and the lines of the next examples are fetched ahead of use.
"""

from __future__ import annotations

import numpy as np

from hashgrove.functions.levels import LANES
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import prefetch

__all__ = ["gathered_bins", "prefetch_row", "room_for_gathered"]

LINE = 64  # bytes of a cache line
AHEAD = 16  # examples whose lines are fetched ahead of use


@kernel
def _is_gathered(rows, level, features, node):
    """Whether the bins of a node's examples are gathered: if they are in much fewer cache lines than in ``bins``.

    Half as many, because a processor fetches neighbouring lines of a feature by itself. If all nodes have the same
    features, they are searched group by group, and gathering all groups at once would not pay.
    """
    if len(rows) == 0 or len(features) == 1:
        return False
    n, width = level.starts[node + 1] - level.starts[node], features.shape[1]
    lines_of_example = min((rows.shape[1] + LINE - 1) // LINE, width)
    lines_of_feature = min(n, len(rows) // LINE + 1)
    return 2 * n * lines_of_example < width * lines_of_feature


@kernel
def room_for_gathered(rows, level, features):
    """An array that has room for the bins of any node of a level that are gathered, shape (groups, examples, LANES)."""
    largest = 0
    for node in range(len(level.nodes)):
        if _is_gathered(rows, level, features, node):
            largest = max(largest, level.starts[node + 1] - level.starts[node])
    return np.empty((features.shape[1] // LANES, largest, LANES), np.uint8)


@kernel
def prefetch_row(flat, size, row):
    """Fetch all bins of a row ahead of use; ``flat`` has the bins of all rows, ``size`` (uint64) of each."""
    for line in range(np.uint64(0), size, np.uint64(LINE)):
        prefetch(flat, np.uint64(row) * size + line)


@kernel
def _gather(rows, level, features, node, gathered):
    """Write the bin of the node's example t and feature features[8 * g + q] to gathered[g, t, q]. O(examples)."""
    flat, size = rows.reshape(-1), np.uint64(rows.shape[1])
    words = gathered.view(np.uint64)  # a group at a time: with fewer writes, more rows are on their way at once
    start, last = level.starts[node], len(level.examples) - 1
    for t in range(level.starts[node + 1] - start):
        prefetch_row(flat, size, level.examples[min(start + t + AHEAD, last)])
        row = rows[level.examples[start + t]]
        for group in range(len(features) // LANES):
            word = np.uint64(0)
            for q in range(LANES):
                word |= np.uint64(row[features[group * LANES + q]]) << np.uint64(8 * q)
            words[group, t, 0] = word


@kernel
def gathered_bins(rows, level, features, node, group, room, current):
    """The bins of a node's examples in a group of features, shape (examples, LANES); no examples if not gathered.

    ``room`` is that of `room_for_gathered`, and ``current[0]`` is the node whose bins it has, -1 at first.
    """
    if not _is_gathered(rows, level, features, node):
        return room[0, :0]
    if current[0] != node:
        _gather(rows, level, features[node], node, room)
        current[0] = node
    return room[group, : level.starts[node + 1] - level.starts[node]]
