"""Sign thresholds: one bit per dimension, which is how embeddings are binarised in practice."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Linear
from hashgrove.hasher import Hasher
from hashgrove.numerics.principal import principal_directions
from hashgrove.runtime.parameters import Constraint, Flag, OneOf

__all__ = ["SignThreshold"]

MEDIAN_COLUMNS = 64  # number of columns whose medians are computed at a time


class SignThreshold(Hasher):
    """Bit j is one if dimension j is above a threshold, for the first ``n_bits`` dimensions.

    Parameters
    ----------
    n_bits : int
        At most the number of features. If it is smaller, only the first dimensions are used. That suits ``pca`` and
        embeddings whose first dimensions matter most (Matryoshka embeddings).
    threshold : {"mean", "median", "zero"}
        Threshold of each dimension: its mean or median over the training rows, or zero, for embeddings that are centred
        already.
    pca : bool
        Whether to use the principal components, largest first, instead of the dimensions themselves (known as PCAH).
    random_state : int, RandomState or None
        Not used, since nothing is random here. All hashers have this parameter.

    Attributes
    ----------
    encoder_ : Linear

    Notes
    -----
    Fitting takes O(n n_bits), or O(n d^2 + d^3) with ``pca``. Encoding takes O(n_bits d) per row.

    Examples
    --------
    >>> SignThreshold(2, threshold="zero").fit([[0.5, -0.1], [-2.0, -0.3]]).transform([[0.5, -0.1]]).tolist()
    [[1]]
    """

    seeded: ClassVar[bool] = False

    constraints: ClassVar[dict[str, Constraint]] = {
        "threshold": OneOf(("mean", "median", "zero")),
        "pca": Flag(),
    }

    def __init__(
        self, n_bits: int = 64, *, threshold: str = "mean", pca: bool = False, random_state: Any = None
    ) -> None:
        self.n_bits = n_bits
        self.threshold = threshold
        self.pca = pca
        self.random_state = random_state

    def max_bits(self, *, n_samples: int, n_features: int) -> int:
        """One per dimension."""
        return n_features

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> Linear:
        """Choose the dimensions or principal components, and compute their thresholds."""
        n_bits = self.n_bits
        weights = principal_directions(X, n_bits)[1] if self.pca else np.eye(n_bits, X.shape[1])
        return Linear(weights=weights, bias=-self._thresholds(X, weights))

    def _thresholds(self, X: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.threshold == "zero":
            return np.zeros(len(weights))
        if self.threshold == "mean":
            return weights @ X.mean(axis=0, dtype=np.float64)
        columns = [weights[start : start + MEDIAN_COLUMNS] for start in range(0, len(weights), MEDIAN_COLUMNS)]
        return np.concatenate(
            [np.median(Linear(weights=part, bias=np.zeros(len(part))).scores(X), axis=0) for part in columns]
        )
