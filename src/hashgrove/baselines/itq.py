"""Iterative quantisation (Gong and Lazebnik, CVPR 2011): PCA, then the rotation nearest to signs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Linear
from hashgrove.hasher import Hasher
from hashgrove.numerics.principal import principal_directions
from hashgrove.numerics.signs import signs
from hashgrove.runtime.parameters import Constraint, Integer

__all__ = ["ITQ", "quantising_rotation"]


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


def quantising_rotation(
    projected: NDArray[np.float64], *, n_bits: int, n_iter: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A rotation R that brings the rows v close to their signs, and the mean of ||sign(v R) - v R||^2 per iteration.

    If the data have fewer dimensions than bits, they are rotated within ``n_bits`` dimensions as if they were padded
    with zeros: R has shape (n_dimensions, n_bits), and R R' is the identity.

    >>> v = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> R, errors = quantising_rotation(v, n_bits=2, n_iter=20, rng=np.random.default_rng(0))
    >>> np.abs(v @ R).round(3)[0].tolist(), round(float(errors[-1]), 3)
    ([0.707, 0.707], 0.172)
    """
    rotation = np.linalg.qr(rng.standard_normal((n_bits, n_bits)))[0][: projected.shape[1]]
    errors = np.empty(n_iter)
    rotated = projected @ rotation
    for iteration in range(n_iter):
        left, _, right = np.linalg.svd(projected.T @ signs(rotated), full_matrices=False)
        rotation = left @ right
        rotated = projected @ rotation
        errors[iteration] = np.square(signs(rotated) - rotated).sum() / len(projected)
    return rotation, errors
