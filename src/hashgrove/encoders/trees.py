"""Boosted trees as encoders: flat tables of nodes, features in 256 bins, whole numbers summed over the trees of a bit.

Sums are int16 and exact, so they do not depend on the order of the trees, and training rows, which are binned once, get
the same bits as rows that are encoded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from hashgrove.encoders.base import Encoder
from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.trees.binning import TILE, bin_tiles
from hashgrove.trees.prediction import (
    MAX_SUM,
    Forest,
    compile_leaves,
    compile_votes,
    sum_leaves,
    sum_votes,
    sums_of_bins,
)

__all__ = ["BinnedTrees", "LeafTrees", "Trees"]

PLACES = 2**32  # in larger bins the place of a feature does not fit into the records of trees
SLAB_BYTES = 2**26  # of such bins that are copied at a time
LARGEST_UNIT = np.finfo(np.float64).max / MAX_SUM  # with it every score is finite


@dataclass(frozen=True, eq=False)
class BinnedTrees(Encoder):
    """Bits that are sums over trees on binned features.

    A subclass declares an array with a number per tree or per bit, and says how to sum over trees (`_compiled` and
    ``sum_trees``) and what a sum means (`_scores_of` and `_bits_of`).

    Attributes
    ----------
    low, scale : float64 arrays of shape (n_features,)
        The binning of features, see `hashgrove.trees.binning`.
    bit_ptr, tree_ptr, feature, threshold, child, value : arrays
        The tables of the trees, see `hashgrove.trees.prediction.Forest`.
    """

    checks_finite: ClassVar[bool] = True
    sum_trees: ClassVar[Callable[..., None]]

    low: Annotated[NDArray[np.float64], ("features",)]
    scale: Annotated[NDArray[np.float64], ("features",)]
    bit_ptr: Annotated[NDArray[np.int32], ("bits + 1",)]
    tree_ptr: Annotated[NDArray[np.int32], ("trees + 1",)]
    feature: Annotated[NDArray[np.uint32], ("nodes",)]
    threshold: Annotated[NDArray[np.uint8], ("nodes",)]
    child: Annotated[NDArray[np.uint32], ("nodes",)]
    value: Annotated[NDArray[np.int8], ("nodes",)]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.bit_ptr) - 1

    @property
    def forest(self) -> Forest:
        """The tables of the trees."""
        return Forest(self.bit_ptr, self.tree_ptr, self.feature, self.threshold, self.child, self.value)

    @abstractmethod
    def _compiled(self, unit: int) -> tuple[NDArray[Any], ...]:
        """The arrays as ``sum_trees`` takes them, for bins whose features are ``unit`` bytes apart."""

    @abstractmethod
    def _scores_of(self, sums: NDArray[np.int16]) -> NDArray[np.float64]:
        """The scores, shape (n_bits, n), that sums of this shape stand for."""

    @abstractmethod
    def _bits_of(self, sums: NDArray[np.int16]) -> NDArray[np.bool_]:
        """The bits, shape (n_bits, n), that sums of this shape stand for."""

    @cached_property
    def _compiled_for_tiles(self) -> tuple[NDArray[Any], ...]:
        return self._compiled(TILE)

    def _sums(self, X: NDArray[Any]) -> NDArray[np.int16]:
        """The sum of each bit and row, shape (n_bits, n)."""
        tiles, finite = bin_tiles(X, self.low, self.scale)
        if not finite:
            assert_all_finite(X, input_name="X")
        sums = np.empty((self.n_bits, len(X)), np.int16)
        step = len(tiles) // max(-(-len(X) // TILE), 1)
        type(self).sum_trees(tiles, TILE, step, 0, len(X), self._compiled_for_tiles, sums)
        return sums

    def _sums_of_bins(self, bins: NDArray[np.uint8], n_jobs: int | None) -> NDArray[np.int16]:
        add_up, (d, n) = type(self).sum_trees, bins.shape
        if d * n < PLACES:
            return sums_of_bins(add_up, bins, self._compiled(n), n_jobs=n_jobs)
        size = max(SLAB_BYTES // (d * TILE), 1) * TILE
        used, compiled = np.unique(self.feature[self.child > 0]), self._compiled(size)

        def of_slab(start: int, stop: int) -> NDArray[np.int16]:
            slab = np.zeros((d, size), np.uint8)
            for feature in used:
                slab[feature, : stop - start] = bins[feature, start:stop]
            return sums_of_bins(add_up, slab, compiled, n_jobs=1)[:, : stop - start]

        return np.concatenate(run_tasks(of_slab, chunks(n, size), n_jobs=n_jobs), axis=1)

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return self._scores_of(self._sums(X)).T

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return self._bits_of(self._sums(X)).T

    def scores_of_bins(self, bins: NDArray[np.uint8], *, n_jobs: int | None = None) -> NDArray[np.float64]:
        """Scores, shape (n_bits, n), of rows that are binned already: ``bins`` of shape (n_features, n), contiguous."""
        return self._scores_of(self._sums_of_bins(bins, n_jobs))

    def bits_of_bins(self, bins: NDArray[np.uint8], *, n_jobs: int | None = None) -> NDArray[np.bool_]:
        """Bits, shape (n_bits, n), of rows that are binned already: ``bins`` of shape (n_features, n), contiguous."""
        return self._bits_of(self._sums_of_bins(bins, n_jobs))

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, which must have the same binning of features."""
        first = encoders[0]
        if any(not np.array_equal(e.low, first.low) or not np.array_equal(e.scale, first.scale) for e in encoders):
            raise ValueError(f"{cls.__name__} encoders must have the same 'low' and 'scale' to be concatenated.")
        joined: dict[str, NDArray[Any]] = {"low": first.low, "scale": first.scale}
        for name in first.arrays().keys() - joined.keys():
            parts = [getattr(encoder, name) for encoder in encoders]
            joined[name] = _joined_pointers(parts) if name.endswith("_ptr") else np.concatenate(parts)
        return cls(**joined)

    def _check_values(self) -> None:
        _check_pointers("tree_ptr", self.tree_ptr, n_items=len(self.feature))
        _check_pointers("bit_ptr", self.bit_ptr, n_items=len(self.tree_ptr) - 1)
        sizes = np.diff(self.tree_ptr)
        number = np.arange(len(self.feature)) - np.repeat(self.tree_ptr[:-1], sizes)  # of a node, counted from its root
        inner, wide = self.child > 0, self.child.astype(np.int64)
        if (wide[inner] <= number[inner]).any() or (wide[inner] + 1 >= np.repeat(sizes, sizes)[inner]).any():
            raise ValueError("the array 'child' must point to two later nodes of the same tree, or be 0 in a leaf.")
        if (self.feature >= self.n_features).any():
            raise ValueError(
                f"the array 'feature' must be below the number of features, {self.n_features}. "
                f"Got {self.feature.max()}."
            )


@dataclass(frozen=True, eq=False)
class Trees(BinnedTrees):
    """Sums of weighted trees with leaves -1 and +1, equation 24 of the paper.

    A bit is 1 where the trees that vote +1 outweigh those that vote -1. A score is the share of votes for +1 minus the
    share of votes for -1, from -1 to 1.

    Attributes
    ----------
    low, scale : float64 arrays of shape (n_features,)
        The binning of features, see `hashgrove.trees.binning`.
    bit_ptr, tree_ptr, feature, threshold, child, value : arrays
        The tables of the trees, see `hashgrove.trees.prediction.Forest`; values are -1 and +1 in leaves.
    weights : int16 array of shape (n_trees,)
        Number of votes of each tree, 0 or more. Those of a bit sum to less than 2^15.
    """

    sum_trees: ClassVar[Callable[..., None]] = sum_votes

    weights: Annotated[NDArray[np.int16], ("trees",)]

    @cached_property
    def _totals(self) -> NDArray[np.int64]:
        """Sum of the votes of all trees, for each bit."""
        return np.add.reduceat(self.weights, self.bit_ptr[:-1], dtype=np.int64)

    def _compiled(self, unit: int) -> tuple[NDArray[Any], ...]:
        return compile_votes(self.forest, self.weights, unit=unit, n_features=self.n_features)

    def _scores_of(self, sums: NDArray[np.int16]) -> NDArray[np.float64]:
        totals = self._totals[:, None]
        return (2.0 * sums - totals) / totals

    def _bits_of(self, sums: NDArray[np.int16]) -> NDArray[np.bool_]:
        return sums > (self._totals // 2)[:, None]

    def _check_values(self) -> None:
        super()._check_values()
        n_trees = len(self.tree_ptr) - 1
        if len(self.weights) != n_trees or (self.weights < 0).any():
            raise ValueError(f"the array 'weights' must be {n_trees} numbers that are not negative, one per tree.")
        if (self._totals < 1).any() or (self._totals > MAX_SUM).any():
            raise ValueError(f"the array 'weights' must sum to between 1 and {MAX_SUM} for each bit.")
        if (np.abs(self.value) != (self.child == 0)).any():
            raise ValueError("the array 'value' must be -1 or +1 in leaves and 0 in inner nodes.")


@dataclass(frozen=True, eq=False)
class LeafTrees(BinnedTrees):
    """Sums of trees with real leaves; a score is half the log-odds of a bit, and a bit is 1 where it is above 0.

    Attributes
    ----------
    low, scale : float64 arrays of shape (n_features,)
        The binning of features, see `hashgrove.trees.binning`.
    bit_ptr, tree_ptr, feature, threshold, child, value : arrays
        The tables of the trees, see `hashgrove.trees.prediction.Forest`. The largest leaves of all trees of a bit sum
        to less than 2^15.
    unit : float64 array of shape (n_bits,)
        The score that a sum of 1 stands for.
    """

    sum_trees: ClassVar[Callable[..., None]] = sum_leaves

    unit: Annotated[NDArray[np.float64], ("bits",)]

    def _compiled(self, unit: int) -> tuple[NDArray[Any], ...]:
        return compile_leaves(self.forest, unit=unit, n_features=self.n_features)

    def _scores_of(self, sums: NDArray[np.int16]) -> NDArray[np.float64]:
        return sums * self.unit[:, None]

    def _bits_of(self, sums: NDArray[np.int16]) -> NDArray[np.bool_]:
        return sums > 0

    def _check_values(self) -> None:
        super()._check_values()
        if self.value[self.child > 0].any():
            raise ValueError("the array 'value' must be 0 in inner nodes.")
        if len(self.unit) != self.n_bits or (self.unit <= 0).any() or (self.unit > LARGEST_UNIT).any():
            raise ValueError(f"the array 'unit' must be {self.n_bits} positive numbers below 5e303, one per bit.")
        roots = self.tree_ptr[:-1]
        highest, lowest = np.maximum.reduceat(self.value, roots), np.minimum.reduceat(self.value, roots)
        largest = np.maximum(highest.astype(np.int64), -lowest.astype(np.int64))
        sums = np.add.reduceat(largest, self.bit_ptr[:-1])
        if (sums > MAX_SUM).any():
            raise ValueError(
                f"the array 'value' must sum to at most {MAX_SUM} per bit, with the largest leaf of each tree. "
                f"Got {sums.max()}."
            )


def _joined_pointers(pointers: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """The pointers of several lists of pieces that are put one after the other.

    >>> _joined_pointers([np.array([0, 2, 3], np.int32), np.array([0, 4], np.int32)])
    array([0, 2, 3, 7], dtype=int32)
    """
    sizes = np.concatenate([np.diff(part) for part in pointers])
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def _check_pointers(name: str, pointers: NDArray[np.int32], *, n_items: int) -> None:
    """Raise ValueError unless ``pointers`` cut ``n_items`` items into pieces, none of them empty."""
    wide = pointers.astype(np.int64)  # differences of int32 would wrap around
    if len(wide) < 2 or wide[0] != 0 or wide[-1] != n_items or (np.diff(wide) < 1).any():
        raise ValueError(f"the array {name!r} must increase strictly from 0 to {n_items}.")
