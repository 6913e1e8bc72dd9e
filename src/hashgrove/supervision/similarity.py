"""The matrix S of pairwise signs, as something to multiply with. For classes the matrix itself is never built."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.supervision.affinity import Affinity

__all__ = ["ClassSimilarity", "DenseSimilarity", "Similarity", "SparseSimilarity"]


class Similarity(Protocol):
    """The matrix S of some points among themselves, which can be multiplied by vectors and matrices."""

    def __matmul__(self, values: NDArray[np.float64], /) -> NDArray[np.float64]: ...

    @property
    def squared_norm(self) -> float:
        """Sum of the squares of the entries."""


@dataclass(frozen=True, eq=False)
class ClassSimilarity:
    """S of class labels. With the indicator matrix Z of the classes, S = 2 Z Z' - 1 1', so a product takes O(n).

    >>> (ClassSimilarity(np.array([0, 1, 0])) @ np.array([1.0, 2.0, 4.0])).tolist()
    [3.0, -3.0, 3.0]
    """

    classes: NDArray[np.int64]

    def __matmul__(self, values: NDArray[np.float64], /) -> NDArray[np.float64]:
        columns = values if values.ndim == 2 else values[:, None]
        product = 2.0 * (self._indicator @ columns)[self.classes] - columns.sum(axis=0)
        return product if values.ndim == 2 else product[:, 0]

    @cached_property
    def _indicator(self) -> Any:
        n_points = len(self.classes)
        return sparse.csr_array((np.ones(n_points), (self.classes, np.arange(n_points))))

    @property
    def squared_norm(self) -> float:
        """Sum of the squares of the entries."""
        return float(len(self.classes)) ** 2


@dataclass(frozen=True, eq=False)
class DenseSimilarity:
    """S, stored as an array."""

    values: NDArray[np.float64]

    def __matmul__(self, values: NDArray[np.float64], /) -> NDArray[np.float64]:
        return self.values @ values

    @property
    def squared_norm(self) -> float:
        """Sum of the squares of the entries."""
        return float(np.square(self.values).sum())


@dataclass(frozen=True, eq=False)
class SparseSimilarity:
    """S of some pairs only: +1 for similar and -1 for dissimilar pairs, and 0 for all others.

    >>> (SparseSimilarity(sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])) @ np.array([2.0, 5.0])).tolist()
    [5.0, 2.0]
    """

    values: sparse.csr_array

    @classmethod
    def of(cls, pairs: Affinity) -> SparseSimilarity:
        """S of the pairs of an affinity."""
        row = np.repeat(np.arange(len(pairs)), np.diff(pairs.indptr))
        is_similar = np.arange(len(pairs.indices)) < pairs.first_dissimilar[row]
        entries = np.where(is_similar, 1.0, -1.0), pairs.indices.astype(np.int32), pairs.indptr
        return cls(sparse.csr_array(entries, shape=(len(pairs), len(pairs))))

    def __matmul__(self, values: NDArray[np.float64], /) -> NDArray[np.float64]:
        return np.asarray(self.values @ values)

    @property
    def squared_norm(self) -> float:
        """Sum of the squares of the entries."""
        return float(np.square(self.values.data).sum())
