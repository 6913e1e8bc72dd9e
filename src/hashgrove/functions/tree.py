"""One tree on binned features, grown level by level: the weak learner of `hashgrove.functions.boosting`.

Each node is the best decision stump over a random subset of the features (LazyBoost). What is best, and the value of a
leaf, is up to the kind of leaves.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hashgrove.functions.leaf_numbers import number_leaves
from hashgrove.functions.levels import LANES, LOW, KeptHistograms, OpenNodes, Stumps, partition
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.streams import draw, stream

__all__ = ["Leaves", "Tree", "draw_features", "grow"]


class Tree(NamedTuple):
    """The node tables of one tree; see `hashgrove.encoders.trees.Trees` for their meaning."""

    feature: NDArray[np.uint32]
    threshold: NDArray[np.uint8]
    child: NDArray[np.uint32]
    value: NDArray[Any]


class Nodes(NamedTuple):
    """The tables of a tree that grows: as in `Tree`, but with the sum of the values of each node's examples."""

    feature: NDArray[np.uint32]
    threshold: NDArray[np.uint8]
    child: NDArray[np.uint32]
    total: NDArray[np.int64]


class Leaves(Protocol):
    """The kind of leaves of a tree: which stump is the best one, which node is split, and the value of a leaf."""

    @property
    def min_points(self) -> int:
        """A node with at most this many positive, or at most this many other examples, is a leaf."""

    @property
    def min_low(self) -> int:
        """A node whose sum of values is smaller than this in its low 32 bits is a leaf."""

    def best_stumps(
        self,
        bins: NDArray[np.uint8],
        rows: NDArray[np.uint8],
        level: OpenNodes,
        features: NDArray[np.uint32],
        histograms: NDArray[Any],
        *,
        memory: KeptHistograms | None,
        n_jobs: int | None = None,
    ) -> tuple[Stumps, NDArray[Any]]:
        """The best stumps of a level; see `hashgrove.functions.levels.search_level`."""

    def choose(self, stumps: Stumps, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group of features with the best stump of each node, or -1 if the node is a leaf."""

    def leaf_values(self, totals: NDArray[np.int64]) -> NDArray[Any]:
        """The values of leaves, from the sums of the values of their examples."""


def grow(
    bins: NDArray[np.uint8],
    rows: NDArray[np.uint8],
    index: NDArray[np.uint32],
    values: NDArray[Any],
    *,
    leaves: Leaves,
    max_depth: int,
    n_features: int,
    subset: str,
    seed: np.uint64,
    memory: KeptHistograms,
    numbers: NDArray[np.uint32] | None = None,
    n_jobs: int | None = None,
) -> Tree:
    """Grow a tree on examples that have values.

    Parameters
    ----------
    bins : uint8 array of shape (n_features, n)
        The binned features, one row per feature.
    rows : uint8 array of shape (n, n_features) or (0, 0)
        The same, one row per example, to read those of small nodes from; the tree does not depend on it.
    index, values : arrays of shape (m,)
        The numbers of the examples to use, and their values, as the leaves define them.
    leaves : Leaves
        The kind of leaves.
    n_features : int
        How many features are drawn.
    subset : {"node", "level", "tree"}
        Whether they are drawn for each node, for each level, or once for the tree.
    seed : uint64
        Seed of the features that are drawn.
    memory : KeptHistograms
        Memory that may be used for other trees before and after.
    numbers : uint32 array of shape (n,) or None
        Where the number of the leaf of each example is written, if that is wanted.
    """
    capacity = min(2 ** (max_depth + 1) - 1, 2 * len(index) + 1)
    nodes = Nodes(*(np.zeros(capacity, dtype) for dtype in (np.uint32, np.uint8, np.uint32, np.int64)))
    limits = leaves.min_points, leaves.min_low
    n_nodes = 1
    level = OpenNodes(index, values, *_root(values, *limits, nodes.total))
    features = draw_features(len(bins), n_features, seed, np.zeros(1, np.int64))
    histograms = np.empty((0, features.shape[1] // LANES, 0), values.dtype)
    for depth in range(max_depth):
        if not len(level.nodes):
            break
        is_last = depth + 1 == max_depth
        if subset != "tree":
            drawn_for = level.nodes if subset == "node" else np.array([depth])
            features = draw_features(len(bins), n_features, seed, drawn_for)
        stumps, histograms = leaves.best_stumps(
            bins,
            rows,
            level,
            features,
            histograms,
            memory=memory if subset == "tree" and not is_last else None,
            n_jobs=n_jobs,
        )
        chosen = leaves.choose(stumps, level.totals)
        n_nodes, *tables = _split(bins, level, stumps, chosen, is_last, *limits, n_nodes, nodes)
        following = OpenNodes(*tables)
        if numbers is not None:
            number_leaves(bins, level, nodes.feature, nodes.threshold, nodes.child, following.nodes, numbers)
        level = following
    used = slice(n_nodes)
    value = leaves.leaf_values(nodes.total[used])
    value[nodes.child[used] > 0] = 0
    return Tree(nodes.feature[used].copy(), nodes.threshold[used].copy(), nodes.child[used].copy(), value)


@kernel
def _stays_open(n, positive, total, min_points, min_low):
    """Whether a node with ``n`` examples, ``positive`` of them positive, may be split; see `Leaves`."""
    return min(positive, n - positive) > min_points and (total & LOW) >= min_low


@kernel
def _root(values, min_points, min_low, totals):
    """The nodes, starts, totals and parents of the first level: the root, or nothing if the root is a leaf."""
    total, positive = np.int64(0), 0
    for t in range(len(values)):
        total += values[t]
        positive += values[t] > 0
    totals[0] = total
    n_open = 1 if _stays_open(len(values), positive, total, min_points, min_low) else 0
    starts = np.zeros(n_open + 1, np.int64)
    starts[n_open] = len(values) * n_open
    return np.zeros(n_open, np.int64), starts, np.full(n_open, total), np.zeros(n_open, np.int64)


@kernel
def draw_features(n_features, k, seed, nodes):
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
def _split(bins, level, stumps, chosen, is_last, min_points, min_low, n_nodes, tree):
    """Split nodes by their chosen stumps; returns the number of nodes and the fields of the next `OpenNodes`."""
    n_open = len(level.nodes)
    room = 0 if is_last else len(level.examples) + 1  # `partition` may write one entry too many
    examples, values = np.empty(room, np.uint32), np.empty(room, level.values.dtype)
    right_examples, right_values = np.empty(room, np.uint32), np.empty(room, level.values.dtype)
    nodes, parents = np.empty(2 * n_open, np.int64), np.empty(2 * n_open, np.int64)
    starts, totals = np.zeros(2 * n_open + 1, np.int64), np.empty(2 * n_open, np.int64)
    filled = opened = 0
    for k in range(n_open):
        node, group = level.nodes[k], chosen[k]
        if group < 0:
            continue
        feature, threshold = stumps.features[k, group], stumps.thresholds[k, group]
        tree.feature[node], tree.threshold[node], tree.child[node] = feature, threshold, n_nodes
        side_totals = (stumps.lefts[k, group], level.totals[k] - stumps.lefts[k, group])
        sizes = positives = (0, 0)
        if not is_last:
            part = slice(level.starts[k], level.starts[k + 1])
            sizes, positives = partition(
                bins[feature], level.examples[part], level.values[part], threshold,
                examples[filled:], values[filled:], right_examples, right_values,
            )  # fmt: skip
        for side in range(2):
            size, total = sizes[side], side_totals[side]
            tree.total[n_nodes] = total
            if not is_last and _stays_open(size, positives[side], total, min_points, min_low):
                if side == 1:
                    examples[filled : filled + size] = right_examples[:size]
                    values[filled : filled + size] = right_values[:size]
                nodes[opened], totals[opened], parents[opened] = n_nodes, total, k
                opened += 1
                filled += size
                starts[opened] = filled
            n_nodes += 1
    starts, totals, parents = starts[: opened + 1], totals[:opened], parents[:opened]
    return n_nodes, examples[:filled], values[:filled], nodes[:opened], starts, totals, parents
