"""The shapes of trees with real leaves: how they grow, and which encoder holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import LeafTrees, ObliviousTrees
from hashgrove.encoders.binned_trees import BinnedTrees
from hashgrove.functions.binned import BinnedData, Growth, node_tables
from hashgrove.functions.newton_leaves import NewtonLeaves
from hashgrove.functions.oblivious import ObliviousTree, grow_oblivious
from hashgrove.functions.tree import Tree

__all__ = ["FreeShape", "ObliviousShape", "Shape"]


class Shape(Protocol):
    """The shape of trees. A tree has a list of real values, and each row has the number of its value in it."""

    @property
    def growth(self) -> Growth:
        """How trees are boosted."""

    def constant(self, value: float) -> Any:
        """A tree with one value."""

    def grow(
        self,
        data: BinnedData,
        index: NDArray[np.uint32],
        values: NDArray[np.int64],
        leaves: NewtonLeaves,
        seed: np.uint64,
    ) -> tuple[Any, NDArray[np.uint32] | None]:
        """One tree on the examples of one round; and the number of each row's value, or None if encoders find it."""

    def values(self, tree: Any) -> NDArray[np.float64]:
        """The values of a tree."""

    def encoder(
        self, data: BinnedData, trees: Sequence[Any], values: Sequence[NDArray[np.int8]], unit: NDArray[np.float64]
    ) -> BinnedTrees:
        """The encoder of trees with other values, one bit per ``unit``; all bits have the same number of trees."""


@dataclass(frozen=True)
class FreeShape:
    """Each node has a test of its own; values belong to nodes."""

    growth: Growth

    def constant(self, value: float) -> Tree:
        """A tree that is a single leaf."""
        zero = np.zeros(1, np.uint32)
        return Tree(zero, np.zeros(1, np.uint8), zero, np.full(1, value))

    def grow(
        self,
        data: BinnedData,
        index: NDArray[np.uint32],
        values: NDArray[np.int64],
        leaves: NewtonLeaves,
        seed: np.uint64,
    ) -> tuple[Tree, NDArray[np.uint32] | None]:
        """One tree on the examples of one round; and the number of each row's value if the trees are deep."""
        return self.growth.tree(data, index, values, leaves, seed)

    def values(self, tree: Tree) -> NDArray[np.float64]:
        """The values of a tree, 0 in inner nodes."""
        return tree.value

    def encoder(
        self, data: BinnedData, trees: Sequence[Tree], values: Sequence[NDArray[np.int8]], unit: NDArray[np.float64]
    ) -> LeafTrees:
        """The encoder of trees with other values, one bit per ``unit``; all bits have the same number of trees."""
        tables = node_tables([tree._replace(value=value) for tree, value in zip(trees, values, strict=True)])
        tables["bit_ptr"] = _equal_parts(len(trees), len(unit))
        return LeafTrees(low=data.low, scale=data.scale, unit=unit, **tables)


@dataclass(frozen=True)
class ObliviousShape:
    """All nodes of a level share one test; values belong to leaves."""

    growth: Growth

    def constant(self, value: float) -> ObliviousTree:
        """A tree without levels, which is a single leaf."""
        return ObliviousTree(np.zeros(0, np.uint32), np.zeros(0, np.uint8), np.full(1, value))

    def grow(
        self,
        data: BinnedData,
        index: NDArray[np.uint32],
        values: NDArray[np.int64],
        leaves: NewtonLeaves,
        seed: np.uint64,
    ) -> tuple[ObliviousTree, None]:
        """One tree on the examples of one round."""
        tree = grow_oblivious(
            data.bins,
            index,
            values,
            leaves=leaves,
            max_depth=self.growth.max_depth,
            n_features=self.growth.n_features,
            subset=self.growth.subset,
            seed=seed,
            memory=self.growth.memory,
            n_jobs=data.n_jobs,
        )
        return tree, None

    def values(self, tree: ObliviousTree) -> NDArray[np.float64]:
        """The leaves of a tree."""
        return tree.leaves

    def encoder(
        self,
        data: BinnedData,
        trees: Sequence[ObliviousTree],
        values: Sequence[NDArray[np.int8]],
        unit: NDArray[np.float64],
    ) -> ObliviousTrees:
        """The encoder of trees with other leaves, one bit per ``unit``; all bits have the same number of trees."""
        n_levels = max(1, *(len(tree.feature) for tree in trees))
        feature = np.zeros((len(trees), n_levels), np.uint32)
        threshold = np.full((len(trees), n_levels), 255, np.uint8)  # no bin is above: a level that is not there
        leaves = np.zeros((len(trees), 2**n_levels), np.int8)
        for t, (tree, value) in enumerate(zip(trees, values, strict=True)):
            feature[t, : len(tree.feature)] = tree.feature
            threshold[t, : len(tree.feature)] = tree.threshold
            leaves[t, : len(value)] = value
        return ObliviousTrees(
            low=data.low,
            scale=data.scale,
            bit_ptr=_equal_parts(len(trees), len(unit)),
            unit=unit,
            feature=feature,
            threshold=threshold,
            leaves=leaves,
        )


def _equal_parts(n_trees: int, n_bits: int) -> NDArray[np.int32]:
    """Pointers that divide trees evenly among bits."""
    return (np.arange(n_bits + 1) * (n_trees // n_bits)).astype(np.int32)
