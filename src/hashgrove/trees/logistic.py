"""Logistic boosting with real leaves (Newton steps): F is half the log-odds of a bit, the sum of the leaves of a row.

Sums of gradients and curvatures are whole numbers, and everything else is computed for each row by itself, so the trees
do not depend on the number of threads. At the end the leaves of a bit become whole numbers of one byte; the bit that
training gives is computed from these, and so equals what the encoder gives.
"""

from __future__ import annotations

from math import factorial, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.trees.binning import BinnedData
from hashgrove.trees.boosting import DROPPED_BITS, BoostingSettings, Workspace, heavy_limit
from hashgrove.trees.grower import constant_tree, grow
from hashgrove.trees.prediction import (
    MAX_LEAF,
    MAX_SUM,
    Forest,
    Nodes,
    compile_leaves,
    join_trees,
    sum_leaves,
    sums_of_bins,
)
from hashgrove.trees.splitting import newton_rule, pack

__all__ = ["AdditiveTrees", "logistic_boosting"]

ROWS_PER_CHUNK = 2**16  # with fewer rows a second thread does not pay
RADIX = 128  # a digit is a leaf of one byte
BLOCK = 1024  # rows whose probabilities are computed together
MASS = float(2**30)  # of the gradients of one round, in fixed point
LARGEST_POWER = np.float32(60)  # the odds of a row are taken from 2^-60 to 2^60
POWER = np.float32(2 / log(2))  # exp(2 F) = 2^(POWER F)
ROUNDING = np.float32(1.5 * 2**23)  # adding and subtracting it rounds a float32 to a whole number
EXP2 = tuple(np.float32(log(2) ** k / factorial(k)) for k in range(7))  # series of 2^x, accurate to 1e-7 for |x| <= 1/2


class AdditiveTrees(NamedTuple):
    """The trees of one bit, with leaves that are whole numbers; ``unit`` is the score that a sum of 1 stands for."""

    forest: Forest
    unit: float


def logistic_boosting(
    data: BinnedData,
    z: NDArray[np.int8],
    weights: NDArray[np.float64] | None,
    settings: BoostingSettings,
    seeds: NDArray[np.uint64],
    *,
    learning_rate: float,
    regularisation: float,
    min_hessian: float,
    start: NDArray[np.float64] | None = None,
) -> AdditiveTrees:
    """Boost trees for one bit, one round per seed. Their scores are added to F, which begins at ``start``, or at 0."""
    if start is None and np.all(z == z[0]):
        return _in_whole_numbers([constant_tree(np.full(1, float(z[0])))])
    n = len(z)
    w = np.ones(n, np.float32) if weights is None else _of_mean_one(weights)
    F = np.zeros(n, np.float32) if start is None else start.astype(np.float32)
    g, half = np.empty(n, np.float32), np.empty(n, np.float32)
    _gradients(z, w, F, g, half)
    workspace = Workspace(n, np.int64)
    trees: list[Nodes] = []
    for seed in seeds:
        scale, index, values = _trim(z, g, g.view(np.int32), half, settings.trimming)
        if scale == 0:  # every row is certain
            break
        rule = newton_rule(regularisation, min_hessian, scale=scale)
        tree, leaves = grow(data, index, values, rule=rule, settings=settings, seed=seed, workspace=workspace)
        tree.value[:] *= learning_rate
        trees.append(tree)
        digits = _leaf_numbers(data, tree) if leaves is None else leaves[None]
        arguments = digits, tree.value.astype(np.float32), z, w, F, g, half
        tasks = [(*arguments, *rows) for rows in chunks(n, ROWS_PER_CHUNK)]
        wrong = sum(run_tasks(_add_leaves, tasks, n_jobs=data.n_jobs))
        if settings.early_stopping and wrong == 0:
            break
    return _in_whole_numbers(trees or [constant_tree(np.zeros(1))])


def _of_mean_one(weights: NDArray[np.float64]) -> NDArray[np.float32]:
    """Weights rescaled to mean 1; equal weights if all are 0.

    >>> _of_mean_one(np.array([1e308, 1e308, 0.0, 0.0])).tolist()
    [2.0, 2.0, 0.0, 0.0]
    """
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not 0 < total < np.inf:  # no weight at all, or weights too large to add up
        weights = weights / weights.max() if weights.max() > 0 else np.ones(len(weights))
        total = weights.sum()
    return (weights * (len(weights) / total)).astype(np.float32)


def _in_whole_numbers(trees: list[Nodes]) -> AdditiveTrees:
    """The trees with leaves in units such that each is within a byte, and every sum of them within 16 bits."""
    highest = np.array([np.abs(tree.value).max() for tree in trees])
    room = MAX_SUM - len(trees) / 2  # rounding adds at most half a unit per tree
    unit = max(highest.max() / MAX_LEAF, highest.sum() / room)
    unit = unit if unit > 0 else 1.0
    return AdditiveTrees(
        join_trees([tree._replace(value=np.rint(tree.value / unit).astype(np.int8)) for tree in trees]), unit
    )


def _leaf_numbers(data: BinnedData, tree: Nodes) -> NDArray[np.int16]:
    """The number of each row's leaf in a tree, as digits: shape (n_digits, n), with the lowest digit first.

    Leaves are summed over copies of the tree, one per digit, whose leaves are the digits of the numbers.
    """
    digits: list[NDArray[np.int8]] = []
    numbers = np.arange(len(tree.value))
    while not digits or numbers.any():
        digits.append((numbers % RADIX).astype(np.int8))
        numbers = numbers // RADIX
    n_features, n = data.bins.shape
    forest = join_trees([tree._replace(value=digit) for digit in digits], n_bits=len(digits))
    compiled = compile_leaves(forest, unit=n, n_features=n_features)
    return sums_of_bins(sum_leaves, data.bins, compiled, n_jobs=data.n_jobs)


@kernel
def _add_leaves(digits, values, y, w, F, g, half, first, last):
    """Add the leaves of a tree to F of the rows [first, last), and update their gradients.

    ``digits`` is the result of `_leaf_numbers`, or has the numbers themselves as its only row. Returns the number of
    rows that F now gets wrong.
    """
    rows = slice(first, last)
    lowest, margins, signs = digits[0, rows], F[rows], y[rows]
    if len(digits) == 1:
        for i in range(np.uint64(last - first)):
            margins[i] += values[np.uint64(lowest[i])]
    else:
        for i in range(last - first):
            number = 0
            for k in range(len(digits) - 1, -1, -1):
                number = number * RADIX + digits[k, first + i]
            margins[i] += values[number]
    wrong = 0
    for i in range(np.uint64(last - first)):
        wrong += (margins[i] > 0) != (signs[i] > 0)
    _gradients(signs, w[rows], margins, g[rows], half[rows])
    return wrong


@kernel
def _gradients(y, w, F, g, half):
    """Write |gradient| = w p and half the curvature, w p (1 - p), with p = 1 / (1 + exp(2 y F)), all float32. O(n).

    The exponential function is a series and a shift of the exponent: the same on every processor, and in vectors.
    """
    n = len(F)
    fraction, exponent = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.int32)
    power = exponent.view(np.float32)
    c0, c1, c2, c3, c4, c5, c6 = EXP2
    for first in range(0, n, BLOCK):
        rows = slice(first, min(first + BLOCK, n))
        signs, margins, weights, steps, halves = y[rows], F[rows], w[rows], g[rows], half[rows]
        for t in range(len(margins)):
            x = np.float32(signs[t]) * margins[t] * POWER
            x = min(max(x, -LARGEST_POWER), LARGEST_POWER)
            whole = (x + ROUNDING) - ROUNDING
            x -= whole
            fraction[t] = (((((c6 * x + c5) * x + c4) * x + c3) * x + c2) * x + c1) * x + c0
            exponent[t] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        for t in range(len(margins)):
            odds = fraction[t] * power[t]
            p = np.float32(1) / (np.float32(1) + odds)
            steps[t] = weights[t] * p
            halves[t] = weights[t] * p * (odds * p)


@kernel
def _trim(y, g, g_bits, half, trimming):
    """The examples that hold 1 - ``trimming`` of the mass of ``g``: fixed-point scale, numbers, and values.

    A value packs the gradient and half the curvature, both in fixed point; |g| sums to 2^30. The scale is 0 if all
    ``g`` are. O(n).
    """
    n = np.uint64(len(g))
    limit, total = heavy_limit(g, g_bits, trimming)
    scale = MASS / total if total > 0 else 0.0
    index, values = np.empty(n + np.uint64(1), np.uint32), np.empty(n + np.uint64(1), np.int64)
    kept = np.uint64(0)
    for i in range(n):  # without a branch: an example that is not kept is overwritten by the next
        index[kept] = i
        values[kept] = pack(np.rint(y[i] * (g[i] * scale)), np.rint(half[i] * scale))
        kept += np.uint64((g_bits[i] >> DROPPED_BITS) >= limit)
    return scale, index[:kept], values[:kept]
