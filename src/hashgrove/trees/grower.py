"""One tree, grown level by level on examples with values: the weak learner of both boosters.

Each node is the best decision stump over a random subset of the features (LazyBoost). `hashgrove.trees.splitting` says
which stump is the best one and which value a leaf has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import prefetch
from hashgrove.runtime.streams import draw, stream
from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.trees.binning import TILE, BinnedData
from hashgrove.trees.boosting import BoostingSettings, Workspace
from hashgrove.trees.histogram import LANES, OpenNodes, example_ahead, prefetch_row
from hashgrove.trees.prediction import MAX_DEPTH_IN_VECTORS, Nodes, walk
from hashgrove.trees.splitting import SplitRule, best_stumps, choose_groups, leaf_values, may_split

__all__ = ["constant_tree", "grow"]

NO_LEAF = np.uint32(2**32 - 1)  # the leaf of a row that is not known yet
ROWS_PER_CHUNK = 2**14


class _Tables(NamedTuple):
    """The node tables of a growing tree: as in `Nodes`, but with the sum of the values of each node's examples."""

    feature: NDArray[np.uint32]
    threshold: NDArray[np.uint8]
    child: NDArray[np.uint32]
    total: NDArray[np.int64]


def constant_tree(value: NDArray[Any]) -> Nodes:
    """A tree that is a single leaf; ``value`` has shape (1,)."""
    zero = np.zeros(1, np.uint32)
    return Nodes(zero, np.zeros(1, np.uint8), zero, value)


def grow(
    data: BinnedData,
    index: NDArray[np.uint32],
    values: NDArray[Any],
    *,
    rule: SplitRule,
    settings: BoostingSettings,
    seed: np.uint64,
    workspace: Workspace,
) -> tuple[Nodes, NDArray[np.uint32] | None]:
    """Grow a tree on some of the rows; returns it, and the leaf of each row if trees of this depth must be walked.

    The examples of a deep tree are divided among its leaves while it grows; so only the other rows are walked through
    it. Where trees are not deep, vector code finds the leaves as fast, and None is returned.

    Parameters
    ----------
    data : BinnedData
        All training rows.
    index, values : arrays of shape (m,)
        The numbers of the examples to use, and their values, as the rule defines them.
    rule : SplitRule
        The kind of leaves.
    settings : BoostingSettings
    seed : uint64
        Seed of the features that are drawn.
    workspace : Workspace
        For this number of rows and this type of values; may be used for other trees before and after.
    """
    leaves = np.full(data.bins.shape[1], NO_LEAF) if settings.max_depth > MAX_DEPTH_IN_VECTORS else None
    n_columns, subset = len(data.bins), settings.subset
    capacity = min(2 ** (settings.max_depth + 1) - 1, 2 * len(index) + 1)
    tables = _Tables(*(np.zeros(capacity, dtype) for dtype in (np.uint32, np.uint8, np.uint32, np.int64)))
    n_nodes = 1
    level = OpenNodes(index, values, *_root(values, rule, tables.total))
    features = draw_features(n_columns, settings.n_features, seed, np.zeros(1, np.int64))
    histograms = np.empty((0, features.shape[1] // LANES, 0), values.dtype)
    for depth in range(settings.max_depth):
        if not len(level.nodes):
            break
        is_last = depth + 1 == settings.max_depth
        if subset != "tree":
            drawn_for = level.nodes if subset == "node" else np.array([depth])
            features = draw_features(n_columns, settings.n_features, seed, drawn_for)
        stumps, histograms = best_stumps(
            data.bins,
            data.rows,
            level,
            features,
            histograms,
            rule,
            memory=workspace.histograms if subset == "tree" and not is_last else None,
            n_jobs=data.n_jobs,
        )
        chosen = choose_groups(stumps, level.totals, rule)
        room = workspace.next_level(depth)
        n_nodes, *fields = _split(data.bins, level, stumps, chosen, is_last, rule, n_nodes, tables, *room)
        following = OpenNodes(*fields)
        if leaves is not None:
            _note_leaves(data.bins, level, tables, following.nodes, leaves)
        level = following
    feature, threshold, child = tables.feature[:n_nodes], tables.threshold[:n_nodes], tables.child[:n_nodes]
    value = leaf_values(tables.total[:n_nodes], rule)
    value[child > 0] = 0
    tree = Nodes(feature.copy(), threshold.copy(), child.copy(), value)
    if leaves is not None:
        _find_leaves(data, tree, leaves)
    return tree, leaves


@kernel
def _root(values, rule, totals):
    """The nodes, starts, totals and parents of the first level: the root, or nothing if the root is a leaf."""
    total, positive = np.int64(0), 0
    for t in range(len(values)):
        total += values[t]
        positive += values[t] > 0
    totals[0] = total
    n_open = 1 if may_split(rule, len(values), positive, total) else 0
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
def _split(bins, level, stumps, chosen, is_last, rule, n_nodes, tree, examples, values, right_examples, right_values):
    """Split nodes by their chosen stumps; returns the number of nodes and the fields of the next `OpenNodes`.

    The last four arrays are those of `Workspace.next_level`. Nodes of the last level get no examples.
    """
    n_open = len(level.nodes)
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
            sizes, positives = _partition(
                bins[feature], level.examples[part], level.values[part], threshold,
                examples[filled:], values[filled:], right_examples, right_values,
            )  # fmt: skip
        for side in range(2):
            size, total = sizes[side], side_totals[side]
            tree.total[n_nodes] = total
            if not is_last and may_split(rule, size, positives[side], total):
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


@kernel
def _partition(feature_bins, examples, values, threshold, left, left_values, right, right_values):
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


@kernel
def _note_leaves(bins, level, tree, opened, leaves):
    """Write the number of the leaf of each example of a level whose node is a leaf, or has a child that is one.

    ``tree`` has the tables after the split of this level, and ``opened`` are the nodes of the next level, in order.
    (Examples of these may get a number too, which is overwritten later.)
    """
    n_passed = 0
    for k in range(len(level.nodes)):
        node = level.nodes[k]
        examples, left = level.examples[level.starts[k] : level.starts[k + 1]], np.int64(tree.child[node])
        n_before = n_passed
        while left > 0 and n_passed < len(opened) and opened[n_passed] <= left + 1:
            n_passed += 1
        if left == 0:
            for t in range(np.uint64(len(examples))):
                leaves[examples[t]] = node
        elif n_passed - n_before < 2:
            feature_bins, limit = bins[tree.feature[node]], tree.threshold[node]
            for t in range(np.uint64(len(examples))):
                prefetch(feature_bins, example_ahead(examples, t))
                leaves[examples[t]] = left + (feature_bins[examples[t]] > limit)


def _find_leaves(data: BinnedData, tree: Nodes, leaves: NDArray[np.uint32]) -> None:
    """Replace each NO_LEAF in ``leaves`` by the number of the leaf that the row reaches."""
    bins, rows = data.bins, data.rows  # in ``rows``, if there are any, the bins of a row are side by side
    layout = (rows.reshape(-1), 1, rows.shape[1]) if len(rows) else (bins.reshape(-1), bins.shape[1], 1)
    arguments = *layout, tree.feature, tree.threshold, tree.child, leaves
    run_tasks(
        _find_leaves_of, [(*arguments, *part) for part in chunks(len(leaves), ROWS_PER_CHUNK)], n_jobs=data.n_jobs
    )


@kernel
def _find_leaves_of(flat, unit, step, feature, threshold, child, leaves, first, last):
    """The same for the rows [first, last); the bin of feature j in row i is ``flat[j * unit + i * step]``."""
    others, places, nodes = np.empty(TILE, np.int64), np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    n_others = 0
    for i in range(first, last):
        ahead = min(i + 2 * TILE, last - 1)
        if unit == 1 and leaves[ahead] == NO_LEAF:
            prefetch_row(flat, np.uint64(step), ahead)
        if leaves[i] == NO_LEAF:
            others[n_others], places[n_others] = i, i * step
            n_others += 1
        if n_others == TILE or i == last - 1:
            walk(flat, np.uint64(unit), places[:n_others], np.uint64(0), feature, threshold, child, nodes)
            for t in range(n_others):
                leaves[others[t]] = nodes[t]
            n_others = 0
