"""Boosted trees as an encoder: flat node tables, whole-number votes, features in 256 levels.

A bit is one where the trees that vote +1 outweigh those that vote -1. Weights are integers whose sum over a bit is
below 2^15, so votes are exact and do not depend on the order of the trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from hashgrove.encoders.base import Encoder
from hashgrove.encoders.binning import TILE
from hashgrove.encoders.forest import compile_trees, vote_levels, vote_rows
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
        Bit b has the trees ``bit_ptr[b]`` to ``bit_ptr[b + 1]``.
    weights : int16 array of shape (n_trees,)
        Their votes.
    tree_ptr : int32 array of shape (n_trees + 1,)
        Tree t has the nodes ``tree_ptr[t]`` to ``tree_ptr[t + 1]``; the first is its root.
    feature, threshold : uint32 and uint8 arrays of shape (n_nodes,)
        A row goes to the left child where its level of the feature is <= threshold, and otherwise to the right one.
    child : uint32 array of shape (n_nodes,)
        The left child, counted from the root; the right child is the next node. 0 in a leaf.
    value : int8 array of shape (n_nodes,)
        -1 or +1 in a leaf, 0 elsewhere.
    """

    checks_finite: ClassVar[bool] = True

    low: NDArray[np.float64]
    scale: NDArray[np.float64]
    bit_ptr: NDArray[np.int32]
    weights: NDArray[np.int16]
    tree_ptr: NDArray[np.int32]
    feature: NDArray[np.uint32]
    threshold: NDArray[np.uint8]
    child: NDArray[np.uint32]
    value: NDArray[np.int8]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.bit_ptr) - 1

    @property
    def n_features(self) -> int:
        """Number of columns that `X` must have."""
        return len(self.low)

    @cached_property
    def _totals(self) -> NDArray[np.int64]:
        """Votes of all trees of each bit."""
        return np.add.reduceat(self.weights, self.bit_ptr[:-1], dtype=np.int64)

    def _forest(self, unit: int) -> tuple[NDArray[Any], ...]:
        """The tables as the kernels of `hashgrove.encoders.forest` take them."""
        nodes = self.tree_ptr, self.feature, self.threshold, self.child, self.value
        fits = unit * self.n_features < 2**32  # otherwise the trees are walked
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
        """Bits, shape (n_bits, n), of rows that are binned already; ``bins`` is (n_features, n), contiguous."""
        n = bins.shape[1]
        votes = np.empty((self.n_bits, n), np.int16)
        levels, forest = bins.reshape(-1), self._forest(n)
        run_tasks(
            vote_levels, [(levels, n, a, b, forest, votes) for a, b in chunks(n, BINNED_PER_CHUNK)], n_jobs=n_jobs
        )
        return votes > (self._totals // 2)[:, None]

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """The share of votes for +1 less that for -1, in [-1, 1]."""
        return (2.0 * self._votes(X).T - self._totals) / self._totals

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return (self._votes(X) > (self._totals // 2)[:, None]).T

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """The bits of all ``encoders``, which share the binning of their features."""
        first = encoders[0]
        if any(not np.array_equal(e.low, first.low) or not np.array_equal(e.scale, first.scale) for e in encoders):
            raise ValueError("encoders of one model must share the binning of their features")
        joined: dict[str, NDArray[Any]] = {
            name: np.concatenate([getattr(e, name) for e in encoders])
            for name in ("weights", "feature", "threshold", "child", "value")
        }
        for name in ("bit_ptr", "tree_ptr"):
            sizes = np.concatenate([np.diff(getattr(e, name)) for e in encoders])
            joined[name] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return cls(low=first.low, scale=first.scale, **joined)

    def _check(self) -> None:
        dtypes = {"low": "f8", "scale": "f8", "bit_ptr": "i4", "weights": "i2", "tree_ptr": "i4"}
        dtypes |= {"feature": "u4", "threshold": "u1", "child": "u4", "value": "i1"}
        for name, dtype in dtypes.items():
            array = getattr(self, name)
            if array.ndim != 1 or array.dtype != np.dtype(dtype):
                raise ValueError(f"array {name!r} must be 1-D {np.dtype(dtype)}, not {array.ndim}-D {array.dtype}")
        if not (len(self.low) == len(self.scale) > 0 and np.isfinite([self.low, self.scale]).all()):
            raise ValueError("the binning of features is inconsistent")
        for pointer, end in ((self.bit_ptr, len(self.weights)), (self.tree_ptr, len(self.feature))):
            if len(pointer) < 2 or pointer[0] != 0 or pointer[-1] != end or (np.diff(pointer) < 1).any():
                raise ValueError("the table of bits or of trees is inconsistent")
        if len(self.tree_ptr) != len(self.weights) + 1 or (self.weights < 0).any():
            raise ValueError("the votes of trees are inconsistent")
        if (self._totals < 1).any() or (self._totals > MAX_VOTES).any():
            raise ValueError(f"the votes of a bit must sum to between 1 and {MAX_VOTES}")
        n_nodes = len(self.feature)
        if not (len(self.threshold) == len(self.child) == len(self.value) == n_nodes):
            raise ValueError("the tables of nodes differ in length")
        sizes = np.diff(self.tree_ptr)
        own = np.arange(n_nodes) - np.repeat(self.tree_ptr[:-1], sizes)  # counted from the root
        inner = self.child > 0
        child = self.child.astype(np.int64)
        if (child[inner] <= own[inner]).any() or (child[inner] + 1 >= np.repeat(sizes, sizes)[inner]).any():
            raise ValueError("a node's children must follow it inside its tree")
        if (self.feature >= self.n_features).any():
            raise ValueError("a node tests a feature that is not there")
        if (np.abs(self.value) != ~inner).any():
            raise ValueError("a leaf must be -1 or +1, and only leaves have a value")
