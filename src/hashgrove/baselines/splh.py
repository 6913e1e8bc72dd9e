"""Sequential projection learning for hashing (Wang, Kumar and Chang, ICML 2010), the semi-supervised version."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from hashgrove.baselines.parameters import check_counts, check_numbers
from hashgrove.baselines.supervision import SupervisedHasher
from hashgrove.blas import single_threaded_blas
from hashgrove.encoders import Linear
from hashgrove.jit import chunks

__all__ = ["SPLH"]

ROWS_PER_CHUNK = 8192


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

    @single_threaded_blas()
    def fit(self, X: ArrayLike, y: Any = None, *, affinity: Any = None) -> Self:
        """Learn from class labels or a tag matrix ``y``, or from pairs; see `FastHash.fit` for their forms."""
        check_counts(self, or_none=("n_labelled",))
        check_numbers(self, zero=("eta", "alpha"))
        X, target, rng = self._start(X, y, affinity)
        rows = target.draw(self.n_labelled, rng)
        mean, C = _covariance(X)
        labelled = X[rows] - mean
        labels = target.block(rows, rows)
        S = labels.copy()
        n_pairs = np.count_nonzero(labels)
        agreement = np.zeros_like(S)
        weights = np.empty((self.n_bits, X.shape[1]))
        violated = np.empty(self.n_bits)
        for k in range(self.n_bits):
            M = labelled.T @ (S @ labelled) / n_pairs + self.eta * C
            w = eigh(M, subset_by_index=(len(M) - 1, len(M) - 1))[1][:, 0]
            weights[k] = w = w * np.sign(w[np.abs(w).argmax()])  # LAPACK leaves the sign open
            p = labelled @ w
            bit = np.where(p > 0, 1.0, -1.0)
            agreement += np.outer(bit, bit)
            violated[k] = np.count_nonzero(agreement * labels < 0) / n_pairs
            S -= self.alpha * contradictions(p / max(np.sqrt(np.mean(p**2)), np.finfo(float).tiny), S)
            along = C @ w
            C = C - np.outer(along, w) - np.outer(w, along) + (w @ along) * np.outer(w, w)
        self.encoder_ = Linear(weights=weights, bias=-weights @ mean)
        self.violated_ = violated
        return self


def contradictions(p: NDArray[np.float64], S: NDArray[np.float64]) -> NDArray[np.float64]:
    """T(p p', S): p_i p_j where its sign is not that of S_ij, 0 elsewhere.

    >>> contradictions(np.array([1.0, -2.0]), np.array([[1.0, 1.0], [1.0, 1.0]])).tolist()
    [[0.0, -2.0], [-2.0, 0.0]]
    """
    products = np.outer(p, p)
    products[products * S >= 0] = 0.0
    return products


def _covariance(X: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean = X.mean(axis=0, dtype=np.float64)
    total = np.zeros((X.shape[1], X.shape[1]))
    for start, stop in chunks(len(X), ROWS_PER_CHUNK):
        centred = X[start:stop] - mean
        total += centred.T @ centred
    return mean, total / len(X)
