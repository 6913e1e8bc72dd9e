"""Ridge regression: linear least squares with a penalty on the weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

__all__ = ["Ridge"]


class Ridge:
    """Regressions of any targets on the same features; the matrix of the features is factorised once.

    Parameters
    ----------
    features : float64 array of shape (n, d)
    penalty : float
        ``solve`` minimises ||targets - features W||^2 + penalty ||W||^2.

    Notes
    -----
    O(n d^2 + d^3) to build, O(n d) per target to solve.

    Examples
    --------
    >>> Ridge(np.array([[1.0], [2.0]]), 5.0).solve(np.array([[2.0], [4.0]])).round(6).tolist()
    [[1.0]]
    """

    def __init__(self, features: NDArray[np.float64], penalty: float) -> None:
        self._features = features
        gram = features.T @ features
        gram[np.diag_indices(len(gram))] += penalty
        self._factor = cho_factor(gram)

    def solve(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weights W, shape (d, n_targets), for targets of shape (n, n_targets)."""
        return np.asarray(cho_solve(self._factor, self._features.T @ targets))
