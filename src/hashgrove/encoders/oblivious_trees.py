"""Oblivious boosted trees as an encoder: all nodes of a level share one test, so a leaf's number is the tests' results.

Sums are whole numbers, as in `hashgrove.encoders.leaf_trees`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.binned_trees import BinnedTrees, joined_pointers
from hashgrove.encoders.leaf_trees import check_sums
from hashgrove.encoders.oblivious_leaves import compile_oblivious, sum_oblivious

__all__ = ["MAX_LEVELS", "ObliviousTrees"]

MAX_LEVELS = 12  # a tree has 2^levels leaves


@dataclass(frozen=True, eq=False)
class ObliviousTrees(BinnedTrees):
    """Sums of oblivious trees with real leaves; a score is half the log-odds of a bit.

    Attributes
    ----------
    low, scale : float64 arrays of shape (n_features,)
        The binning of features, see `hashgrove.encoders.binning`.
    bit_ptr : int32 array of shape (n_bits + 1,)
        Bit b has the trees from ``bit_ptr[b]`` to ``bit_ptr[b + 1]``, without the latter.
    unit : float64 array of shape (n_bits,)
        The score that a sum of 1 stands for.
    feature, threshold : uint32 and uint8 arrays of shape (n_trees, n_levels)
        The test of each level: whether the bin of the feature is > threshold.
    leaves : int8 array of shape (n_trees, 2^n_levels)
        The values of the leaves; the test of level l gives bit l of the number of a leaf.
    """

    sum_trees: ClassVar[Callable[..., None]] = sum_oblivious

    unit: Annotated[NDArray[np.float64], ("bits",)]
    feature: Annotated[NDArray[np.uint32], ("trees", "levels")]
    threshold: Annotated[NDArray[np.uint8], ("trees", "levels")]
    leaves: Annotated[NDArray[np.int8], ("trees", "leaves")]

    def _forest(self, unit: int) -> tuple[NDArray[Any], ...]:
        tables = self.feature, self.threshold, self.leaves
        fits = unit * self.n_features < 2**32  # places in a record are uint32; otherwise rows go one by one
        records = compile_oblivious(unit, *tables) if fits else np.zeros(0, np.uint32)
        return self.bit_ptr, records, *tables

    def _scores_of(self, sums: NDArray[np.int16]) -> NDArray[np.float64]:
        return sums * self.unit[:, None]

    def _bits_of(self, sums: NDArray[np.int16]) -> NDArray[np.bool_]:
        return sums > 0

    @classmethod
    def concatenate(cls, encoders: Sequence[Self]) -> Self:
        """One encoder that gives the bits of all ``encoders``, which must have the same binning of features.

        Trees with fewer levels are filled up by tests that no row passes.
        """
        cls._check_same_binning(encoders)
        n_levels = max(encoder.feature.shape[1] for encoder in encoders)
        parts = [encoder._filled_up(n_levels) for encoder in encoders]
        names = "unit", "feature", "threshold", "leaves"
        return cls(
            low=encoders[0].low,
            scale=encoders[0].scale,
            bit_ptr=joined_pointers([part.bit_ptr for part in parts]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        )

    def _filled_up(self, n_levels: int) -> Self:
        """The same trees with ``n_levels`` levels."""
        missing = ((0, 0), (0, n_levels - self.feature.shape[1]))
        return type(self)(
            low=self.low,
            scale=self.scale,
            bit_ptr=self.bit_ptr,
            unit=self.unit,
            feature=np.pad(self.feature, missing),
            threshold=np.pad(self.threshold, missing, constant_values=255),
            leaves=np.pad(self.leaves, ((0, 0), (0, 2**n_levels - self.leaves.shape[1]))),
        )

    def _check_values(self) -> None:
        n_levels, n_leaves = self.feature.shape[1], self.leaves.shape[1]
        if n_levels > MAX_LEVELS or n_leaves != 2**n_levels:
            raise ValueError(
                f"the array 'leaves' must have 2^levels columns, and at most {MAX_LEVELS} levels. "
                f"Got {n_leaves} columns for {n_levels} levels."
            )
        if (self.feature >= self.n_features).any():
            raise ValueError(
                f"the array 'feature' must be below the number of features, {self.n_features}. "
                f"Got {self.feature.max()}."
            )
        check_sums(self.bit_ptr, self.unit, self.leaves.max(axis=1), self.leaves.min(axis=1))
