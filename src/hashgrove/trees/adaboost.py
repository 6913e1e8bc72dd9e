"""Discrete AdaBoost with weight trimming: trees with leaves -1 and +1, each with a vote (section 4.1 of the paper)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.trees.binning import BinnedData
from hashgrove.trees.boosting import DROPPED_BITS, BoostingSettings, Workspace, heavy_limit
from hashgrove.trees.grower import constant_tree, grow
from hashgrove.trees.prediction import MAX_SUM, Forest, Nodes, compile_votes, join_trees, sum_votes, sums_of_bins
from hashgrove.trees.splitting import sign_rule

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
    rule, workspace = sign_rule(min_points), Workspace(n, np.int32)
    trees: list[Nodes] = []
    alphas: list[float] = []
    for seed in seeds:
        index, signed = _trim(w, w.view(np.int32), z, settings.trimming)
        tree, leaves = grow(data, index, signed, rule=rule, settings=settings, seed=seed, workspace=workspace)
        is_positive = _evaluate(data, tree) if leaves is None else tree.value[leaves] > 0
        alpha, wrong = _reweight(z, is_positive, w, margin)
        if alpha > 0:
            trees.append(tree)
            alphas.append(alpha)
            if settings.early_stopping and wrong == 0:
                break
    if trees:
        return VotingTrees(join_trees(trees), _whole_votes(np.array(alphas)), sum(alphas))
    heavier = np.array([1 if np.dot(w, z) > 0 else -1], np.int8)  # no tree beats a coin
    return VotingTrees(join_trees([constant_tree(heavier)]), _whole_votes(np.ones(1)), 1.0 if start is None else 0.0)


def _evaluate(data: BinnedData, tree: Nodes) -> NDArray[np.bool_]:
    """The training rows whose value in the tree is +1, as flags."""
    n_features, n = data.bins.shape
    compiled = compile_votes(join_trees([tree]), np.ones(1, np.int16), unit=n, n_features=n_features)
    return sums_of_bins(sum_votes, data.bins, compiled, n_jobs=data.n_jobs)[0] > 0


def _whole_votes(alphas: NDArray[np.float64]) -> NDArray[np.int16]:
    """The weights of trees as positive whole numbers that sum to at most `MAX_SUM`."""
    return np.maximum(np.floor(alphas / alphas.sum() * (MAX_SUM - len(alphas))), 1).astype(np.int16)


@kernel
def _trim(w, w_bits, y, trimming):
    """The heaviest examples, which hold 1 - ``trimming`` of the weight: their numbers, and label x weight.

    The returned weights are in fixed point: they sum to 2^30. ``w_bits`` is ``w`` viewed as int32. O(n).
    """
    n = np.uint64(len(w))
    limit, total = heavy_limit(w, w_bits, trimming)
    scale = np.float64(1 << 30) / total
    index, signed = np.empty(n + np.uint64(1), np.uint32), np.empty(n + np.uint64(1), np.int32)
    kept = np.uint64(0)
    for i in range(n):  # without a branch: an example that is not kept is overwritten by the next
        index[kept] = i
        signed[kept] = np.int32(np.rint(y[i] * (w[i] * scale)))
        kept += np.uint64((w_bits[i] >> DROPPED_BITS) >= limit)
    return index[:kept], signed[:kept]


@kernel
def _reweight(y, is_positive, w, margin):
    """One step of AdaBoost: returns the tree's weight alpha and the number of examples that the vote now gets wrong.

    ``is_positive`` (bool) says where the tree's value is +1. ``w`` (float32, rescaled to mean 1) and ``margin``
    (float64), the weighted vote of the trees so far, are updated unless alpha <= 0. O(n).
    """
    n = len(y)
    sums = np.zeros((2, 8), np.float64)  # wrong and right; eight partial sums can be added to in parallel
    for i in range(np.uint64(n)):
        sums[np.uint64(is_positive[i] == (y[i] > 0)), i % np.uint64(8)] += w[i]
    wrong, right = sums[0].sum(), sums[1].sum()
    # a tree without errors gets the weight of a tree that is wrong on half an example
    alpha = 0.5 * np.log(right / max(wrong, (right + wrong) / (2 * n))) if right > 0 else 0.0
    if alpha <= 0:
        return 0.0, n
    rescale = n / (right * np.exp(-alpha) + wrong * np.exp(alpha))
    down, up = np.float32(np.exp(-alpha) * rescale), np.float32(np.exp(alpha) * rescale)
    errors = 0
    for i in range(np.uint64(n)):
        label = y[i] > 0
        w[i] *= down if is_positive[i] == label else up
        margin[i] += alpha if is_positive[i] else -alpha
        errors += (margin[i] > 0) != label
    return alpha, errors
