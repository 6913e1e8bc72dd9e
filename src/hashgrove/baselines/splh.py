"""Sequential projection learning for hashing (Wang, Kumar and Chang, ICML 2010), the semi-supervised version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, eigsh

from hashgrove.encoders import Linear
from hashgrove.hasher import SupervisedHasher
from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.runtime.parameters import Constraint, Integer, Number
from hashgrove.runtime.threads import chunks
from hashgrove.supervision import Supervision

__all__ = ["SPLH"]

ROWS_PER_CHUNK = 8192
FEW_FEATURES = 64  # where all eigenvectors at once are as fast
TOLERANCE = 1e-8  # of the eigenvalue


class SPLH(SupervisedHasher):
    """Hyperplanes through the mean, each learned to correct the pairs that the ones before it got wrong.

    Direction w_k is the first eigenvector of X_l S_k X_l' + eta C_k: fit to the labelled pairs plus variance of all
    points. Pairs whose projections contradict their label gain weight, S_k+1 = S_k - alpha T(p p', S_k) with
    p = X_l' w_k, and the variance along w_k is taken out of C.

    Parameters
    ----------
    n_bits : int
    n_labelled : int or None, default=1000
        Training points whose labels are used, drawn at random; None means all. A matrix of n_labelled x n_labelled
        is kept.
    eta : float, default=0.01
        Weight of the variance of all points against the fit to the pairs, both as means over points and pairs.
    alpha : float, default=0.5
        Step of the update of the pair weights.
    min_shared : int, default=2
        With a tag matrix: points that share this many tags are similar.
    random_state : int, RandomState or None
        Seed of the labelled sample.

    Attributes
    ----------
    encoder_ : Linear
    violated_ : ndarray of shape (n_bits,)
        Share of the labelled pairs that the bits so far contradict: similar with a negative sum of products of
        bits, or dissimilar with a positive one.

    Notes
    -----
    Deviations: both terms are means, not sums, and p is scaled to mean square 1, so that ``eta`` and ``alpha`` do not
    depend on the number of points and the unit of the features. The variance alone is deflated, not the labelled
    points, as in the authors' unsupervised code; so there may be more bits than features.

    References
    ----------
    J. Wang, S. Kumar and S.-F. Chang, "Sequential projection learning for hashing with compact codes", ICML 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = SPLH(16, n_labelled=500, random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.score(X[1000:], y[1000:]) > 0.4
    True
    """

    violated_: NDArray[np.float64]

    semi_supervised: ClassVar[bool] = True
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_labelled": Integer(1, or_none=True),
        "eta": Number(low=0),
        "alpha": Number(low=0),
        "min_shared": Integer(1),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_labelled: int | None = 1000,
        eta: float = 0.01,
        alpha: float = 0.5,
        min_shared: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_labelled = n_labelled
        self.eta = eta
        self.alpha = alpha
        self.min_shared = min_shared
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Linear:
        rows = supervision.draw(self.n_labelled, rng)
        mean = X.mean(axis=0, dtype=np.float64)
        C = Residual(X, mean)
        labelled = X[rows] - mean
        labels = supervision.signs(rows, rows)
        S = labels.copy()
        n_pairs = np.count_nonzero(labels)
        agreement = np.zeros_like(S)
        weights = np.empty((self.n_bits, X.shape[1]))
        violated = np.empty(self.n_bits)

        def times(v: NDArray[np.float64]) -> NDArray[np.float64]:
            """The matrix of the next direction, which changes with S and C, times a vector."""
            return labelled.T @ (S @ (labelled @ v)) / n_pairs + self.eta * C.times(v)

        for k in range(self.n_bits):
            weights[k] = w = top_eigenvector(times, X.shape[1], rng)
            p = labelled @ w
            bit = np.where(p > 0, 1.0, -1.0)
            agreement += np.outer(bit, bit)
            violated[k] = np.count_nonzero(agreement * labels < 0) / n_pairs
            S -= self.alpha * contradictions(p / max(np.sqrt(np.mean(p**2)), np.finfo(float).tiny), S)
            C.remove(w)
        self.violated_ = violated
        return Linear(weights=weights, bias=-weights @ mean)


def contradictions(p: NDArray[np.float64], S: NDArray[np.float64]) -> NDArray[np.float64]:
    """T(p p', S): p_i p_j where its sign is not that of S_ij, 0 elsewhere.

    >>> contradictions(np.array([1.0, -2.0]), np.array([[1.0, 1.0], [1.0, 1.0]])).tolist()
    [[0.0, -2.0], [-2.0, 0.0]]
    """
    products = np.outer(p, p)
    products[products * S >= 0] = 0.0
    return products


class Residual:
    """Covariance of the rows, less the directions that were removed from the rows.

    As a matrix where there are fewer features than rows, and otherwise as products with the rows.

    >>> residual = Residual(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), np.zeros(2))
    >>> residual.remove(np.array([1.0, 0.0]))
    >>> residual.times(np.array([1.0, 1.0])).tolist()
    [0.0, 0.5]
    """

    def __init__(self, X: NDArray[Any], mean: NDArray[np.float64]) -> None:
        self._removed: list[NDArray[np.float64]] = []
        self._rows = X - mean if len(X) < X.shape[1] else None
        self._n_rows, self._covariance = len(X), np.zeros((0, 0))
        if self._rows is None:
            self._covariance = np.zeros((X.shape[1], X.shape[1]))
            for start, stop in chunks(len(X), ROWS_PER_CHUNK):
                centred = X[start:stop] - mean
                self._covariance += centred.T @ centred / len(X)

    def times(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        """C v = P' X'X P v / n, with P the product of the I - w w' of the directions."""
        for w in reversed(self._removed):
            v = v - (w @ v) * w
        v = self._covariance @ v if self._rows is None else self._rows.T @ (self._rows @ v) / self._n_rows
        for w in self._removed:
            v = v - (w @ v) * w
        return v

    def remove(self, w: NDArray[np.float64]) -> None:
        """Take the unit direction ``w`` out of the rows."""
        self._removed.append(w)


def top_eigenvector(
    times: Callable[[NDArray[np.float64]], NDArray[np.float64]], size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The unit eigenvector of the largest eigenvalue of a symmetric matrix that is known by its products.

    >>> top_eigenvector(lambda v: np.array([1.0, 3.0, 2.0]) * v, 3, np.random.default_rng(0)).round(6).tolist()
    [0.0, 1.0, 0.0]
    """
    if size < FEW_FEATURES:
        w = eigh(np.stack([times(unit) for unit in np.eye(size)]))[1][:, -1]
    else:
        start = rng.standard_normal(size)
        if not times(start).any():  # nothing varies, and ARPACK would refuse
            return start / np.linalg.norm(start)
        matrix = LinearOperator((size, size), matvec=times, dtype=np.float64)
        w = eigsh(matrix, k=1, which="LA", v0=start, tol=TOLERANCE)[1][:, 0]
    return with_fixed_signs(w)
