"""Gaussian features around anchors, which are random training points.

Feature q of a row x is exp(-gamma ||x - a_q||^2) minus the mean of this value over the training rows, so that a
hyperplane through the origin splits the data about evenly (KSH, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.sampling import sample_rows
from hashgrove.runtime.threads import chunks

__all__ = ["GaussianFeatures"]

ROWS_PER_CHUNK = 2048
GAMMA_ROWS = 2000  # number of rows whose distances to the anchors determine gamma


@dataclass(frozen=True, eq=False)
class GaussianFeatures:
    """Centred Gaussian features of rows.

    Attributes
    ----------
    points : float64 array of shape (n_anchors, n_features)
        The anchors.
    gamma : float
        Width of the kernel exp(-gamma d^2).
    mean : float64 array of shape (n_anchors,)
        Mean of the kernel values over the training rows.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> anchors = GaussianFeatures.draw(X, n_anchors=2, gamma=1.0, rng=np.random.default_rng(0))
    >>> anchors.features(X).mean(axis=0).round(12).tolist()
    [0.0, 0.0]
    """

    points: NDArray[np.float64]
    gamma: float
    mean: NDArray[np.float64]

    @classmethod
    def draw(
        cls,
        X: NDArray[Any],
        *,
        n_anchors: int,
        gamma: float | None,
        rng: np.random.Generator,
        sharpness: float = 0.5,
    ) -> GaussianFeatures:
        """Draw ``n_anchors`` random rows as anchors, or take all rows if there are fewer.

        If ``gamma`` is None, it becomes sharpness / (mean squared distance to an anchor). The default sharpness of 1/2
        is that of KSH's code.
        """
        points = X[sample_rows(len(X), n_anchors, rng)].astype(np.float64)
        distances = DistancesTo(points)
        if gamma is None:
            scale = float(distances.squared(X[sample_rows(len(X), GAMMA_ROWS, rng)]).mean())
            gamma = sharpness / scale if scale > 0 else 1.0
        total = np.zeros(len(points))
        for start, stop in chunks(len(X), ROWS_PER_CHUNK):
            total += np.exp(-gamma * distances.squared(X[start:stop])).sum(axis=0)
        return cls(points, float(gamma), total / len(X))

    def features(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """The features of the rows of ``X``, shape (n, n_anchors)."""
        out, distances = np.empty((len(X), len(self.points))), DistancesTo(self.points)
        for start, stop in chunks(len(X), ROWS_PER_CHUNK):
            out[start:stop] = np.exp(-self.gamma * distances.squared(X[start:stop]))
        out -= self.mean
        return out
