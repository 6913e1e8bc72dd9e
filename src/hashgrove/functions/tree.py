"""One weighted tree on binned features, grown level by level: the weak learner of `hashgrove.functions.boosting`.

A node is a decision stump of least weighted classification error, with either polarity, over a random subset of the
features (LazyBoost). With signed weights y_i w_i, the error of a stump that puts c on its left and S - c on its right
is least where |2c - S| is greatest, so a split needs only the largest and the smallest cumulative sum. Weights are
integers, so sums are exact and the tree is the same for any number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.jit import available_threads, kernel, run
from hashgrove.sampling import draw, stream

__all__ = ["LANES", "Tree", "grow"]

LANES = 8  # features that share a pass over the examples, and one histogram of 8 KB
EXAMPLES_PER_TASK = 60_000  # (example, feature) additions below which a second thread costs more than it gives


class Tree(NamedTuple):
    """The node tables of one tree; see `hashgrove.encoders.trees.Trees` for their meaning."""

    feature: NDArray[np.uint32]
    threshold: NDArray[np.uint8]
    child: NDArray[np.uint32]
    value: NDArray[np.int8]


def grow(
    bins: NDArray[np.uint8],
    index: NDArray[np.uint32],
    signed: NDArray[np.int32],
    *,
    max_depth: int,
    features_per_node: int,
    min_points: int,
    seed: np.uint64,
    n_jobs: int | None = None,
) -> Tree:
    """Grow a tree on the examples ``index`` with signed weights ``signed`` (label x weight, in fixed point).

    Parameters
    ----------
    bins : uint8 array of shape (n_features, n)
        Levels of the features, one row a feature.
    index, signed : arrays of shape (m,)
        The examples that count, and their label x weight; the absolute weights sum to less than 2^31.
    min_points : int
        A node with this many examples or fewer of either class becomes a leaf.
    """
    capacity = min(2 ** (max_depth + 1) - 1, 2 * len(index) + 1)
    tree = Tree(
        np.zeros(capacity, np.uint32),
        np.zeros(capacity, np.uint8),
        np.zeros(capacity, np.uint32),
        np.zeros(capacity, np.int8),
    )
    n_nodes = 1
    # the open nodes of a level: number in the tree, range in `index`, sum of signed weights
    nodes, starts, totals = _root(signed, min_points, tree.value)
    for depth in range(max_depth):
        if not len(nodes):
            break
        features = _draw_features(bins.shape[0], features_per_node, seed, nodes)
        best = _search(bins, index, signed, starts, totals, features, n_jobs)
        n_nodes, index, signed, nodes, starts, totals = _split(
            bins,
            index,
            signed,
            nodes,
            starts,
            totals,
            *best,
            depth + 1 == max_depth,
            min_points,
            n_nodes,
            *tree,
        )
    return Tree._make(table[:n_nodes].copy() for table in tree)


def _search(
    bins: NDArray[np.uint8],
    index: NDArray[np.uint32],
    signed: NDArray[np.int32],
    starts: NDArray[np.int64],
    totals: NDArray[np.int64],
    features: NDArray[np.uint32],
    n_jobs: int | None,
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint8], NDArray[np.int64]]:
    """The best stump of each (node, group of features): gain, feature, threshold and the sum on its left."""
    shape = len(starts) - 1, features.shape[1] // LANES
    gains, lefts = np.empty(shape, np.int64), np.empty(shape, np.int64)
    chosen, thresholds = np.empty(shape, np.uint32), np.empty(shape, np.uint8)
    arguments = bins, index, signed, starts, totals, features, gains, chosen, thresholds, lefts
    n_threads = available_threads(n_jobs)
    n_items = shape[0] * shape[1]
    if n_threads == 1 or len(index) * features.shape[1] < EXAMPLES_PER_TASK:
        _best_stumps(*arguments, 0, n_items)
    else:
        costs = np.cumsum(np.repeat(np.diff(starts) + 2 * 256, shape[1]))
        shares = costs[-1] * np.arange(1, 2 * n_threads) / (2 * n_threads)
        cuts = [0, *np.searchsorted(costs, shares).tolist(), n_items]
        run(
            _best_stumps,
            [(*arguments, a, b) for a, b in pairwise(cuts) if a < b],
            n_jobs=n_threads,
        )
    return gains, chosen, thresholds, lefts


@kernel
def _root(signed, min_points, value):
    """The root as the only open node, or as a leaf where one class is (almost) missing."""
    total, positive = np.int64(0), 0
    for t in range(len(signed)):
        total += signed[t]
        positive += signed[t] > 0
    is_leaf = min(positive, len(signed) - positive) <= min_points
    if is_leaf:
        value[0] = 1 if total > 0 else -1
    n_open = 0 if is_leaf else 1
    nodes, starts = np.zeros(n_open, np.int64), np.zeros(n_open + 1, np.int64)
    starts[n_open] = len(signed) if n_open else 0
    totals = np.full(n_open, total)
    return nodes, starts, totals


@kernel
def _draw_features(n_features, per_node, seed, nodes):
    """Distinct features for each node, (nodes, multiple of LANES); the last one is repeated to fill the last group."""
    k = min(per_node, n_features)
    width = (k + LANES - 1) // LANES * LANES
    features = np.empty((len(nodes), width), np.uint32)
    stamp, drawn = np.zeros(n_features, np.int64), np.empty(n_features, np.int64)
    for row in range(len(nodes)):
        draw(stream(seed, nodes[row]), n_features, k, stamp, row + 1, drawn)
        for t in range(width):
            features[row, t] = drawn[min(t, k - 1)]
    return features


@kernel
def _best_stumps(bins, index, signed, starts, totals, features, gains, chosen, thresholds, lefts, first, last):
    """Fill the results of items [first, last) of (node, group). O((examples of the node + 256) x LANES) an item."""
    n_groups = features.shape[1] // LANES
    histogram = np.empty(256 * LANES, np.int32)
    running, highest, lowest = np.empty(LANES, np.int32), np.empty(LANES, np.int32), np.empty(LANES, np.int32)
    for item in range(first, last):
        node, group = item // n_groups, item % n_groups
        lanes = features[node, group * LANES : (group + 1) * LANES]
        _histogram(
            bins,
            lanes,
            index[starts[node] : starts[node + 1]],
            signed[starts[node] : starts[node + 1]],
            histogram,
        )
        running[:] = 0
        highest[:] = 0
        lowest[:] = 0
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
        gains[node, group] = best
        chosen[node, group] = lanes[lane]
        thresholds[node, group] = level
        lefts[node, group] = left


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
def _split(
    bins, index, signed, nodes, starts, totals, gains, chosen, thresholds, lefts, is_last, min_points, n_nodes,
    feature, threshold, child, value,
):  # fmt: skip
    """Split the open nodes by their best stump into the tree's tables; returns the open nodes of the next level.

    A stump with nothing on one side gains exactly |S|, so a node splits only where the gain is above that.
    """
    n_open = len(nodes)
    room = 0 if is_last else len(index) + 1  # one more: `_take_side` writes before it knows
    next_index, next_signed = np.empty(room, np.uint32), np.empty(room, np.int32)
    next_nodes, next_totals = np.empty(2 * n_open, np.int64), np.empty(2 * n_open, np.int64)
    next_starts = np.zeros(2 * n_open + 1, np.int64)
    filled = opened = 0
    for k in range(n_open):
        group = np.argmax(gains[k])
        node, total, left = nodes[k], totals[k], lefts[k, group]
        if gains[k, group] <= abs(total):
            value[node] = 1 if total > 0 else -1
            continue
        feature[node], threshold[node], child[node] = chosen[k, group], thresholds[k, group], n_nodes
        side_totals = (left, total - left)
        for side in range(2):
            value[n_nodes + side] = 1 if side_totals[side] > 0 else -1
        if not is_last:
            for side in range(2):
                start, positive = filled, 0
                filled = _take_side(
                    bins[chosen[k, group]], index[starts[k] : starts[k + 1]], signed[starts[k] : starts[k + 1]],
                    thresholds[k, group], side, next_index, next_signed, filled,
                )  # fmt: skip
                for t in range(start, filled):
                    positive += next_signed[t] > 0
                if min(positive, filled - start - positive) <= min_points:
                    filled = start
                else:
                    value[n_nodes + side] = 0
                    next_nodes[opened], next_totals[opened] = n_nodes + side, side_totals[side]
                    opened += 1
                    next_starts[opened] = filled
        n_nodes += 2
    next_starts, next_totals = next_starts[: opened + 1], next_totals[:opened]
    return n_nodes, next_index[:filled], next_signed[:filled], next_nodes[:opened], next_starts, next_totals


@kernel
def _take_side(levels, index, signed, threshold, side, out_index, out_signed, filled):
    """Append the examples of one side of a stump, in their order, without a branch; returns the new length."""
    filled = np.uint64(filled)
    for t in range(np.uint64(0), np.uint64(len(index))):
        i = index[t]
        out_index[filled] = i
        out_signed[filled] = signed[t]
        filled += np.uint64((levels[i] > threshold) == (side == 1))
    return np.int64(filled)
