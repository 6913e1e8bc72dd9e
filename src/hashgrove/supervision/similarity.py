"""The matrix S of pairwise signs, as far as products with it go: for classes it is never made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["ClassSimilarity", "DenseSimilarity", "Similarity"]


class Similarity(Protocol):
    """S of some points among themselves, as far as products with it go."""

    def __matmul__(self, values: NDArray[np.float64], /) -> NDArray[np.float64]: ...

    @property
    def squared_norm(self) -> float:
        """Sum of the squares of the entries."""


@dataclass(frozen=True, eq=False)
class ClassSimilarity:
    """S of class labels: S = 2 Z Z' - 1 1' with Z the indicator of classes, so a product costs O(n), not O(n^2).

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
    """S as an array."""

    values: NDArray[np.float64]

    def __matmul__(self, values: NDArray[np.float64], /) -> NDArray[np.float64]:
        return self.values @ values

    @property
    def squared_norm(self) -> float:
        """Sum of the squares of the entries."""
        return float(np.square(self.values).sum())
