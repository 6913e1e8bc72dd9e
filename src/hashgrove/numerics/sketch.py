"""A sketch of many features: each feature is added, with a random sign, to one of fewer columns.

Inner products of rows are kept in expectation, and a linear function of the sketch is a linear function of the
features, so models of the sketch cost nothing extra when they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Sketch"]


@dataclass(frozen=True, eq=False)
class Sketch:
    """The column and the sign of each feature; None if the features are few enough and stay as they are.

    Examples
    --------
    >>> sketch = Sketch.draw(4, 2, np.random.default_rng(0))
    >>> x, w = np.arange(4.0)[None], np.array([[1.0, 2.0]])
    >>> bool(np.allclose(sketch.apply(x) @ w.T, x @ sketch.expand(w).T))
    True
    """

    matrix: sparse.csr_array | None

    @classmethod
    def draw(cls, n_features: int, n_columns: int, rng: np.random.Generator) -> Sketch:
        """Draw a sketch to ``n_columns`` columns; features that are not more than that are left alone."""
        if n_features <= n_columns:
            return cls(None)
        columns = rng.permutation(n_features) % n_columns  # as evenly as possible
        signs = rng.choice(np.array([-1, 1], np.float32), n_features)
        place = columns, np.arange(n_features)
        return cls(sparse.csr_array((signs, place), shape=(n_columns, n_features)))

    def apply(self, X: NDArray[Any]) -> NDArray[Any]:
        """The sketch of each row."""
        return X if self.matrix is None else np.ascontiguousarray((self.matrix @ X.T).T)

    def expand(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Weights of the features, (k, n_features), from weights of the columns of the sketch, (k, n_columns)."""
        return weights if self.matrix is None else np.ascontiguousarray((self.matrix.T @ weights.T).T)
