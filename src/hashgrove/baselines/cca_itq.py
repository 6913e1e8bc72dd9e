"""CCA + ITQ (Gong and Lazebnik, CVPR 2011; TPAMI 2013): directions correlated with the labels, then ITQ's rotation."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Linear
from hashgrove.hasher import SupervisedHasher
from hashgrove.numerics.canonical import linear_directions
from hashgrove.numerics.rotation import quantising_rotation
from hashgrove.runtime.parameters import Constraint, Integer, Number
from hashgrove.supervision import Supervision

__all__ = ["CCAITQ"]


class CCAITQ(SupervisedHasher):
    """Canonical directions of features and labels, scaled by their correlations, then rotated towards signs.

    Parameters
    ----------
    n_bits : int
        Any number. If the labels give fewer directions than bits (c classes give c - 1), the rotation spreads them over
        all bits, as if the data were padded with zeros.
    n_iter : int, default=50
        Number of iterations that fit the rotation.
    regularisation : float, default=1e-4
        Added to the diagonal of both covariance matrices, in units of their mean variance.
    random_state : int, RandomState or None
        Seed of the first rotation.

    Attributes
    ----------
    encoder_ : Linear
    correlations_ : ndarray
        Canonical correlations of the directions used, largest first.
    quantisation_error_ : ndarray of shape (n_iter,)
        Mean over the rows v of ||sign(v R) - v R||^2 after each iteration. It never increases.

    Notes
    -----
    Deviation: the authors add 1e-4 to the covariances whatever their scale, so that their result depends on the unit of
    the features.

    References
    ----------
    Y. Gong, S. Lazebnik, A. Gordo and F. Perronnin, "Iterative quantization: a Procrustean approach to learning
    binary codes for large-scale image retrieval", TPAMI 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = CCAITQ(16, random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.correlations_.shape, hasher.score(X[1000:], y[1000:]) > 0.6
    ((9,), True)
    """

    correlations_: NDArray[np.float64]
    quantisation_error_: NDArray[np.float64]

    needs_labels: ClassVar[bool] = True
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_iter": Integer(1),
        "regularisation": Number(above=0),
    }

    def __init__(
        self, n_bits: int = 64, *, n_iter: int = 50, regularisation: float = 1e-4, random_state: Any = None
    ) -> None:
        self.n_bits = n_bits
        self.n_iter = n_iter
        self.regularisation = regularisation
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Linear:
        """Find the canonical directions, scale them by their correlations and rotate them towards signs."""
        mean, directions, correlations = linear_directions(
            X, supervision.indicator(), n_directions=self.n_bits, regularisation=self.regularisation
        )
        directions *= correlations[:, None]
        projected = Linear(weights=directions, bias=-directions @ mean).scores(X)
        rotation, self.quantisation_error_ = quantising_rotation(
            projected, n_bits=self.n_bits, n_iter=self.n_iter, rng=rng
        )
        weights = rotation.T @ directions
        self.correlations_ = correlations
        return Linear(weights=weights, bias=-weights @ mean)
