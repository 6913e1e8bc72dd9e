"""Squared distances from feature rows to a fixed set of points, by one matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DistancesTo"]


class DistancesTo:
    """A set of points, made ready for distances to many rows.

    ||x||^2 + ||p||^2 - 2 xp loses digits where the data lie far from the origin, so both sides are taken from the
    mean of the points.

    >>> DistancesTo(np.array([[0.0], [4.0]])).squared(np.array([[1.0]])).tolist()
    [[1.0, 9.0]]
    """

    def __init__(self, points: NDArray[Any]) -> None:
        self._centre = points.mean(axis=0, dtype=np.float64)
        self._points = points - self._centre
        self._norms = np.einsum("ij,ij->i", self._points, self._points)

    def squared(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Shape (rows of X, points); never negative."""
        X = X - self._centre
        distances = X @ (-2.0 * self._points.T)
        distances += np.einsum("ij,ij->i", X, X)[:, None]
        distances += self._norms
        return np.maximum(distances, 0.0, out=distances)
