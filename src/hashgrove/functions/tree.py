"""One weighted tree on binned features, grown level by level: the weak learner of `hashgrove.functions.boosting`.

Each node is the decision stump, of either polarity, with the least weighted classification error over a random subset
of the features (LazyBoost). The value of a leaf is the sign of the sum of its signed weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.functions.stumps import LANES, OpenNodes, best_stumps
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.streams import draw, stream

__all__ = ["Tree", "grow"]


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
    n_features: int,
    per_node: bool,
    min_points: int,
    seed: np.uint64,
    n_jobs: int | None = None,
) -> Tree:
    """Grow a tree on weighted examples.

    Parameters
    ----------
    bins : uint8 array of shape (n_features, n)
        The binned features, one row per feature.
    index, signed : arrays of shape (m,)
        The numbers of the examples to use, and their label x weight in fixed point. The absolute weights sum to less
        than 2^31.
    n_features, per_node : int, bool
        How many features are drawn, and whether they are drawn for each node or once for the tree.
    min_points : int
        A node with this many examples or fewer of either class becomes a leaf.
    seed : uint64
        Seed of the features that are drawn.
    """
    capacity = min(2 ** (max_depth + 1) - 1, 2 * len(index) + 1)
    dtypes = np.uint32, np.uint8, np.uint32, np.int8
    tree = Tree(*(np.zeros(capacity, dtype) for dtype in dtypes))
    n_nodes = 1
    level = OpenNodes(index, signed, *_root(signed, min_points, tree.value))
    features = _draw_features(len(bins), n_features, seed, np.zeros(1, np.int64))
    histograms = np.empty((0, features.shape[1] // LANES, 0), np.int32)
    for depth in range(max_depth):
        if not len(level.nodes):
            break
        is_last = depth + 1 == max_depth
        if per_node:
            features = _draw_features(len(bins), n_features, seed, level.nodes)
        stumps, histograms = best_stumps(
            bins, level, features, histograms, keep=not (per_node or is_last), n_jobs=n_jobs
        )
        n_nodes, *tables = _split(bins, level, stumps, is_last, min_points, n_nodes, tree)
        level = OpenNodes(*tables)
    return Tree._make(table[:n_nodes].copy() for table in tree)


@kernel
def _root(signed, min_points, value):
    """The nodes, starts, totals and parents of the first level: the root, or nothing if the root is a leaf."""
    total, positive = np.int64(0), 0
    for t in range(len(signed)):
        total += signed[t]
        positive += signed[t] > 0
    n_open = 1
    if min(positive, len(signed) - positive) <= min_points:
        value[0] = 1 if total > 0 else -1
        n_open = 0
    starts = np.zeros(n_open + 1, np.int64)
    starts[n_open] = len(signed) * n_open
    return np.zeros(n_open, np.int64), starts, np.full(n_open, total), np.zeros(n_open, np.int64)


@kernel
def _draw_features(n_features, k, seed, nodes):
    """Draw k distinct features for each node; returns an array of shape (nodes, k rounded up to a multiple of LANES).

    The last feature is repeated to fill the last group.
    """
    k = min(k, n_features)
    width = (k + LANES - 1) // LANES * LANES
    features = np.empty((len(nodes), width), np.uint32)
    stamp, drawn = np.zeros(n_features, np.int64), np.empty(n_features, np.int64)
    for row in range(len(nodes)):
        draw(stream(seed, nodes[row]), n_features, k, stamp, row + 1, drawn)
        for t in range(width):
            features[row, t] = drawn[min(t, k - 1)]
    return features


@kernel
def _split(bins, level, stumps, is_last, min_points, n_nodes, tree):
    """Split the open nodes by their best stumps; returns the number of nodes and the fields of the next `OpenNodes`.

    A stump with nothing on one side has a gain of exactly |S|, so a node is split only if its gain is larger.
    """
    n_open = len(level.nodes)
    room = 0 if is_last else len(level.examples) + 1  # `_partition` may write one entry too many
    examples, signed = np.empty(room, np.uint32), np.empty(room, np.int32)
    right_examples, right_signed = np.empty(room, np.uint32), np.empty(room, np.int32)
    nodes, parents = np.empty(2 * n_open, np.int64), np.empty(2 * n_open, np.int64)
    starts, totals = np.zeros(2 * n_open + 1, np.int64), np.empty(2 * n_open, np.int64)
    filled = opened = 0
    for k in range(n_open):
        group = np.argmax(stumps.gains[k])
        node, total = level.nodes[k], level.totals[k]
        if stumps.gains[k, group] <= abs(total):
            tree.value[node] = 1 if total > 0 else -1
            continue
        feature, threshold = stumps.features[k, group], stumps.thresholds[k, group]
        tree.feature[node], tree.threshold[node], tree.child[node] = feature, threshold, n_nodes
        side_totals = (stumps.lefts[k, group], total - stumps.lefts[k, group])
        sizes = positives = (0, 0)
        if not is_last:
            part = slice(level.starts[k], level.starts[k + 1])
            sizes, positives = _partition(
                bins[feature], level.examples[part], level.signed[part], threshold,
                examples[filled:], signed[filled:], right_examples, right_signed,
            )  # fmt: skip
        for side in range(2):
            tree.value[n_nodes] = 1 if side_totals[side] > 0 else -1
            if min(positives[side], sizes[side] - positives[side]) > min_points and not is_last:
                if side == 1:
                    examples[filled : filled + sizes[1]] = right_examples[: sizes[1]]
                    signed[filled : filled + sizes[1]] = right_signed[: sizes[1]]
                tree.value[n_nodes] = 0
                nodes[opened], totals[opened], parents[opened] = n_nodes, side_totals[side], k
                opened += 1
                filled += sizes[side]
                starts[opened] = filled
            n_nodes += 1
    starts, totals, parents = starts[: opened + 1], totals[:opened], parents[:opened]
    return n_nodes, examples[:filled], signed[:filled], nodes[:opened], starts, totals, parents


@kernel
def _partition(feature_bins, examples, signed, threshold, left, left_signed, right, right_signed):
    """Write the examples of each side of a stump, in their order, without a branch.

    Returns the number of examples on each side, and the number of positive ones among them. Each output array must have
    room for one example more than it gets.
    """
    n_left = n_right = positive_left = positive = np.uint64(0)
    for t in range(np.uint64(len(examples))):
        i, weight = examples[t], signed[t]
        left[n_left], left_signed[n_left] = i, weight
        right[n_right], right_signed[n_right] = i, weight
        to_left = np.uint64(feature_bins[i] <= threshold)
        n_left += to_left
        n_right += np.uint64(1) - to_left
        positive += np.uint64(weight > 0)
        positive_left += to_left & np.uint64(weight > 0)
    sizes = np.int64(n_left), np.int64(n_right)
    return sizes, (np.int64(positive_left), np.int64(positive - positive_left))
