"""Boosted trees with real leaves as an encoder: leaves are whole numbers of one byte in units of their bit.

A bit is 1 where the leaves of a row sum to more than 0. The largest leaves of all trees of a bit sum to less than 2^15,
so sums are exact in 16 bits and do not depend on the order of the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.binned_trees import BinnedTrees, check_nodes, check_pointers, joined_pointers
from hashgrove.encoders.leaves import compile_leaves, sum_leaves

__all__ = ["MAX_LEAF", "MAX_SUM", "LeafTrees", "check_sums"]

MAX_LEAF = 2**7 - 1
MAX_SUM = 2**15 - 1


@dataclass(frozen=True, eq=False)
class LeafTrees(BinnedTrees):
    """Sums of trees with real leaves; a score is half the log-odds of a bit.

    Attributes
    ----------
    low, scale : float64 arrays of shape (n_features,)
        The binning of features, see `hashgrove.encoders.binning`.
    bit_ptr : int32 array of shape (n_bits + 1,)
        Bit b has the trees from ``bit_ptr[b]`` to ``bit_ptr[b + 1]``, without the latter.
    unit : float64 array of shape (n_bits,)
        The score that a sum of 1 stands for.
    tree_ptr, feature, threshold, child : arrays
        The trees, as in `hashgrove.encoders.trees.Trees`.
    value : int8 array of shape (n_nodes,)
        The value of a leaf, 0 in an inner node.
    """

    sum_trees: ClassVar[Callable[..., None]] = sum_leaves

    unit: Annotated[NDArray[np.float64], ("bits",)]
    tree_ptr: Annotated[NDArray[np.int32], ("trees + 1",)]
    feature: Annotated[NDArray[np.uint32], ("nodes",)]
    threshold: Annotated[NDArray[np.uint8], ("nodes",)]
    child: Annotated[NDArray[np.uint32], ("nodes",)]
    value: Annotated[NDArray[np.int8], ("nodes",)]

    def _forest(self, unit: int) -> tuple[NDArray[Any], ...]:
        nodes = self.tree_ptr, self.feature, self.threshold, self.child, self.value
        fits = unit * self.n_features < 2**32  # places in a record are uint32; otherwise the trees are walked
        records = compile_leaves(unit, *nodes) if fits else np.zeros(0, np.uint32)
        return self.bit_ptr, records, *nodes

    def _scores_of(self, sums: NDArray[np.int16]) -> NDArray[np.float64]:
        return sums * self.unit[:, None]

    def _bits_of(self, sums: NDArray[np.int16]) -> NDArray[np.bool_]:
        return sums > 0

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, which must have the same binning of features."""
        cls._check_same_binning(encoders)
        joined: dict[str, NDArray[Any]] = {
            name: np.concatenate([getattr(e, name) for e in encoders])
            for name in ("unit", "feature", "threshold", "child", "value")
        }
        for name in ("bit_ptr", "tree_ptr"):
            joined[name] = joined_pointers([getattr(e, name) for e in encoders])
        return cls(low=encoders[0].low, scale=encoders[0].scale, **joined)

    def _check_values(self) -> None:
        check_pointers("tree_ptr", self.tree_ptr, n_items=len(self.feature))
        check_nodes(self.tree_ptr, self.feature, self.child, n_features=self.n_features)
        if self.value[self.child > 0].any():
            raise ValueError("the array 'value' must be 0 in inner nodes.")
        roots = self.tree_ptr[:-1]
        check_sums(
            self.bit_ptr, self.unit, np.maximum.reduceat(self.value, roots), np.minimum.reduceat(self.value, roots)
        )


def check_sums(
    bit_ptr: NDArray[np.int32], unit: NDArray[np.float64], highest: NDArray[np.int8], lowest: NDArray[np.int8]
) -> None:
    """Raise ValueError unless no sum of leaves overflows, and every score is finite and has the sign of its sum.

    ``highest`` and ``lowest`` are the leaves of each tree with the largest and the smallest value.
    """
    check_pointers("bit_ptr", bit_ptr, n_items=len(highest))
    largest = np.maximum(highest.astype(np.int64), -lowest.astype(np.int64))
    sums = np.add.reduceat(largest, bit_ptr[:-1])
    if len(unit) != len(sums) or (unit <= 0).any() or (unit > np.finfo(np.float64).max / MAX_SUM).any():
        raise ValueError(f"the array 'unit' must be {len(sums)} positive numbers below 5e303, one per bit.")
    if (sums > MAX_SUM).any():
        raise ValueError(
            f"the array of leaves must sum to at most {MAX_SUM} per bit, with the largest leaf of each tree. "
            f"Got {sums.max()}."
        )
