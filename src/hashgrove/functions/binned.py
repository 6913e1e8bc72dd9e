"""What every round of boosting needs: the binned training rows, and how a tree is grown on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.leaf_sums import DEEP
from hashgrove.functions.leaf_numbers import UNKNOWN, find_others
from hashgrove.functions.levels import KeptHistograms
from hashgrove.functions.tree import Leaves, Tree, grow

__all__ = ["BinnedData", "Growth", "node_tables"]


@dataclass(frozen=True, eq=False)
class BinnedData:
    """Training rows in 256 bins per feature, one row of ``bins`` per feature, and the binning that made them.

    ``rows`` has the same bins with one row per example, for the small nodes of deep trees: their examples are far apart
    in ``bins``. It is empty, (0, 0), where that does not pay.
    """

    bins: NDArray[np.uint8]
    low: NDArray[np.float64]
    scale: NDArray[np.float64]
    n_jobs: int | None
    rows: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), np.uint8))


@dataclass(frozen=True)
class Growth:
    """How trees are boosted: the parameters of `hashgrove.functions.boosting.BoostedTrees` that all leaves share."""

    max_depth: int
    n_features: int
    subset: str
    trimming: float
    early_stopping: bool
    seeds: NDArray[np.uint64]
    memory: KeptHistograms = field(default_factory=KeptHistograms)

    def tree(
        self, data: BinnedData, index: NDArray[np.uint32], values: NDArray[Any], leaves: Leaves, seed: np.uint64
    ) -> tuple[Tree, NDArray[np.uint32] | None]:
        """One tree on the examples of one round, and the number of the leaf of each row.

        The numbers are None if the trees are not deep: encoders then find them as fast.
        """
        numbers = np.full(data.bins.shape[1], UNKNOWN) if self.max_depth > DEEP else None
        tree = grow(
            data.bins,
            data.rows,
            index,
            values,
            leaves=leaves,
            max_depth=self.max_depth,
            n_features=self.n_features,
            subset=self.subset,
            seed=seed,
            memory=self.memory,
            numbers=numbers,
            n_jobs=data.n_jobs,
        )
        if numbers is not None:
            find_others(data.bins, data.rows, tree.feature, tree.threshold, tree.child, numbers, n_jobs=data.n_jobs)
        return tree, numbers


def node_tables(trees: list[Tree]) -> dict[str, NDArray[Any]]:
    """The node tables of several trees of one bit, joined, as the encoders of trees have them."""
    sizes = [len(tree.value) for tree in trees]
    return {
        "bit_ptr": np.array([0, len(trees)], np.int32),
        "tree_ptr": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        **{name: np.concatenate([getattr(tree, name) for tree in trees]) for name in Tree._fields},
    }
