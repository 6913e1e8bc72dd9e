"""Iterative quantisation (Gong and Lazebnik, CVPR 2011): PCA, then the rotation nearest to signs."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.baselines.parameters import check_integer
from hashgrove.baselines.pca import principal_directions
from hashgrove.encoders import Linear
from hashgrove.hasher import Hasher

__all__ = ["ITQ"]


class ITQ(Hasher):
    """PCA to ``n_bits`` dimensions and a rotation fitted by alternating signs and orthogonal Procrustes.

    Parameters
    ----------
    n_bits : int
        At most the number of features: there are no more principal directions than that.
    n_iter : int
        Iterations; the paper has 50.
    random_state : int, RandomState or None
        Seed of the first rotation.

    Attributes
    ----------
    encoder_ : Linear
    quantisation_error_ : ndarray of shape (n_iter,)
        Mean over rows of ||sign(v R) - v R||^2 after each iteration; it never rises.

    References
    ----------
    Y. Gong and S. Lazebnik, "Iterative quantization: a Procrustean approach to learning binary codes", CVPR
    2011.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> hasher = ITQ(4, n_iter=10, random_state=0).fit(X)
    >>> hasher.transform(X).shape, hasher.quantisation_error_.shape
    ((50, 1), (10,))
    """

    quantisation_error_: NDArray[np.float64]

    def __init__(self, n_bits: int = 64, *, n_iter: int = 50, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.n_iter = n_iter
        self.random_state = random_state

    def max_bits(self, *, n_samples: int, n_features: int) -> int:
        """There are no more principal directions than features."""
        return n_features

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit the projection and the rotation to ``X``; ``y`` is ignored."""
        X = self._check_X(X, reset=True)
        self._check_n_bits(X)
        check_integer(self, "n_iter")
        rng = np.random.default_rng(self._seed())
        mean, directions = principal_directions(X, self.n_bits)
        projected = Linear(weights=directions, bias=-directions @ mean).scores(X)
        rotation = np.linalg.qr(rng.standard_normal((self.n_bits, self.n_bits)))[0]
        errors = np.empty(self.n_iter)
        rotated = projected @ rotation
        for iteration in range(self.n_iter):
            left, _, right = np.linalg.svd(projected.T @ _signs(rotated))
            rotation = left @ right
            rotated = projected @ rotation
            errors[iteration] = np.square(_signs(rotated) - rotated).sum() / len(X)
        weights = rotation.T @ directions
        self.encoder_ = Linear(weights=weights, bias=-weights @ mean)
        self.quantisation_error_ = errors
        return self


def _signs(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(scores > 0, 1.0, -1.0)
