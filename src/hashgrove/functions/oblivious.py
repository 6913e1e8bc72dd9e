"""One oblivious tree, in which all nodes of a level share one test: the one that gains most over all of them together.

Its leaves are Newton steps, see `hashgrove.functions.newton_leaves`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.functions.levels import (
    ADDITIONS_PER_TASK,
    HISTOGRAM,
    LANES,
    KeptHistograms,
    OpenNodes,
    Stumps,
    families_of,
    histograms_to_keep,
    nodes_of_item,
    partition,
)
from hashgrove.functions.newton_leaves import NOISE, NewtonLeaves, fill_sums, gain_alone, largest, split_gains
from hashgrove.functions.tree import draw_features
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import available_threads, chunks, run_tasks

__all__ = ["ObliviousTree", "grow_oblivious"]


class ObliviousTree(NamedTuple):
    """The tests of the levels of a tree and its leaves; see `hashgrove.encoders.oblivious_trees.ObliviousTrees`."""

    feature: NDArray[np.uint32]
    threshold: NDArray[np.uint8]
    leaves: NDArray[np.float64]


def grow_oblivious(
    bins: NDArray[np.uint8],
    index: NDArray[np.uint32],
    values: NDArray[np.int64],
    *,
    leaves: NewtonLeaves,
    max_depth: int,
    n_features: int,
    subset: str,
    seed: np.uint64,
    memory: KeptHistograms,
    n_jobs: int | None = None,
) -> ObliviousTree:
    """Grow a tree on examples that have values; the parameters are those of `hashgrove.functions.tree.grow`.

    Features are drawn once if ``subset`` is "tree", and otherwise for each level. The tree has fewer levels if no test
    gains anything.
    """
    feature, threshold = np.zeros(max_depth, np.uint32), np.zeros(max_depth, np.uint8)
    none = np.zeros(1, np.int64)
    level = OpenNodes(index, values, none, np.array([0, len(values)]), values.sum(keepdims=True), none)
    features = draw_features(len(bins), n_features, seed, none)
    histograms = np.empty((0, features.shape[1] // LANES, HISTOGRAM), np.int64)
    depth = 0
    while depth < max_depth:
        if subset != "tree":
            features = draw_features(len(bins), n_features, seed, np.array([depth]))
        is_last = depth + 1 == max_depth
        best, histograms = _best_tests(
            bins,
            level,
            features,
            histograms,
            leaves,
            memory=memory if subset == "tree" and not is_last else None,
            n_jobs=n_jobs,
        )
        group = np.argmax(best.gains[0])
        if best.gains[0, group] <= _gain_of_all(level.totals, leaves.regularisation) * (1 + NOISE):
            break
        feature[depth], threshold[depth] = best.features[0, group], best.thresholds[0, group]
        level = _divide(bins[feature[depth]], level, threshold[depth], is_last=is_last, n_jobs=n_jobs)
        depth += 1
    steps = leaves.leaf_values(level.totals)[_reversed_bits(depth)]
    return ObliviousTree(feature[:depth].copy(), threshold[:depth].copy(), steps)


def _best_tests(
    bins: NDArray[np.uint8],
    level: OpenNodes,
    features: NDArray[np.uint32],
    histograms: NDArray[np.int64],
    leaves: NewtonLeaves,
    *,
    memory: KeptHistograms | None,
    n_jobs: int | None,
) -> tuple[Stumps, NDArray[np.int64]]:
    """The best test of each group of features, and the histograms of the level if they are kept.

    Threads share the groups: so the gains of a test are always added in the same order.
    """
    n_nodes, n_groups = len(level.nodes), features.shape[1] // LANES
    dtypes = np.float64, np.uint32, np.uint8, np.int64
    best = Stumps(*(np.empty((1, n_groups), dtype) for dtype in dtypes))
    kept = histograms_to_keep(memory, n_nodes, n_groups, level.values.dtype)
    families, costs = families_of(level.starts, level.parents, len(histograms) > 0)
    arguments = bins, level, features, families, histograms, kept, best, leaves.regularisation, leaves.min_half
    small = costs.sum() * features.shape[1] < ADDITIONS_PER_TASK
    n_threads = 1 if small else min(available_threads(n_jobs), n_groups)
    groups = chunks(n_groups, -(-n_groups // n_threads))
    run_tasks(_search, [(*arguments, *part) for part in groups], n_jobs=n_threads)
    return best, kept


@kernel
def _search(bins, level, features, families, histograms, kept, best, regularisation, min_half, first, last):
    """Find the best test of the groups of features [first, last). O((examples visited + 256 nodes) x LANES) each."""
    n_families = len(families) - 1
    pair, gains = np.empty((2, HISTOGRAM), np.int64), np.empty(HISTOGRAM - LANES, np.float64)
    gathered = np.empty((0, LANES), np.uint8)  # bins are read feature by feature
    total_gains = np.empty(HISTOGRAM - LANES, np.float64)
    for group in range(first, last):
        total_gains[:] = 0
        for item in range(group * n_families, (group + 1) * n_families):
            node, sibling, _, lanes = nodes_of_item(level, features, families, item)
            sums = kept[node, group] if len(kept) > 0 else pair[0]
            fill_sums(bins, gathered, lanes, level, node, sums)
            _add_gains(sums, level.totals[node], regularisation, min_half, gains, total_gains)
            if sibling >= 0:
                of_sibling = kept[sibling, group] if len(kept) > 0 else pair[1]
                of_sibling[:] = histograms[level.parents[node], group] - sums
                _add_gains(of_sibling, level.totals[sibling], regularisation, min_half, gains, total_gains)
        place = largest(total_gains.view(np.int64))
        best.gains[0, group] = total_gains[place]
        best.features[0, group] = features[0, group * LANES + place % LANES]
        best.thresholds[0, group] = place // LANES


@kernel
def _add_gains(sums, total, regularisation, min_half, gains, total_gains):
    """Add the gains of one node: that of a leaf for tests that leave too little curvature on a side."""
    split_gains(sums, total, regularisation, min_half, gain_alone(total, regularisation), gains)
    for i in range(len(gains)):
        total_gains[i] += gains[i]


@kernel
def _gain_of_all(totals, regularisation):
    """What the nodes of a level gain as leaves."""
    gain = 0.0
    for k in range(len(totals)):
        gain += gain_alone(totals[k], regularisation)
    return gain


def _divide(
    feature_bins: NDArray[np.uint8], level: OpenNodes, threshold: np.uint8, *, is_last: bool, n_jobs: int | None
) -> OpenNodes:
    """The next level, with two nodes for each node; without their examples if it ``is_last``.

    Threads share the nodes, since the children of a node take the place of its examples.
    """
    n_nodes, n = len(level.totals), 0 if is_last else len(level.examples)
    examples, values = np.empty(n, np.uint32), np.empty(n, np.int64)
    starts, totals = np.zeros(2 * n_nodes + 1, np.int64), np.empty(2 * n_nodes, np.int64)
    arguments = feature_bins, level, threshold, is_last, examples, values, starts, totals
    shares = np.linspace(0, level.starts[-1], available_threads(n_jobs) + 1)
    cuts = sorted({0, *np.searchsorted(level.starts, shares[1:-1]).tolist(), n_nodes})
    run_tasks(_divide_nodes, [(*arguments, *part) for part in pairwise(cuts)], n_jobs=n_jobs)
    numbers = np.arange(2 * n_nodes)
    return OpenNodes(examples, values, numbers, starts, totals, numbers // 2)


@kernel
def _divide_nodes(feature_bins, level, threshold, is_last, examples, values, starts, totals, first, last):
    """Divide the nodes [first, last): write the examples, values, starts and totals of their children."""
    size = 0
    for k in range(first, last):
        size = max(size, level.starts[k + 1] - level.starts[k])
    right, right_values = np.empty(0 if is_last else size, np.uint32), np.empty(0 if is_last else size, np.int64)
    for k in range(first, last):
        start, stop = level.starts[k], level.starts[k + 1]
        mine, my_values, middle = level.examples[start:stop], level.values[start:stop], start
        total = np.int64(0)
        if is_last:
            for t in range(len(mine)):
                total += my_values[t] if feature_bins[mine[t]] <= threshold else 0
        else:
            left, left_values = examples[start:stop], values[start:stop]
            (n_left, n_right), _ = partition(
                feature_bins, mine, my_values, threshold, left, left_values, right, right_values
            )
            left[n_left:], left_values[n_left:] = right[:n_right], right_values[:n_right]
            total = left_values[:n_left].sum()
            middle += n_left
        totals[2 * k], totals[2 * k + 1] = total, level.totals[k] - total
        starts[2 * k + 1], starts[2 * k + 2] = middle, stop


def _reversed_bits(depth: int) -> NDArray[np.int64]:
    """The numbers below 2^depth, each with its bits in reverse order.

    >>> _reversed_bits(2).tolist()
    [0, 2, 1, 3]
    """
    number = np.zeros(1, np.int64)
    for _ in range(depth):
        number = np.concatenate([2 * number, 2 * number + 1])
    return number
