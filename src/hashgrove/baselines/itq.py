"""Iterative quantisation (Gong and Lazebnik, CVPR 2011): PCA, then the rotation nearest to signs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Linear
from hashgrove.hasher import Hasher
from hashgrove.numerics.principal import principal_directions
from hashgrove.numerics.rotation import quantising_rotation
from hashgrove.runtime.parameters import Constraint, Integer

__all__ = ["ITQ"]


class ITQ(Hasher):
    """PCA to ``n_bits`` dimensions, then a rotation fitted by alternating between signs and orthogonal Procrustes.

    Parameters
    ----------
    n_bits : int
        At most the number of features, which is the number of principal directions.
    n_iter : int
        Number of iterations; 50 in the paper.
    random_state : int, RandomState or None
        Seed of the first rotation.

    Attributes
    ----------
    encoder_ : Linear
    quantisation_error_ : ndarray of shape (n_iter,)
        Mean over the rows v of ||sign(v R) - v R||^2 after each iteration. It never increases.

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

    constraints: ClassVar[dict[str, Constraint]] = {
        "n_iter": Integer(1),
    }

    def __init__(self, n_bits: int = 64, *, n_iter: int = 50, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.n_iter = n_iter
        self.random_state = random_state

    def max_bits(self, *, n_samples: int, n_features: int) -> int:
        """As many as there are principal directions: one per feature."""
        return n_features

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> Linear:
        """Find the principal directions and rotate them towards signs."""
        mean, directions = principal_directions(X, self.n_bits)
        projected = Linear(weights=directions, bias=-directions @ mean).scores(X)
        rotation, self.quantisation_error_ = quantising_rotation(
            projected, n_bits=self.n_bits, n_iter=self.n_iter, rng=rng
        )
        weights = rotation.T @ directions
        return Linear(weights=weights, bias=-weights @ mean)
