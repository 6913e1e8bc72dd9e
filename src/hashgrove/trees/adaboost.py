"""Discrete AdaBoost with weight trimming: trees with leaves -1 and +1, each with a vote (section 4.1 of the paper)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.trees.binning import BinnedData
from hashgrove.trees.boosting import (
    DROPPED_BITS,
    BoostingSettings,
    grow_trees,
    heavy_limit,
    largest_tree,
    make_workspace,
    tables_from,
)
from hashgrove.trees.grower import grow
from hashgrove.trees.prediction import MAX_SUM, Forest, constant_forest
from hashgrove.trees.reading import reading_ahead
from hashgrove.trees.splitting import SignRule

__all__ = ["VotingTrees", "adaboost"]

LARGEST_START = 40.0  # beyond this margin of the start, an example is not lighter or heavier any more


class VotingTrees(NamedTuple):
    """The trees of one bit and their votes, whole numbers; ``total_weight`` is the sum of AdaBoost's weights."""

    forest: Forest
    votes: NDArray[np.int16]
    total_weight: float


def adaboost(
    data: BinnedData,
    z: NDArray[np.int8],
    weights: NDArray[np.float64] | None,
    settings: BoostingSettings,
    seeds: NDArray[np.uint64],
    *,
    min_points: int,
    start: NDArray[np.float64] | None = None,
) -> VotingTrees:
    """Boost trees for one bit, one round per seed.

    The margin of a row is its ``start`` (0 if not given) plus the total weight times the share of votes for +1 minus
    the share of votes for -1. The total weight is 0 if no tree helps; without a start, the bit is then constant.
    """
    n = len(z)
    w = (np.ones(n) if weights is None else weights).astype(np.float32)
    margin = np.zeros(n) if start is None else start.astype(np.float64)
    if start is not None:
        w *= np.exp(np.clip(-z * start, -LARGEST_START, LARGEST_START)).astype(np.float32)
        w *= np.float32(n / w.sum(dtype=np.float64))
    alphas = np.empty(len(seeds))
    memory, rule = make_workspace(data.bins, settings, np.int32), SignRule(min_points)
    arguments = data.bins, data.rows, z, w, margin, settings, seeds, memory, rule, alphas
    beside = partial(reading_ahead, data, settings, seeds)
    forest = grow_trees(
        _boost, *arguments, settings=settings, n_rows=n, n_rounds=len(seeds), dtype=np.int8, beside=beside
    )
    n_trees = len(forest.tree_ptr) - 1
    if n_trees:
        return VotingTrees(forest, _whole_votes(alphas[:n_trees]), sum(alphas[:n_trees].tolist()))
    heavier = 1 if np.dot(w, z) > 0 else -1  # no tree beats a coin
    return VotingTrees(constant_forest(heavier), _whole_votes(np.ones(1)), 1.0 if start is None else 0.0)


def _whole_votes(alphas: NDArray[np.float64]) -> NDArray[np.int16]:
    """The weights of trees as positive whole numbers that sum to at most `MAX_SUM`."""
    return np.maximum(np.floor(alphas / alphas.sum() * (MAX_SUM - len(alphas))), 1).astype(np.int16)


@kernel
def _boost(bins, rows, z, w, margin, settings, seeds, memory, rule, alphas, tables, tree_ptr, done, stop):
    """All rounds of one bit; `hashgrove.trees.boosting.grow_trees` says what the last four arguments are.

    ``w`` (float32) and ``margin`` (float64) are updated. The weights of the trees that help are written to ``alphas``,
    and other trees are dropped.
    """
    while done[0] < len(seeds) and not stop[0]:
        n_examples = _trim(w, w.view(np.int32), z, settings.trimming, memory.examples[1], memory.values[1])
        index, values = memory.examples[1, :n_examples], memory.values[1, :n_examples]
        n_trees = done[1]
        start = np.int64(tree_ptr[n_trees])
        if start + largest_tree(settings.max_depth, n_examples) > len(tables.child):
            return False
        tree = tables_from(tables, start)
        n_nodes = grow(bins, rows, index, values, settings, seeds[done[0]], memory, tree, rule)
        alpha, wrong = _reweight(z, tree.value, memory.leaves, w, margin)
        done[0] += 1
        if alpha > 0:
            alphas[n_trees], tree_ptr[n_trees + 1], done[1] = alpha, start + n_nodes, n_trees + 1
            if settings.early_stopping and wrong == 0:
                break
    return True


@kernel
def _trim(w, w_bits, y, trimming, index, signed):
    """Write the numbers of the heaviest examples, which hold 1 - ``trimming`` of the weight, and label x weight.

    The weights are written in fixed point: they sum to 2^30. ``w_bits`` is ``w`` viewed as int32. Returns the number of
    examples; both arrays have room for one more than there are rows. O(n).
    """
    limit, total = heavy_limit(w, w_bits, trimming)
    scale = np.float64(1 << 30) / total
    kept = np.uint64(0)
    for i in range(np.uint64(len(w))):  # without a branch: an example that is not kept is overwritten by the next
        index[kept] = i
        signed[kept] = np.int32(np.rint(y[i] * (w[i] * scale)))
        kept += np.uint64((w_bits[i] >> DROPPED_BITS) >= limit)
    return np.int64(kept)


@kernel
def _reweight(y, values, leaves, w, margin):
    """One step of AdaBoost: returns the tree's weight alpha and the number of examples that the vote now gets wrong.

    Row i has the value ``values[leaves[i]]`` in the tree. ``w`` (float32, rescaled to mean 1) and ``margin`` (float64),
    the weighted vote of the trees so far, are updated unless alpha <= 0. O(n).
    """
    n = len(y)
    sums = np.zeros((2, 8), np.float64)  # wrong and right; eight partial sums can be added to in parallel
    for i in range(np.uint64(n)):
        is_right = (values[leaves[i]] > 0) == (y[i] > 0)
        sums[np.uint64(is_right), i % np.uint64(8)] += w[i]
    wrong, right = sums[0].sum(), sums[1].sum()
    # a tree without errors gets the weight of a tree that is wrong on half an example
    alpha = 0.5 * np.log(right / max(wrong, (right + wrong) / (2 * n))) if right > 0 else 0.0
    if alpha <= 0:
        return 0.0, n
    rescale = n / (right * np.exp(-alpha) + wrong * np.exp(alpha))
    down, up = np.float32(np.exp(-alpha) * rescale), np.float32(np.exp(alpha) * rescale)
    errors = 0
    for i in range(np.uint64(n)):
        label, is_positive = y[i] > 0, values[leaves[i]] > 0
        w[i] *= down if is_positive == label else up
        margin[i] += alpha if is_positive else -alpha
        errors += (margin[i] > 0) != label
    return alpha, errors
