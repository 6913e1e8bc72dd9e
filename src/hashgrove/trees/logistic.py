"""Logistic boosting with real leaves (Newton steps): F is half the log-odds of a bit, the sum of the leaves of a row.

Sums of gradients and curvatures are whole numbers, and everything else is computed for each row by itself, so the trees
do not depend on the number of threads. At the end the leaves of a bit become whole numbers of one byte; the bit that
training gives is computed from these, and so equals what the encoder gives.
"""

from __future__ import annotations

from functools import partial
from math import factorial, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.trees.binning import N_BINS, BinnedData
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
from hashgrove.trees.prediction import MAX_LEAF, MAX_SUM, Forest, constant_forest
from hashgrove.trees.reading import reading_ahead
from hashgrove.trees.splitting import newton_rule, pack

__all__ = ["AdditiveTrees", "logistic_boosting"]

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
    n_thresholds: int = N_BINS,
    start: NDArray[np.float64] | None = None,
) -> AdditiveTrees:
    """Boost trees for one bit, one round per seed. Their scores are added to F, which begins at ``start``, or at 0.

    A node tries ``n_thresholds`` thresholds per feature, rounded up to a power of two.
    """
    if start is None and np.all(z == z[0]):
        return _in_whole_numbers(constant_forest(float(z[0])))
    n = len(z)
    w = np.ones(n, np.float32) if weights is None else _of_mean_one(weights)
    F = np.zeros(n, np.float32) if start is None else start.astype(np.float32)
    g, half = np.empty(n, np.float32), np.empty(n, np.float32)
    memory = make_workspace(data.bins, settings, np.int64)
    rates = float(learning_rate), float(regularisation), float(min_hessian)
    shift = (N_BINS // n_thresholds).bit_length() - 1
    arguments = data.bins, data.rows, z, w, F, g, half, settings, *rates, shift, seeds, memory
    beside = partial(reading_ahead, data, settings, seeds)
    forest = grow_trees(
        _boost, *arguments, settings=settings, n_rows=n, n_rounds=len(seeds), dtype=np.float64, beside=beside
    )
    return _in_whole_numbers(forest if len(forest.tree_ptr) > 1 else constant_forest(0.0))


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


def _in_whole_numbers(forest: Forest) -> AdditiveTrees:
    """The trees with leaves in units such that each is within a byte, and every sum of them within 16 bits."""
    highest = np.maximum.reduceat(np.abs(forest.value), forest.tree_ptr[:-1])
    room = MAX_SUM - len(highest) / 2  # rounding adds at most half a unit per tree
    unit = max(highest.max() / MAX_LEAF, highest.sum() / room)
    unit = unit if unit > 0 else 1.0
    return AdditiveTrees(forest._replace(value=np.rint(forest.value / unit).astype(np.int8)), unit)


@kernel
def _boost(
    bins, rows, z, w, F, g, half, settings, learning_rate, regularisation, min_hessian, shift, seeds, memory,
    tables, tree_ptr, done, stop,
):  # fmt: skip
    """All rounds of one bit; `hashgrove.trees.boosting.grow_trees` says what the last four arguments are.

    ``F`` is updated; ``g`` and ``half`` are room for the gradients and for half the curvatures. All are float32.
    """
    _gradients(z, w, F, g, half)
    while done[0] < len(seeds) and not stop[0]:
        scale, n_examples = _trim(z, g, g.view(np.int32), half, settings.trimming, memory.examples[1], memory.values[1])
        if scale == 0:  # every row is certain
            break
        index, values = memory.examples[1, :n_examples], memory.values[1, :n_examples]
        n_trees = done[1]
        start = np.int64(tree_ptr[n_trees])
        if start + largest_tree(settings.max_depth, n_examples) > len(tables.child):
            return False
        tree, rule = tables_from(tables, start), newton_rule(regularisation, min_hessian, scale, shift)
        n_nodes = grow(bins, rows, index, values, settings, seeds[done[0]], memory, tree, rule)
        tree_ptr[n_trees + 1] = start + n_nodes
        done[0], done[1] = done[0] + 1, n_trees + 1
        for node in range(n_nodes):
            tree.value[node] *= learning_rate
        wrong = _add_leaves(tree.value[:n_nodes].astype(np.float32), memory.leaves, z, w, F, g, half)
        if settings.early_stopping and wrong == 0:
            break
    return True


@kernel
def _add_leaves(values, leaves, y, w, F, g, half):
    """Add the value of each row's leaf to F, and update the gradients; returns the number of rows that F gets wrong."""
    wrong = 0
    for i in range(np.uint64(len(F))):
        F[i] += values[leaves[i]]
    for i in range(np.uint64(len(F))):
        wrong += (F[i] > 0) != (y[i] > 0)
    _gradients(y, w, F, g, half)
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
def _trim(y, g, g_bits, half, trimming, index, values):
    """Write the numbers and the values of the examples that hold 1 - ``trimming`` of the mass of ``g``.

    A value packs the gradient and half the curvature, both in fixed point; |g| sums to 2^30. Returns the scale of the
    fixed point, 0 if all ``g`` are, and the number of examples; both arrays have room for one more than there are rows.
    O(n).
    """
    limit, total = heavy_limit(g, g_bits, trimming)
    scale = MASS / total if total > 0 else 0.0
    kept = np.uint64(0)
    for i in range(np.uint64(len(g))):  # without a branch: an example that is not kept is overwritten by the next
        index[kept] = i
        values[kept] = pack(np.rint(y[i] * (g[i] * scale)), np.rint(half[i] * scale))
        kept += np.uint64((g_bits[i] >> DROPPED_BITS) >= limit)
    return scale, np.int64(kept)
