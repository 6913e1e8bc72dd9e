"""Boosted trees as an encoder: flat tables of nodes, votes in whole numbers, features in 256 bins.

A bit is 1 where the trees that vote +1 outweigh those that vote -1. The weights are integers whose sum per bit is
below 2^15, so votes are exact and do not depend on the order of the trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from hashgrove.encoders.base import Encoder
from hashgrove.encoders.binning import TILE
from hashgrove.encoders.forest import compile_trees, vote_bins, vote_rows
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["MAX_VOTES", "Trees"]

MAX_VOTES = 2**15 - 1
BINNED_PER_CHUNK = 2**14


@dataclass(frozen=True, eq=False)
class Trees(Encoder):
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

    checks_finite: ClassVar[bool] = True

    low: Annotated[NDArray[np.float64], ("features",)]
    scale: Annotated[NDArray[np.float64], ("features",)]
    bit_ptr: Annotated[NDArray[np.int32], ("bits + 1",)]
    weights: Annotated[NDArray[np.int16], ("trees",)]
    tree_ptr: Annotated[NDArray[np.int32], ("trees + 1",)]
    feature: Annotated[NDArray[np.uint32], ("nodes",)]
    threshold: Annotated[NDArray[np.uint8], ("nodes",)]
    child: Annotated[NDArray[np.uint32], ("nodes",)]
    value: Annotated[NDArray[np.int8], ("nodes",)]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.bit_ptr) - 1

    @cached_property
    def _totals(self) -> NDArray[np.int64]:
        """Sum of the votes of all trees, for each bit."""
        return np.add.reduceat(self.weights, self.bit_ptr[:-1], dtype=np.int64)

    def _forest(self, unit: int) -> tuple[NDArray[Any], ...]:
        """The arrays as the kernels of `hashgrove.encoders.forest` take them; see `compile_trees` for ``unit``."""
        nodes = self.tree_ptr, self.feature, self.threshold, self.child, self.value
        fits = unit * self.n_features < 2**32  # places in a record are uint32; otherwise the trees are walked
        records = compile_trees(unit, *nodes) if fits else np.zeros(0, np.uint32)
        return self.bit_ptr, records, self.weights, *nodes

    @cached_property
    def _tile_forest(self) -> tuple[NDArray[Any], ...]:
        return self._forest(TILE)

    def _votes(self, X: NDArray[Any]) -> NDArray[np.int16]:
        """Votes for +1, shape (n_bits, n)."""
        votes = np.empty((self.n_bits, len(X)), np.int16)
        if not vote_rows(X, self.low, self.scale, self._tile_forest, votes):
            assert_all_finite(X, input_name="X")
        return votes

    def bits_of_bins(self, bins: NDArray[np.uint8], *, n_jobs: int | None = None) -> NDArray[np.bool_]:
        """Bits, shape (n_bits, n), of rows that are binned already; ``bins`` has shape (n_features, n), contiguous."""
        n = bins.shape[1]
        votes = np.empty((self.n_bits, n), np.int16)
        flat, forest = bins.reshape(-1), self._forest(n)
        tasks = [(flat, n, start, stop, forest, votes) for start, stop in chunks(n, BINNED_PER_CHUNK)]
        run_tasks(vote_bins, tasks, n_jobs=n_jobs)
        return votes > (self._totals // 2)[:, None]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """The share of votes for +1 minus the share of votes for -1, from -1 to 1."""
        return (2.0 * self._votes(X).T - self._totals) / self._totals

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return (self._votes(X) > (self._totals // 2)[:, None]).T

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, which must have the same binning of features."""
        first = encoders[0]
        if any(not np.array_equal(e.low, first.low) or not np.array_equal(e.scale, first.scale) for e in encoders):
            raise ValueError("Trees encoders must have the same 'low' and 'scale' to be concatenated.")
        joined: dict[str, NDArray[Any]] = {
            name: np.concatenate([getattr(e, name) for e in encoders])
            for name in ("weights", "feature", "threshold", "child", "value")
        }
        for name in ("bit_ptr", "tree_ptr"):
            sizes = np.concatenate([np.diff(getattr(e, name)) for e in encoders])
            joined[name] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return cls(low=first.low, scale=first.scale, **joined)

    def _check_values(self) -> None:
        _check_pointers("bit_ptr", self.bit_ptr, n_items=len(self.weights))
        _check_pointers("tree_ptr", self.tree_ptr, n_items=len(self.feature))
        n_trees = len(self.tree_ptr) - 1
        if len(self.weights) != n_trees or (self.weights < 0).any():
            raise ValueError(f"the array 'weights' must be {n_trees} numbers that are not negative, one per tree.")
        if (self._totals < 1).any() or (self._totals > MAX_VOTES).any():
            raise ValueError(f"the array 'weights' must sum to between 1 and {MAX_VOTES} for each bit.")
        self._check_nodes()

    def _check_nodes(self) -> None:
        sizes = np.diff(self.tree_ptr)
        number = np.arange(len(self.feature)) - np.repeat(self.tree_ptr[:-1], sizes)  # of a node, counted from its root
        inner, child = self.child > 0, self.child.astype(np.int64)
        if (child[inner] <= number[inner]).any() or (child[inner] + 1 >= np.repeat(sizes, sizes)[inner]).any():
            raise ValueError("the array 'child' must point to two later nodes of the same tree, or be 0 in a leaf.")
        if (self.feature >= self.n_features).any():
            raise ValueError(
                f"the array 'feature' must be below the number of features, {self.n_features}. "
                f"Got {self.feature.max()}."
            )
        if (np.abs(self.value) != ~inner).any():
            raise ValueError("the array 'value' must be -1 or +1 in leaves and 0 in inner nodes.")


def _check_pointers(name: str, pointers: NDArray[np.int32], *, n_items: int) -> None:
    """Raise ValueError unless ``pointers`` cut ``n_items`` items into pieces, none of them empty."""
    wide = pointers.astype(np.int64)  # differences of int32 would wrap around
    if len(wide) < 2 or wide[0] != 0 or wide[-1] != n_items or (np.diff(wide) < 1).any():
        raise ValueError(f"the array {name!r} must increase strictly from 0 to {n_items}.")
