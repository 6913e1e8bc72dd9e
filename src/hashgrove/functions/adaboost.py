"""Discrete AdaBoost with weight trimming: trees with leaves -1 and +1, each with a vote (section 4.1 of the paper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.trees import MAX_VOTES, Trees
from hashgrove.functions.binned import BinnedData, Growth, node_tables
from hashgrove.functions.sign_leaves import SignLeaves
from hashgrove.functions.tree import Tree
from hashgrove.functions.trimming import DROPPED_BITS, heavy_limit
from hashgrove.runtime.compiling import kernel

__all__ = ["adaboost"]

LARGEST_START = 40.0  # beyond this margin of the start, an example is not lighter or heavier any more


def adaboost(
    data: BinnedData,
    z: NDArray[np.int8],
    weights: NDArray[np.float64] | None,
    growth: Growth,
    *,
    min_points: int,
    start: NDArray[np.float64] | None = None,
) -> tuple[Trees, float]:
    """Boost trees for one bit.

    Returns the encoder, and the sum of the weights of its trees: the margin is ``start`` (0 if not given) plus this sum
    times the scores.
    """
    n = len(z)
    w = (np.ones(n) if weights is None else weights).astype(np.float32)
    margin = np.zeros(n) if start is None else start.astype(np.float64)
    if start is not None:
        w *= np.exp(np.clip(-z * start, -LARGEST_START, LARGEST_START)).astype(np.float32)
        w *= np.float32(n / w.sum(dtype=np.float64))
    trees: list[Tree] = []
    alphas: list[float] = []
    for seed in growth.seeds:
        index, signed = _trim(w, w.view(np.int32), z, growth.trimming)
        tree, numbers = growth.tree(data, index, signed, SignLeaves(min_points), seed)
        if numbers is None:
            leaf = _encoder(data, [tree], np.ones(1)).bits_of_bins(data.bins, n_jobs=data.n_jobs)[0]
        else:
            leaf = tree.value[numbers] > 0
        alpha, wrong = _reweight(z, leaf, w, margin)
        if alpha > 0:
            trees.append(tree)
            alphas.append(alpha)
            if growth.early_stopping and wrong == 0:
                break
    if not trees:  # no tree beats a coin, so all rows get the heavier class
        sign = 1 if np.dot(w, z) > 0 else -1
        return _encoder(data, [_constant(sign)], np.ones(1)), 1.0 if start is None else 0.0
    return _encoder(data, trees, np.array(alphas)), sum(alphas)


def _constant(sign: int) -> Tree:
    """A tree that is a single leaf."""
    zero = np.zeros(1, np.uint32)
    return Tree(zero, np.zeros(1, np.uint8), zero, np.full(1, sign, np.int8))


def _encoder(data: BinnedData, trees: list[Tree], alphas: NDArray[np.float64]) -> Trees:
    """The encoder of one bit. The weights of the trees become integers that sum to at most `MAX_VOTES`."""
    votes = np.maximum(np.floor(alphas / alphas.sum() * (MAX_VOTES - len(alphas))), 1).astype(np.int16)
    return Trees(low=data.low, scale=data.scale, weights=votes, **node_tables(trees))


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
def _reweight(y, leaf, w, margin):
    """One step of AdaBoost: returns the tree's weight alpha and the number of examples that the vote now gets wrong.

    ``leaf`` (bool) is the tree's output. ``w`` (float32, rescaled to mean 1) and ``margin`` (float64), the weighted
    vote of the trees so far, are updated unless alpha <= 0. O(n).
    """
    n = len(y)
    sums = np.zeros((2, 8), np.float64)  # wrong and right; eight partial sums can be added to in parallel
    for i in range(np.uint64(n)):
        sums[np.uint64(leaf[i] == (y[i] > 0)), i % np.uint64(8)] += w[i]
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
        w[i] *= down if leaf[i] == label else up
        margin[i] += alpha if leaf[i] else -alpha
        errors += (margin[i] > 0) != label
    return alpha, errors
