"""Gaussian features around anchors, as kernel methods have them: random training points, kernel values, centred.

The features of a row are exp(-gamma ||x - a_q||^2) less their mean over the training rows, so that a hyperplane through
their origin splits the data about evenly (KSH, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.numerics.distances import DistancesTo
from hashgrove.runtime.threads import chunks

__all__ = ["GaussianFeatures"]

ROWS_PER_CHUNK = 2048
GAMMA_ROWS = 2000  # rows whose distances to the anchors give gamma


@dataclass(frozen=True, eq=False)
class GaussianFeatures:
    """Gaussian features of rows: anchors, the width of the kernel, and the mean of the features.

    Attributes
    ----------
    points : float64 array of shape (n_anchors, n_features)
    gamma : float
    mean : float64 array of shape (n_anchors,)

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
        """Draw at most ``n_anchors`` rows; gamma None is sharpness / (mean squared distance), 1/2 as in KSH's code."""
        rows = np.sort(rng.choice(len(X), size=min(n_anchors, len(X)), replace=False))
        points = X[rows].astype(np.float64)
        if gamma is None:
            some = np.sort(rng.choice(len(X), size=min(GAMMA_ROWS, len(X)), replace=False))
            scale = float(DistancesTo(points).squared(X[some]).mean())
            gamma = sharpness / scale if scale > 0 else 1.0
        total, ready = np.zeros(len(points)), DistancesTo(points)
        for start, stop in chunks(len(X), ROWS_PER_CHUNK):
            total += np.exp(-gamma * ready.squared(X[start:stop])).sum(axis=0)
        return cls(points, float(gamma), total / len(X))

    def features(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Centred kernel values, shape (n, n_anchors)."""
        out, ready = np.empty((len(X), len(self.points))), DistancesTo(self.points)
        for start, stop in chunks(len(X), ROWS_PER_CHUNK):
            out[start:stop] = np.exp(-self.gamma * ready.squared(X[start:stop]))
        out -= self.mean
        return out
