"""What encoders of boosted trees share: features in 256 bins, and whole numbers summed over the trees of a bit.

Sums are int16 and exact, so they do not depend on the order of the trees, and training on bins that are kept gives the
same as encoding rows.
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
from hashgrove.encoders.binning import TILE, bin_tiles
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["BinnedTrees", "check_nodes", "check_pointers", "joined_pointers"]

VISITS_PER_CHUNK = 2**20  # rows x trees; with fewer a second thread does not pay


@dataclass(frozen=True, eq=False)
class BinnedTrees(Encoder):
    """Bits that are sums over trees on binned features.

    A subclass gives the arrays of its trees, `_forest`, the kernel `sum_trees`, and what a sum means: `_scores_of` and
    `_bits_of`.

    Attributes
    ----------
    low, scale : float64 arrays of shape (n_features,)
        The binning of features, see `hashgrove.encoders.binning`.
    bit_ptr : int32 array of shape (n_bits + 1,)
        Bit b has the trees from ``bit_ptr[b]`` to ``bit_ptr[b + 1]``, without the latter.
    """

    checks_finite: ClassVar[bool] = True
    sum_trees: ClassVar[Callable[..., None]]

    low: Annotated[NDArray[np.float64], ("features",)]
    scale: Annotated[NDArray[np.float64], ("features",)]
    bit_ptr: Annotated[NDArray[np.int32], ("bits + 1",)]

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return len(self.bit_ptr) - 1

    @abstractmethod
    def _forest(self, unit: int) -> tuple[NDArray[Any], ...]:
        """The arrays as the kernel takes them, for bins whose features are ``unit`` bytes apart."""

    @abstractmethod
    def _scores_of(self, sums: NDArray[np.int16]) -> NDArray[np.float64]:
        """The scores, shape (n_bits, n), that sums of this shape stand for."""

    @abstractmethod
    def _bits_of(self, sums: NDArray[np.int16]) -> NDArray[np.bool_]:
        """The bits, shape (n_bits, n), that sums of this shape stand for."""

    @cached_property
    def _tile_forest(self) -> tuple[NDArray[Any], ...]:
        return self._forest(TILE)

    def _sums(self, X: NDArray[Any]) -> NDArray[np.int16]:
        """The sum of each bit and row, shape (n_bits, n)."""
        tiles, finite = bin_tiles(X, self.low, self.scale)
        if not finite:
            assert_all_finite(X, input_name="X")
        sums = np.empty((self.n_bits, len(X)), np.int16)
        type(self).sum_trees(tiles, TILE, len(tiles) // max(-(-len(X) // TILE), 1), 0, len(X), self._tile_forest, sums)
        return sums

    def sums_of_bins(self, bins: NDArray[np.uint8], *, n_jobs: int | None = None) -> NDArray[np.int16]:
        """Sums, shape (n_bits, n), of rows that are binned already: ``bins`` of shape (n_features, n), contiguous."""
        n = bins.shape[1]
        sums = np.empty((self.n_bits, n), np.int16)
        flat, forest = bins.reshape(-1), self._forest(n)
        rows_per_chunk = max(VISITS_PER_CHUNK // int(self.bit_ptr[-1]) // TILE, 1) * TILE
        tasks = [(flat, n, TILE, start, stop, forest, sums) for start, stop in chunks(n, rows_per_chunk)]
        run_tasks(type(self).sum_trees, tasks, n_jobs=n_jobs)
        return sums

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return self._scores_of(self._sums(X)).T

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return self._bits_of(self._sums(X)).T

    def scores_of_bins(self, bins: NDArray[np.uint8], *, n_jobs: int | None = None) -> NDArray[np.float64]:
        """Scores, shape (n_bits, n), of rows that are binned already; see `sums_of_bins`."""
        return self._scores_of(self.sums_of_bins(bins, n_jobs=n_jobs))

    def bits_of_bins(self, bins: NDArray[np.uint8], *, n_jobs: int | None = None) -> NDArray[np.bool_]:
        """Bits, shape (n_bits, n), of rows that are binned already; see `sums_of_bins`."""
        return self._bits_of(self.sums_of_bins(bins, n_jobs=n_jobs))

    @classmethod
    def _check_same_binning(cls, encoders: Sequence[Self]) -> None:
        first = encoders[0]
        if any(not np.array_equal(e.low, first.low) or not np.array_equal(e.scale, first.scale) for e in encoders):
            raise ValueError(f"{cls.__name__} encoders must have the same 'low' and 'scale' to be concatenated.")


def joined_pointers(pointers: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """The pointers of several lists of pieces that are put one after the other.

    >>> joined_pointers([np.array([0, 2, 3], np.int32), np.array([0, 4], np.int32)])
    array([0, 2, 3, 7], dtype=int32)
    """
    sizes = np.concatenate([np.diff(part) for part in pointers])
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def check_pointers(name: str, pointers: NDArray[np.int32], *, n_items: int) -> None:
    """Raise ValueError unless ``pointers`` cut ``n_items`` items into pieces, none of them empty."""
    wide = pointers.astype(np.int64)  # differences of int32 would wrap around
    if len(wide) < 2 or wide[0] != 0 or wide[-1] != n_items or (np.diff(wide) < 1).any():
        raise ValueError(f"the array {name!r} must increase strictly from 0 to {n_items}.")


def check_nodes(
    tree_ptr: NDArray[np.int32], feature: NDArray[np.uint32], child: NDArray[np.uint32], *, n_features: int
) -> None:
    """Raise ValueError unless each node tests a feature that exists and has no children or two later nodes of its tree.

    ``tree_ptr`` has been checked before.
    """
    sizes = np.diff(tree_ptr)
    number = np.arange(len(feature)) - np.repeat(tree_ptr[:-1], sizes)  # of a node, counted from its root
    inner, wide = child > 0, child.astype(np.int64)
    if (wide[inner] <= number[inner]).any() or (wide[inner] + 1 >= np.repeat(sizes, sizes)[inner]).any():
        raise ValueError("the array 'child' must point to two later nodes of the same tree, or be 0 in a leaf.")
    if (feature >= n_features).any():
        raise ValueError(
            f"the array 'feature' must be below the number of features, {n_features}. Got {feature.max()}."
        )
