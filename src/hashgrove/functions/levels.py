"""One level of a tree that grows: its open nodes, their histograms, and the division of their examples at a split.

Each example has a value that is a whole number, so sums are exact and do not depend on their order, and the histogram
of a node is exactly that of its parent minus that of its sibling. What a value means, and which split is the best, is
up to the leaves of the tree: `hashgrove.functions.sign_leaves` and `hashgrove.functions.newton_leaves`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import prefetch
from hashgrove.runtime.threads import available_threads, run_tasks

__all__ = [
    "ADDITIONS_PER_TASK",
    "HISTOGRAM",
    "LANES",
    "LOW",
    "KeptHistograms",
    "OpenNodes",
    "Stumps",
    "example_ahead",
    "families_of",
    "fill_histogram",
    "histograms_to_keep",
    "nodes_of_item",
    "partition",
    "search_level",
]

LANES = 8  # features that share one pass over the examples and one histogram
HISTOGRAM = 256 * LANES  # entries of a histogram: 256 bins for each of these features
ADDITIONS_PER_TASK = 60_000  # with fewer additions (examples x features) a second thread does not pay
SEARCH_COST = 512  # to search the histograms of a family takes as long as to add so many examples
LOW = 2**32 - 1  # the low half of a value
AHEAD = 24  # examples between the one whose bin is read and the one whose bin is fetched
KEPT_BYTES = 2**26  # largest size of the histograms that are kept for the next level


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


class Stumps(NamedTuple):
    """The best stump of each (node, group of features): gain, feature, threshold, and sum of values on its left."""

    gains: NDArray[Any]
    features: NDArray[np.uint32]
    thresholds: NDArray[np.uint8]
    lefts: NDArray[np.int64]


class KeptHistograms:
    """Memory for the histograms of a level and of the one before it, used again for the next levels and trees."""

    def __init__(self) -> None:
        self._rooms = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array for the next level; that of the level before the last one becomes invalid."""
        self._rooms.reverse()
        size = int(np.prod(shape)) * dtype.itemsize
        if len(self._rooms[0]) < size:
            self._rooms[0] = np.empty(size, np.uint8)
        return self._rooms[0][:size].view(dtype).reshape(shape)


def histograms_to_keep(
    memory: KeptHistograms | None, n_nodes: int, n_groups: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """An array for the histograms of a level, empty without memory or if they are larger than KEPT_BYTES."""
    if memory is None or n_nodes * n_groups * HISTOGRAM * dtype.itemsize > KEPT_BYTES:
        return np.empty((0, n_groups, HISTOGRAM), dtype)
    return memory.room((n_nodes, n_groups, HISTOGRAM), dtype)


def search_level(
    search: Callable[..., None],
    bins: NDArray[np.uint8],
    rows: NDArray[np.uint8],
    level: OpenNodes,
    features: NDArray[np.uint32],
    histograms: NDArray[Any],
    *,
    rule: tuple[Any, ...] = (),
    gain_type: type,
    memory: KeptHistograms | None,
    n_jobs: int | None = None,
) -> tuple[Stumps, NDArray[Any]]:
    """Find the best stumps of all nodes of a level, and the histograms if they are kept.

    Parameters
    ----------
    search : kernel
        Called as ``search(bins, rows, level, features, families, histograms, kept, stumps, *rule, first, last)``, it
        writes the stumps of the items [first, last), see `nodes_of_item`, and their histograms to ``kept`` unless it is
        empty.
    bins : uint8 array of shape (n_features, n)
        The binned features, one row per feature.
    rows : uint8 array of shape (n, n_features) or (0, 0)
        The same, one row per example, to read those of small nodes from.
    level : OpenNodes
    features : uint32 array of shape (n_nodes, width) or (1, width)
        The features to try at each node, or at all nodes; the width is a multiple of LANES.
    histograms : array of shape (n_parents, n_groups, HISTOGRAM)
        The histograms of the previous level if it had the same features, otherwise an empty array.
    rule : tuple
        What else the search needs to know.
    gain_type : type
        The type of a gain.
    memory : KeptHistograms or None
        Where the histograms of this level are kept, unless they are too large; None if they are not needed.
    """
    n_nodes, n_groups = len(level.nodes), features.shape[1] // LANES
    dtypes = gain_type, np.uint32, np.uint8, np.int64
    stumps = Stumps(*(np.empty((n_nodes, n_groups), dtype) for dtype in dtypes))
    kept = histograms_to_keep(memory, n_nodes, n_groups, level.values.dtype)
    families, costs = families_of(level.starts, level.parents, len(histograms) > 0)
    arguments = bins, rows, level, features, families, histograms, kept, stumps, *rule
    n_items = (len(families) - 1) * n_groups
    n_threads = available_threads(n_jobs)
    if n_threads == 1 or costs.sum() * features.shape[1] < ADDITIONS_PER_TASK:
        search(*arguments, 0, n_items)
    else:
        cuts = _equal_shares(costs, n_groups, len(features) == 1, n_threads)
        run_tasks(search, [(*arguments, a, b) for a, b in pairwise(cuts.tolist()) if a < b], n_jobs=n_threads)
    return stumps, kept


@kernel
def _equal_shares(costs, n_groups, shared, n_shares):
    """Divide the items of a level, in the order of `nodes_of_item`, into shares of about equal work; returns the cuts.

    ``costs`` has the examples to visit for each family. Share s has the items from cuts[s] to cuts[s + 1].
    """
    n_families = len(costs)
    n_items, total = n_families * n_groups, (costs.sum() + SEARCH_COST * n_families) * n_groups
    cuts = np.full(n_shares + 1, n_items, np.int64)
    done, share = np.int64(0), 0
    for item in range(n_items):
        while done * n_shares >= total * share:
            cuts[share] = item
            share += 1
        done += costs[item % n_families if shared else item // n_groups] + SEARCH_COST
    return cuts


@kernel
def families_of(starts, parents, subtract):
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
def nodes_of_item(level, features, families, item):
    """(node, sibling, group, features of the group) of one item, a (family, group of features).

    The sibling, which has more examples than the node, is -1 if the family has one node. Items are sorted by group and
    then by family if all nodes have the same features, and otherwise by family.
    """
    n_groups, n_families = features.shape[1] // LANES, len(families) - 1
    if len(features) == 1:  # one group of features for all families, as long as the cache holds it
        family, group = item % n_families, item // n_families
    else:
        family, group = item // n_groups, item % n_groups
    node, sibling = families[family], -1
    if families[family + 1] - node == 2:
        sibling = node + 1
        if level.starts[sibling + 1] - level.starts[sibling] < level.starts[sibling] - level.starts[node]:
            node, sibling = sibling, node
    return node, sibling, group, features[node % len(features), group * LANES : (group + 1) * LANES]


@kernel
def fill_histogram(bins, gathered, lanes, level, node, histogram):
    """Write the sum of a node's values in each bin of feature lanes[q] to histogram[bin * 8 + q]. O(examples).

    The bins are read from ``gathered``, see `hashgrove.functions.gathered`, unless that is empty.
    """
    part = slice(level.starts[node], level.starts[node + 1])
    if len(gathered) > 0:
        _gathered_histogram(gathered, level.values[part], histogram)
    else:
        _histogram(bins, lanes, level.examples[part], level.values[part], histogram)


@kernel
def _gathered_histogram(gathered, values, histogram):
    histogram[:] = 0
    for t in range(np.uint64(len(values))):
        value = values[t]
        for q in range(np.uint64(LANES)):
            histogram[np.uint64(gathered[t, q]) * np.uint64(LANES) + q] += value


@kernel
def _histogram(bins, lanes, index, values, histogram):
    histogram[:] = 0
    x0, x1, x2, x3 = bins[lanes[0]], bins[lanes[1]], bins[lanes[2]], bins[lanes[3]]
    x4, x5, x6, x7 = bins[lanes[4]], bins[lanes[5]], bins[lanes[6]], bins[lanes[7]]
    for t in range(np.uint64(0), np.uint64(len(index))):
        i = index[t]
        v = values[t]
        histogram[np.uint32(x0[i]) * np.uint32(8)] += v
        histogram[np.uint32(x1[i]) * np.uint32(8) + np.uint32(1)] += v
        histogram[np.uint32(x2[i]) * np.uint32(8) + np.uint32(2)] += v
        histogram[np.uint32(x3[i]) * np.uint32(8) + np.uint32(3)] += v
        histogram[np.uint32(x4[i]) * np.uint32(8) + np.uint32(4)] += v
        histogram[np.uint32(x5[i]) * np.uint32(8) + np.uint32(5)] += v
        histogram[np.uint32(x6[i]) * np.uint32(8) + np.uint32(6)] += v
        histogram[np.uint32(x7[i]) * np.uint32(8) + np.uint32(7)] += v


@kernel
def example_ahead(examples, t):
    """The example whose bin is fetched while example t is read: those of a small node are in different cache lines."""
    return np.uint64(examples[min(t + np.uint64(AHEAD), np.uint64(len(examples) - 1))])


@kernel
def partition(feature_bins, examples, values, threshold, left, left_values, right, right_values):
    """Write the examples of each side of a stump, in their order, without a branch.

    Returns the number of examples on each side, and the number of positive values among them. Each output array must
    have room for one example more than it gets.
    """
    n_left = n_right = positive_left = positive = np.uint64(0)
    for t in range(np.uint64(len(examples))):
        prefetch(feature_bins, example_ahead(examples, t))
        i, value = examples[t], values[t]
        left[n_left], left_values[n_left] = i, value
        right[n_right], right_values[n_right] = i, value
        to_left = np.uint64(feature_bins[i] <= threshold)
        n_left += to_left
        n_right += np.uint64(1) - to_left
        positive += np.uint64(value > 0)
        positive_left += to_left & np.uint64(value > 0)
    sizes = np.int64(n_left), np.int64(n_right)
    return sizes, (np.int64(positive_left), np.int64(positive - positive_left))
