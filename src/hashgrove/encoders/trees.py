"""Boosted trees as an encoder: flat tables of nodes, votes in whole numbers, features in 256 bins.

A bit is 1 where the trees that vote +1 outweigh those that vote -1. The weights are integers whose sum per bit is
below 2^15, so votes are exact and do not depend on the order of the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.binned_trees import BinnedTrees, check_nodes, check_pointers, joined_pointers
from hashgrove.encoders.forest import compile_trees, sum_votes

__all__ = ["MAX_VOTES", "Trees"]

MAX_VOTES = 2**15 - 1


@dataclass(frozen=True, eq=False)
class Trees(BinnedTrees):
    """Sums of weighted trees with leaves -1 and +1, equation 24 of the paper.

    Attributes
    ----------
    low, scale : float64 arrays of shape (n_features,)
        The binning of features, see `hashgrove.encoders.binning`.
    bit_ptr : int32 array of shape (n_bits + 1,)
        Bit b has the trees from ``bit_ptr[b]`` to ``bit_ptr[b + 1]``, without the latter.
    weights : int16 array of shape (n_trees,)
        Number of votes of each tree.
    tree_ptr : int32 array of shape (n_trees + 1,)
        Tree t has the nodes from ``tree_ptr[t]`` to ``tree_ptr[t + 1]``, without the latter; the first is its root.
    feature, threshold : uint32 and uint8 arrays of shape (n_nodes,)
        A row goes to the left child if its bin of the feature is <= threshold, and otherwise to the right child.
    child : uint32 array of shape (n_nodes,)
        Number of the left child, counted from the root; the right child is the next node. 0 in a leaf.
    value : int8 array of shape (n_nodes,)
        -1 or +1 in a leaf, 0 in an inner node.
    """

    sum_trees: ClassVar[Callable[..., None]] = sum_votes

    weights: Annotated[NDArray[np.int16], ("trees",)]
    tree_ptr: Annotated[NDArray[np.int32], ("trees + 1",)]
    feature: Annotated[NDArray[np.uint32], ("nodes",)]
    threshold: Annotated[NDArray[np.uint8], ("nodes",)]
    child: Annotated[NDArray[np.uint32], ("nodes",)]
    value: Annotated[NDArray[np.int8], ("nodes",)]

    @cached_property
    def _totals(self) -> NDArray[np.int64]:
        """Sum of the votes of all trees, for each bit."""
        return np.add.reduceat(self.weights, self.bit_ptr[:-1], dtype=np.int64)

    def _forest(self, unit: int) -> tuple[NDArray[Any], ...]:
        nodes = self.tree_ptr, self.feature, self.threshold, self.child, self.value
        fits = unit * self.n_features < 2**32  # places in a record are uint32; otherwise the trees are walked
        records = compile_trees(unit, *nodes) if fits else np.zeros(0, np.uint32)
        return self.bit_ptr, records, self.weights, *nodes

    def _scores_of(self, sums: NDArray[np.int16]) -> NDArray[np.float64]:
        """The share of votes for +1 minus the share of votes for -1, from -1 to 1."""
        totals = self._totals[:, None]
        return (2.0 * sums - totals) / totals

    def _bits_of(self, sums: NDArray[np.int16]) -> NDArray[np.bool_]:
        return sums > (self._totals // 2)[:, None]

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, which must have the same binning of features."""
        cls._check_same_binning(encoders)
        joined: dict[str, NDArray[Any]] = {
            name: np.concatenate([getattr(e, name) for e in encoders])
            for name in ("weights", "feature", "threshold", "child", "value")
        }
        for name in ("bit_ptr", "tree_ptr"):
            joined[name] = joined_pointers([getattr(e, name) for e in encoders])
        return cls(low=encoders[0].low, scale=encoders[0].scale, **joined)

    def _check_values(self) -> None:
        check_pointers("bit_ptr", self.bit_ptr, n_items=len(self.weights))
        check_pointers("tree_ptr", self.tree_ptr, n_items=len(self.feature))
        n_trees = len(self.tree_ptr) - 1
        if len(self.weights) != n_trees or (self.weights < 0).any():
            raise ValueError(f"the array 'weights' must be {n_trees} numbers that are not negative, one per tree.")
        if (self._totals < 1).any() or (self._totals > MAX_VOTES).any():
            raise ValueError(f"the array 'weights' must sum to between 1 and {MAX_VOTES} for each bit.")
        check_nodes(self.tree_ptr, self.feature, self.child, n_features=self.n_features)
        if (np.abs(self.value) != (self.child == 0)).any():
            raise ValueError("the array 'value' must be -1 or +1 in leaves and 0 in inner nodes.")
