"""One tree, grown level by level on examples with values: the weak learner of both boosters.

Each node is the best decision stump over a random subset of the features (LazyBoost). `hashgrove.trees.splitting` says
which stump is the best one and which value a leaf has.
"""

from __future__ import annotations

import numpy as np

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import prefetch
from hashgrove.runtime.streams import draw, stream
from hashgrove.trees.binning import TILE
from hashgrove.trees.boosting import PER_NODE, PER_TREE
from hashgrove.trees.histogram import LANES, OpenNodes, example_ahead, prefetch_row
from hashgrove.trees.prediction import MAX_DEPTH_IN_VECTORS, walk
from hashgrove.trees.splitting import best_stumps, choose_groups, may_split, write_leaf_values

__all__ = ["grow"]

NO_LEAF = np.uint32(2**32 - 1)  # the leaf of a row that is not known yet


@kernel
def grow(bins, rows, index, values, settings, seed, memory, tree, rule):
    """Grow a tree on some of the rows; returns the number of its nodes. Writes each row's leaf to ``memory.leaves``.

    The examples of a deep tree are divided among its leaves while it grows; so only the other rows are walked through
    it. Where trees are not deep, vector code finds the leaves of all rows as fast.

    Parameters
    ----------
    bins, rows : uint8 arrays
        All training rows, as in `BinnedData`.
    index, values : arrays of shape (m,)
        The numbers of the examples to use, and their values, as the rule defines them.
    settings : BoostingSettings
    seed : uint64
        Seed of the features that are drawn.
    memory : Workspace
        For these bins and this type of values; may be used for other trees before and after.
    tree : NodeTables
        Where to write the tree, with room for min(2^(max_depth + 1) - 1, 2 m + 1) nodes.
    rule : SignRule or NewtonRule
        The kind of leaves.
    """
    is_deep = settings.max_depth > MAX_DEPTH_IN_VECTORS
    if is_deep:
        memory.leaves[:] = NO_LEAF
    level = _first_level(index, values, tree, rule)
    features = draw_features(len(bins), settings.n_features, seed, np.zeros(1, np.int64))
    histograms, n_nodes = memory.histograms[0, :0], np.int64(1)
    for depth in range(settings.max_depth):
        n_open = len(level.nodes)
        if n_open == 0:
            break
        if settings.subset != PER_TREE:
            drawn_for = level.nodes if settings.subset == PER_NODE else np.full(1, depth)
            features = draw_features(len(bins), settings.n_features, seed, drawn_for)
        is_last = depth + 1 == settings.max_depth
        n_kept = 0 if is_last or n_open > memory.histograms.shape[1] else n_open
        kept = memory.histograms[depth % 2, :n_kept]
        stumps = best_stumps(bins, rows, level, features, histograms, kept, rule)
        chosen = choose_groups(stumps.gains, level.totals, rule)
        n_nodes, following = _split(bins, level, stumps, chosen, is_last, n_nodes, tree, memory, depth % 2, rule)
        if is_deep:
            _note_leaves(bins, level, tree, following.nodes, memory.leaves)
        level, histograms = following, kept
    _finish(tree, n_nodes, rule)
    _find_leaves(bins, rows, settings.max_depth, tree, n_nodes, memory)
    return n_nodes


@kernel
def _finish(tree, n_nodes, rule):
    """Write the values of the leaves, and 0 for inner nodes."""
    write_leaf_values(tree.total[:n_nodes], tree.value[:n_nodes], rule)
    for node in range(n_nodes):
        if tree.child[node] > 0:
            tree.value[node] = 0


@kernel
def _write_leaf(tree, node, total):
    """Make a node a leaf whose examples' values have this sum."""
    tree.feature[node], tree.threshold[node], tree.child[node], tree.total[node] = 0, 0, 0, total


@kernel
def _first_level(index, values, tree, rule):
    """The first level: the root, or no node if the root is a leaf."""
    total, positive = np.int64(0), np.int64(0)
    for t in range(len(values)):
        total += values[t]
        positive += values[t] > 0
    _write_leaf(tree, np.int64(0), total)
    n_open = 1 if may_split(len(values), positive, total, rule) else 0
    starts = np.zeros(n_open + 1, np.int64)
    starts[n_open] = len(values) * n_open
    return OpenNodes(index, values, np.zeros(n_open, np.int64), starts, np.full(n_open, total),
                     np.zeros(n_open, np.int64))  # fmt: skip


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
def _split(bins, level, stumps, chosen, is_last, n_nodes, tree, memory, half, rule):
    """Split nodes by their chosen stumps; returns the number of nodes, and the next level.

    The next level is in this half of ``memory``. Nodes of the last level get no examples.
    """
    examples, values = memory.examples[half], memory.values[half]
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
                examples[filled:], values[filled:], memory.right_examples, memory.right_values,
            )  # fmt: skip
        for side in range(2):
            size, total = sizes[side], side_totals[side]
            _write_leaf(tree, n_nodes, total)
            if not is_last and may_split(size, positives[side], total, rule):
                if side == 1:
                    for t in range(np.uint64(size)):  # (numba compiles 1.5 s longer for an assignment of slices)
                        examples[np.uint64(filled) + t] = memory.right_examples[t]
                        values[np.uint64(filled) + t] = memory.right_values[t]
                nodes[opened], totals[opened], parents[opened] = n_nodes, total, k
                opened += 1
                filled += size
                starts[opened] = filled
            n_nodes += 1
    starts, totals, parents = starts[: opened + 1], totals[:opened], parents[:opened]
    return n_nodes, OpenNodes(examples[:filled], values[:filled], nodes[:opened], starts, totals, parents)


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


@kernel
def _find_leaves(bins, rows, max_depth, tree, n_nodes, memory):
    """Write the leaf of each row; of a deep tree, only where it is NO_LEAF."""
    feature, threshold, child = tree.feature[:n_nodes], tree.threshold[:n_nodes], tree.child[:n_nodes]
    if max_depth <= MAX_DEPTH_IN_VECTORS:
        _walk_in_vectors(bins, feature, threshold, child, memory.leaves)
    elif len(rows) > 0:  # there the bins of a row are side by side
        _walk_others(rows.reshape(-1), np.int64(1), rows.shape[1], feature, threshold, child, memory.leaves)
    else:
        _walk_others(bins.reshape(-1), bins.shape[1], np.int64(1), feature, threshold, child, memory.leaves)


@kernel
def _walk_in_vectors(bins, feature, threshold, child, leaves):
    """Write the leaf of each row, for a tree with at most 255 nodes: O(nodes) per row, in vectors of rows.

    The children of a node come after it, so that one pass over the nodes takes 64 rows to their leaves.
    """
    n = bins.shape[1]
    reached = np.empty(TILE, np.uint8)
    for first in range(0, n, TILE):
        size = np.uint64(min(TILE, n - first))
        reached[:] = 0
        for node in range(len(child)):
            if child[node] > 0:
                column = bins[feature[node], first : first + TILE]
                here, left, right, limit = (
                    np.uint8(node),
                    np.uint8(child[node]),
                    np.uint8(child[node] + 1),
                    threshold[node],
                )
                for i in range(size):
                    following = right if column[i] > limit else left
                    reached[i] = following if reached[i] == here else reached[i]
        for i in range(size):
            leaves[np.uint64(first) + i] = reached[i]


@kernel
def _walk_others(flat, unit, step, feature, threshold, child, leaves):
    """Replace each NO_LEAF in ``leaves`` by the leaf that the row reaches.

    The bin of feature j in row i is ``flat[j * unit + i * step]``.
    """
    others, places, nodes = np.empty(TILE, np.int64), np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    n_others = 0
    for i in range(len(leaves)):
        ahead = min(i + 2 * TILE, len(leaves) - 1)
        if unit == 1 and leaves[ahead] == NO_LEAF:
            prefetch_row(flat, np.uint64(step), ahead)
        if leaves[i] == NO_LEAF:
            others[n_others], places[n_others] = i, i * step
            n_others += 1
        if n_others == TILE or i == len(leaves) - 1:
            walk(flat, np.uint64(unit), places[:n_others], np.uint64(0), feature, threshold, child, nodes)
            for t in range(n_others):
                leaves[others[t]] = nodes[t]
            n_others = 0
