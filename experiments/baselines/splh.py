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
from hashgrove.numerics.principal import scatter_matrix
from hashgrove.numerics.signs import signs
from hashgrove.runtime.parameters import Constraint, Integer, Number, OneOf
from hashgrove.supervision import Supervision

__all__ = ["SPLH"]

FEW_FEATURES = 64  # below this many, computing all eigenvectors is as fast as computing one
LARGEST_EXPONENT = 300  # of two: products of larger numbers, summed over rows, may not be finite
TOLERANCE = 1e-8  # relative accuracy of the eigenvalue


class SPLH(SupervisedHasher):
    """Hyperplanes through the mean; each one corrects pairs that the hyperplanes before it got wrong.

    Direction w_k is the first eigenvector of X_l S_k X_l' + eta C_k: the fit to the labelled pairs plus the variance of
    all points. Pairs whose projections contradict their label gain weight, S_k+1 = S_k - alpha T(p p', S_k) with
    p = X_l' w_k, and the variance along w_k is removed from C.

    Parameters
    ----------
    n_bits : int
    n_labelled : int or None, default=1000
        Number of random training points whose labels are used; None means all. A matrix of shape
        (n_labelled, n_labelled) is kept.
    eta : float or None, default=None
        Weight of the variance (a mean over all points) relative to the fit to the labels (a mean over pairs); with
        ``update="author"``, weight of the fit (a sum over pairs, divided by the number of labelled points) relative to
        the variance. None means 0.01, or 0.2 with ``update="author"``.
    alpha : float, default=0.5
        Step size of the update of the pair weights, with ``update="scaled"``.
    update : {"scaled", "author"}, default="scaled"
        How pairs gain weight. ``"scaled"``: by ``alpha``, with p scaled to mean square 1. ``"author"``: as in the
        author's code, by T(p p', S_k) itself, with features that are divided by their mean norm,
        rounded to a power of two.
    min_shared : int, default=2
        With tags: points that share at least this many tags are similar.
    random_state : int, RandomState or None
        Seed of the labelled sample.

    Attributes
    ----------
    encoder_ : Linear
    violated_ : ndarray of shape (n_bits,)
        Share of the labelled pairs that the bits up to this one contradict: similar pairs that differ in more than half
        of these bits, and dissimilar pairs that differ in less than half.

    Notes
    -----
    Deviations: both terms are means, not sums, and p is scaled to mean square 1, so that ``eta`` and ``alpha`` do not
    depend on the number of points and the unit of the features. Directions are removed from the variance only, not from
    the labelled points, as in the authors' unsupervised code. So there may be more bits than features.

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
        "eta": Number(low=0, or_none=True),
        "alpha": Number(low=0),
        "update": OneOf(("scaled", "author")),
        "min_shared": Integer(1),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_labelled: int | None = 1000,
        eta: float | None = None,
        alpha: float = 0.5,
        update: str = "scaled",
        min_shared: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_labelled = n_labelled
        self.eta = eta
        self.alpha = alpha
        self.update = update
        self.min_shared = min_shared
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Linear:
        """Learn one direction after the other, and give more weight to the pairs that it gets wrong."""
        rows = supervision.draw(self.n_labelled, rng)
        by_author = self.update == "author"
        eta = (0.2 if by_author else 0.01) if self.eta is None else self.eta
        unit = _unit(X, by_author)
        X = X if unit == 1 else X / unit
        mean = X.mean(axis=0, dtype=np.float64)
        C = ResidualCovariance(X, mean)
        labelled = X[rows] - mean
        labels = supervision.signs(rows, rows)
        S = labels.copy()
        n_pairs = np.count_nonzero(labels)
        agreement = np.zeros_like(S)
        weights = np.empty((self.n_bits, X.shape[1]))
        violated = np.empty(self.n_bits)

        def times(v: NDArray[np.float64]) -> NDArray[np.float64]:
            """Multiply the matrix of the next direction, which changes with S and C, by a vector."""
            fit = labelled.T @ (S @ (labelled @ v))
            return C.times(v) + eta / len(rows) * fit if by_author else fit / n_pairs + eta * C.times(v)

        for k in range(self.n_bits):
            weights[k] = w = top_eigenvector(times, X.shape[1], rng)
            p = labelled @ w
            bit = signs(p)
            agreement += np.outer(bit, bit)
            violated[k] = np.count_nonzero(agreement * labels < 0) / n_pairs
            if by_author:
                S -= contradictions(p, S)
            else:
                S -= self.alpha * contradictions(p / max(np.sqrt(np.mean(p**2)), np.finfo(float).tiny), S)
            C.remove(w)
        self.violated_ = violated
        return Linear(weights=weights, bias=-weights @ mean * unit)


def _unit(X: NDArray[Any], by_author: bool) -> float:
    """The divisor of rows: their mean norm for the author's update, else 1 unless squares would not be finite.

    It is a power of two, so that dividing by it changes no digit.
    """
    largest = max(abs(float(X.min())), abs(float(X.max())))
    exponent = np.frexp(largest)[1] if largest > 0 else 0
    if by_author:
        scaled = X / 2.0**exponent
        norm = float(np.linalg.norm(scaled - scaled.mean(axis=0), axis=1).mean())
        return float(2.0 ** (exponent + round(np.log2(norm)))) if norm > 0 else 1.0
    return float(2.0**exponent) if abs(exponent) > LARGEST_EXPONENT else 1.0


def contradictions(p: NDArray[np.float64], S: NDArray[np.float64]) -> NDArray[np.float64]:
    """T(p p', S): p_i p_j where its sign is opposite to that of S_ij, and 0 elsewhere.

    >>> contradictions(np.array([1.0, -2.0]), np.array([[1.0, 1.0], [1.0, 1.0]])).tolist()
    [[0.0, -2.0], [-2.0, 0.0]]
    """
    products = np.outer(p, p)
    products[products * S >= 0] = 0.0
    return products


class ResidualCovariance:
    """The covariance matrix C of rows from which some directions have been removed.

    It is stored as a matrix if there are at most as many features as rows, and otherwise as the rows themselves.

    >>> residual = ResidualCovariance(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), np.zeros(2))
    >>> residual.remove(np.array([1.0, 0.0]))
    >>> residual.times(np.array([1.0, 1.0])).tolist()
    [0.0, 0.5]
    """

    def __init__(self, X: NDArray[Any], mean: NDArray[np.float64]) -> None:
        self._removed: list[NDArray[np.float64]] = []
        self._rows = X - mean if len(X) < X.shape[1] else None
        self._n_rows = len(X)
        self._covariance = scatter_matrix(X, mean) / len(X) if self._rows is None else np.zeros((0, 0))

    def times(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        """C v = P' X'X P v / n, where P is the product of I - w w' over the removed directions w."""
        for w in reversed(self._removed):
            v = v - (w @ v) * w
        v = self._covariance @ v if self._rows is None else self._rows.T @ (self._rows @ v) / self._n_rows
        for w in self._removed:
            v = v - (w @ v) * w
        return v

    def remove(self, w: NDArray[np.float64]) -> None:
        """Remove the unit direction ``w`` from the rows."""
        self._removed.append(w)


def top_eigenvector(
    times: Callable[[NDArray[np.float64]], NDArray[np.float64]], size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The unit eigenvector of the largest eigenvalue of a symmetric matrix; ``times`` multiplies it by a vector.

    >>> top_eigenvector(lambda v: np.array([1.0, 3.0, 2.0]) * v, 3, np.random.default_rng(0)).round(6).tolist()
    [0.0, 1.0, 0.0]
    """
    if size < FEW_FEATURES:
        w = eigh(np.stack([times(unit) for unit in np.eye(size)]))[1][:, -1]
    else:
        start = rng.standard_normal(size)
        if not times(start).any():  # the matrix is zero, which ARPACK does not accept
            return start / np.linalg.norm(start)
        matrix = LinearOperator((size, size), matvec=times, dtype=np.float64)
        w = eigsh(matrix, k=1, which="LA", v0=start, tol=TOLERANCE)[1][:, 0]
    return with_fixed_signs(w)
