"""The best decision stump of every open node of a tree's level: histograms of weights, and a search on them.

With signed weights y_i w_i, a stump that puts the sum c on its left and S - c on its right, labelled with opposite
signs, errs least where |2c - S| is greatest; so a feature needs only the largest and the smallest cumulative sum.
Weights are integers: sums are exact, do not depend on their order, and a histogram can be had as that of the parent
less that of the sibling.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import available_threads, run_tasks

__all__ = ["LANES", "OpenNodes", "Stumps", "best_stumps"]

LANES = 8  # features that share a pass over the examples, and one histogram of 8 KB
HISTOGRAM = 256 * LANES
ADDITIONS_PER_TASK = 60_000  # (example, feature) additions below which a second thread costs more than it gives
KEPT_BYTES = 2**26  # of histograms kept for the next level


class OpenNodes(NamedTuple):
    """The open nodes of one level of a tree.

    Node k is number ``nodes[k]`` of the tree and has ``examples[starts[k]:starts[k + 1]]``, with label x weight in
    ``signed``, which sum to ``totals[k]``. ``parents[k]`` is its parent's place in the level before.
    """

    examples: NDArray[np.uint32]
    signed: NDArray[np.int32]
    nodes: NDArray[np.int64]
    starts: NDArray[np.int64]
    totals: NDArray[np.int64]
    parents: NDArray[np.int64]


class Stumps(NamedTuple):
    """The best stump of each (node, group of features): gain |2c - S|, feature, threshold, sum c on its left."""

    gains: NDArray[np.int64]
    features: NDArray[np.uint32]
    thresholds: NDArray[np.uint8]
    lefts: NDArray[np.int64]


def best_stumps(
    bins: NDArray[np.uint8],
    level: OpenNodes,
    features: NDArray[np.uint32],
    histograms: NDArray[np.int32],
    *,
    keep: bool,
    n_jobs: int | None = None,
) -> tuple[Stumps, NDArray[np.int32]]:
    """Search all nodes of a level.

    Parameters
    ----------
    bins : uint8 array of shape (n_features, n)
        Levels of the features, one row a feature.
    features : uint32 array of shape (n_nodes, width) or (1, width)
        Features to try at each node, or at all; the width is a multiple of LANES.
    histograms : int32 array of shape (parents, groups, HISTOGRAM)
        Those of the level before where the features are the same, or an empty array.
    keep : bool
        Whether to return the histograms of this level, if they are not too many.
    """
    n_nodes, n_groups = len(level.nodes), features.shape[1] // LANES
    shape = n_nodes, n_groups
    stumps = Stumps(
        np.empty(shape, np.int64), np.empty(shape, np.uint32), np.empty(shape, np.uint8), np.empty(shape, np.int64)
    )
    keep = keep and n_nodes * n_groups * HISTOGRAM * 4 <= KEPT_BYTES
    kept = np.empty((n_nodes if keep else 0, n_groups, HISTOGRAM), np.int32)
    families, costs = _families(level.starts, level.parents, len(histograms) > 0)
    arguments = bins, level, features, families, histograms, kept, stumps
    n_items = (len(families) - 1) * n_groups
    n_threads = available_threads(n_jobs)
    if n_threads == 1 or costs.sum() * features.shape[1] < ADDITIONS_PER_TASK:
        _search(*arguments, 0, n_items)
    else:
        work = np.cumsum(np.repeat(costs + 2 * 256, n_groups))
        shares = work[-1] * np.arange(1, 2 * n_threads) / (2 * n_threads)
        cuts = [0, *np.searchsorted(work, shares).tolist(), n_items]
        run_tasks(_search, [(*arguments, a, b) for a, b in pairwise(cuts) if a < b], n_jobs=n_threads)
    return stumps, kept


@kernel
def _families(starts, parents, subtract):
    """Nodes that are searched together, siblings where their parent's histogram is there; examples to go through."""
    n_nodes = len(parents)
    families, costs = np.zeros(n_nodes + 1, np.int64), np.zeros(n_nodes, np.int64)
    n = k = 0
    while k < n_nodes:
        size = starts[k + 1] - starts[k]
        if subtract and k + 1 < n_nodes and parents[k + 1] == parents[k]:
            size = min(size, starts[k + 2] - starts[k + 1])
            k += 1
        k += 1
        costs[n] = size
        n += 1
        families[n] = k
    return families[: n + 1], costs[:n]


@kernel
def _search(bins, level, features, families, histograms, kept, stumps, first, last):
    """Fill the results of items [first, last) of (family, group). O((examples gone through + 256) x LANES) an item."""
    n_groups = features.shape[1] // LANES
    own, other = np.empty(HISTOGRAM, np.int32), np.empty(HISTOGRAM, np.int32)
    scratch = np.empty((3, LANES), np.int32)
    for item in range(first, last):
        family, group = item // n_groups, item % n_groups
        node, sibling = families[family], -1
        if families[family + 1] - node == 2:
            sibling = node + 1
            if level.starts[sibling + 1] - level.starts[sibling] < level.starts[sibling] - level.starts[node]:
                node, sibling = sibling, node
        lanes = features[node % len(features), group * LANES : (group + 1) * LANES]
        part = slice(level.starts[node], level.starts[node + 1])
        _histogram(bins, lanes, level.examples[part], level.signed[part], own)
        _best_of_group(own, lanes, level.totals, node, group, scratch, stumps)
        if len(kept) > 0:
            kept[node, group] = own
        if sibling >= 0:
            other[:] = histograms[level.parents[node], group] - own
            _best_of_group(other, lanes, level.totals, sibling, group, scratch, stumps)
            if len(kept) > 0:
                kept[sibling, group] = other


@kernel
def _histogram(bins, lanes, index, signed, histogram):
    """Sum of ``signed`` at each level of the eight features ``lanes``: histogram[level * 8 + q], int32, overwritten."""
    histogram[:] = 0
    x0, x1, x2, x3 = bins[lanes[0]], bins[lanes[1]], bins[lanes[2]], bins[lanes[3]]
    x4, x5, x6, x7 = bins[lanes[4]], bins[lanes[5]], bins[lanes[6]], bins[lanes[7]]
    for t in range(np.uint64(0), np.uint64(len(index))):
        i = index[t]
        v = signed[t]
        histogram[np.uint32(x0[i]) * np.uint32(8)] += v
        histogram[np.uint32(x1[i]) * np.uint32(8) + np.uint32(1)] += v
        histogram[np.uint32(x2[i]) * np.uint32(8) + np.uint32(2)] += v
        histogram[np.uint32(x3[i]) * np.uint32(8) + np.uint32(3)] += v
        histogram[np.uint32(x4[i]) * np.uint32(8) + np.uint32(4)] += v
        histogram[np.uint32(x5[i]) * np.uint32(8) + np.uint32(5)] += v
        histogram[np.uint32(x6[i]) * np.uint32(8) + np.uint32(6)] += v
        histogram[np.uint32(x7[i]) * np.uint32(8) + np.uint32(7)] += v


@kernel
def _best_of_group(histogram, lanes, totals, node, group, scratch, stumps):
    """Write the best stump on eight features; of equal ones the first feature, and there the lowest threshold."""
    running, highest, lowest = scratch[0], scratch[1], scratch[2]
    scratch[:] = 0
    for level in range(255):
        for q in range(LANES):
            running[q] += histogram[level * LANES + q]
            highest[q] = max(highest[q], running[q])
            lowest[q] = min(lowest[q], running[q])
    total = totals[node]
    best, lane = np.int64(-1), 0
    for q in range(LANES):
        gain = max(2 * np.int64(highest[q]) - total, total - 2 * np.int64(lowest[q]))
        if gain > best:
            best, lane = gain, q
    left, level = np.int64(histogram[lane]), 0
    while level < 255 and abs(2 * left - total) != best:
        level += 1
        left += histogram[level * LANES + lane]
    stumps.gains[node, group] = best
    stumps.features[node, group] = lanes[lane]
    stumps.thresholds[node, group] = level
    stumps.lefts[node, group] = left
