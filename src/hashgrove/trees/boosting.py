"""Parts of both boosters: their settings, the memory for all trees of a bit, and weight trimming."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.trees.histogram import HistogramMemory

__all__ = ["DROPPED_BITS", "BoostingSettings", "Workspace", "heavy_limit"]

DROPPED_BITS = 18  # of a float32; its exponent and the top 5 bits of its mantissa remain


class BoostingSettings(NamedTuple):
    """The settings of boosting that do not depend on the kind of leaves.

    Attributes
    ----------
    max_depth : int
        Largest number of tests from the root to a leaf.
    n_features : int
        Number of features that are drawn.
    subset : {"node", "level", "tree"}
        Whether they are drawn for each node, for each level, or once for the tree.
    trimming : float
        Share of the total weight that a tree leaves out, starting with the lightest examples.
    early_stopping : bool
        Whether boosting ends as soon as no training row is wrong.
    """

    max_depth: int
    n_features: int
    subset: str
    trimming: float
    early_stopping: bool


class Workspace:
    """Memory that is allocated once for all trees of a bit.

    Attributes
    ----------
    examples, values : arrays of shape (2, n + 1)
        The examples of one level and of the next, and their values.
    right_examples, right_values : arrays of shape (n + 1,)
        The examples on the right of a split, and their values.
    histograms : HistogramMemory
    """

    def __init__(self, n: int, dtype: type[np.generic]) -> None:
        room = n + 1  # the partition of a node may write one entry too many
        self.examples, self.values = np.empty((2, room), np.uint32), np.empty((2, room), dtype)
        self.right_examples, self.right_values = np.empty(room, np.uint32), np.empty(room, dtype)
        self.histograms = HistogramMemory()

    def next_level(self, depth: int) -> tuple[NDArray[Any], ...]:
        """Arrays for the examples of the next level; those of the previous level are overwritten."""
        return self.examples[depth % 2], self.values[depth % 2], self.right_examples, self.right_values


@kernel
def heavy_limit(w, w_bits, trimming):
    """(limit, mass): example i is kept if ``w_bits[i] >> DROPPED_BITS`` is at least the limit; the mass of those kept.

    Weight trimming (section 4.1 of the paper) without a sort: the heaviest examples that hold 1 - ``trimming`` of the
    mass of ``w`` (float32, not negative; ``w_bits`` is the same viewed as int32). The weights are summed by their
    exponent and the top 5 bits of their mantissa, since floats that are not negative have the same order as their bit
    patterns. So examples within 3 % of the limit are kept, too.
    """
    mass = np.zeros(1 << (31 - DROPPED_BITS), np.float64)
    for i in range(np.uint64(len(w))):
        mass[np.uint32(w_bits[i]) >> np.uint32(DROPPED_BITS)] += w[i]
    wanted = mass.sum() * (1 - trimming)
    limit = len(mass) - 1
    total = mass[limit]
    while total < wanted and limit > 0:
        limit -= 1
        total += mass[limit]
    if trimming == 0:
        limit = 0
    return limit, total
