"""Squared Euclidean distances from rows of features to a fixed set of points, by one matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DistancesTo"]


class DistancesTo:
    """A set of points, prepared for computing distances from many rows.

    Distances are computed as ||x||^2 + ||p||^2 - 2 x'p. That loses digits if the data lie far from the origin, so the
    mean of the points is subtracted from the points and from the rows first.

    >>> DistancesTo(np.array([[0.0], [4.0]])).squared(np.array([[1.0]])).tolist()
    [[1.0, 9.0]]
    """

    def __init__(self, points: NDArray[Any]) -> None:
        self._centre = points.mean(axis=0, dtype=np.float64)
        self._points = points - self._centre
        self._norms = np.einsum("ij,ij->i", self._points, self._points)

    def squared(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Squared distances of shape (rows of X, number of points); never negative."""
        X = X - self._centre
        distances = X @ (-2.0 * self._points.T)
        distances += np.einsum("ij,ij->i", X, X)[:, None]
        distances += self._norms
        return np.maximum(distances, 0.0, out=distances)
