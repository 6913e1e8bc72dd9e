"""The best decision stump of every open node of one level of a tree, found from histograms of weights.

Examples have signed weights y_i w_i, which sum to S at a node. A stump with the sum c on its left and S - c on its
right, labelled with opposite signs, has the least error if |2c - S| is largest. So for each feature only the largest
and the smallest cumulative sum matter. Weights are integers, so sums are exact and do not depend on their order, and
the histogram of a node is exactly that of its parent minus that of its sibling.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import available_threads, run_tasks

__all__ = ["LANES", "OpenNodes", "Stumps", "best_stumps"]

LANES = 8  # features that share one pass over the examples and one histogram of 8 KB
HISTOGRAM = 256 * LANES  # entries of a histogram: 256 bins for each of these features
ADDITIONS_PER_TASK = 60_000  # with fewer additions (examples x features) a second thread does not pay
KEPT_BYTES = 2**26  # largest size of the histograms that are kept for the next level


class OpenNodes(NamedTuple):
    """The open nodes of one level of a tree.

    Node k has the number ``nodes[k]`` in the tree and holds ``examples[starts[k]:starts[k + 1]]``. The same part of
    ``signed`` has the label x weight of these examples, which sum to ``totals[k]``. ``parents[k]`` is the position of
    its parent in the previous level.
    """

    examples: NDArray[np.uint32]
    signed: NDArray[np.int32]
    nodes: NDArray[np.int64]
    starts: NDArray[np.int64]
    totals: NDArray[np.int64]
    parents: NDArray[np.int64]


class Stumps(NamedTuple):
    """The best stump of each (node, group of features): gain |2c - S|, feature, threshold, and sum c on its left."""

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
    """Find the best stumps of all nodes of a level, and the histograms if they are kept.

    Parameters
    ----------
    bins : uint8 array of shape (n_features, n)
        The binned features, one row per feature.
    level : OpenNodes
    features : uint32 array of shape (n_nodes, width) or (1, width)
        The features to try at each node, or at all nodes; the width is a multiple of LANES.
    histograms : int32 array of shape (n_parents, n_groups, HISTOGRAM)
        The histograms of the previous level if it had the same features, otherwise an empty array.
    keep : bool
        Whether to return the histograms of this level, unless they are larger than KEPT_BYTES.
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
    """Group the nodes into families, which are searched together, and count the examples to visit for each family.

    Family f has the nodes from families[f] to families[f + 1]: two siblings if the histogram of their parent is kept
    (``subtract``), otherwise one node.
    """
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
    """Find the stumps of the items [first, last), where an item is a (family, group of features).

    Writes ``stumps`` and, unless it is empty, ``kept``. O((examples visited + 256) x LANES) per item.
    """
    n_groups = features.shape[1] // LANES
    histogram, of_sibling = np.empty(HISTOGRAM, np.int32), np.empty(HISTOGRAM, np.int32)
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
        _histogram(bins, lanes, level.examples[part], level.signed[part], histogram)
        _best_of_group(histogram, lanes, level.totals, node, group, scratch, stumps)
        if len(kept) > 0:
            kept[node, group] = histogram
        if sibling >= 0:
            of_sibling[:] = histograms[level.parents[node], group] - histogram
            _best_of_group(of_sibling, lanes, level.totals, sibling, group, scratch, stumps)
            if len(kept) > 0:
                kept[sibling, group] = of_sibling


@kernel
def _histogram(bins, lanes, index, signed, histogram):
    """Write the sum of ``signed`` in each bin of feature lanes[q] to histogram[bin * 8 + q], int32. O(examples)."""
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
    """Write the best stump on eight features; ties go to the first feature, and then to the lowest threshold."""
    running, highest, lowest = scratch[0], scratch[1], scratch[2]
    scratch[:] = 0
    for threshold in range(255):
        for q in range(LANES):
            running[q] += histogram[threshold * LANES + q]
            highest[q] = max(highest[q], running[q])
            lowest[q] = min(lowest[q], running[q])
    total = totals[node]
    best, lane = np.int64(-1), 0
    for q in range(LANES):
        gain = max(2 * np.int64(highest[q]) - total, total - 2 * np.int64(lowest[q]))
        if gain > best:
            best, lane = gain, q
    left, threshold = np.int64(histogram[lane]), 0
    while threshold < 255 and abs(2 * left - total) != best:
        threshold += 1
        left += histogram[threshold * LANES + lane]
    stumps.gains[node, group] = best
    stumps.features[node, group] = lanes[lane]
    stumps.thresholds[node, group] = threshold
    stumps.lefts[node, group] = left
