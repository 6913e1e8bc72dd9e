"""Column sampling based discrete supervised hashing (Kang, Li and Zhou, AAAI 2016)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Kernel, Linear
from hashgrove.hasher import SupervisedHasher
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.numerics.ridge import Ridge
from hashgrove.runtime.parameters import Constraint, Integer, Number
from hashgrove.supervision import ClassLabels, Supervision

__all__ = ["COSDISH"]

COLUMNS_PER_CLASS = 5


class COSDISH(SupervisedHasher):
    """Codes of all points fitted to sampled columns of the pairwise label matrix, then hash functions by regression.

    In each round some columns (points) are drawn. Their codes are updated bit by bit, each bit a binary quadratic
    problem; then the codes of all other points in closed form, the sign of S times the codes of the columns, which
    minimises the L1 error; and again.

    Parameters
    ----------
    n_bits : int
    n_columns : int or None
        Columns of a round; None is n_bits, the authors' choice, and five a class at least.
    n_rounds, n_alternations : int, default=10, 3
        Draws of columns, and alternations in each.
    n_anchors : int or None, default=None
        None: linear hash functions (ridge regression on standardised features), as in the paper. A number: ridge
        regression on Gaussian features of that many anchors.
    gamma : float or None
        With anchors: width exp(-gamma d^2); None is 1 / (2 mean squared distance to an anchor).
    ridge : float, default=1
    min_shared : int, default=2
        With a tag matrix: points that share this many tags are similar.
    random_state : int, RandomState or None
        Seed of the first codes, the columns and the anchors.

    Attributes
    ----------
    encoder_ : Linear or Kernel
    codes_ : ndarray of shape (n, n_bits)
        The codes, -1 and +1, that the hash functions were fitted to.
    objective_ : ndarray of shape (n_rounds, n_alternations, 2)
        Mean squared error of the columns (q S_ij - inner product of codes)^2 / q^2 before and after the update of
        the codes of the columns: the second is never larger.

    Notes
    -----
    Dissimilar entries of S are not -1 but minus the number of similar ones over the number of dissimilar ones among
    the columns (a public copy of the authors' code prints that ratio without the minus). Deviations: the paper turns
    the quadratic problem into a clustering problem and solves that by a 2-approximation; here it is a one-flip descent
    from the present bit and from the greedy sign, so the error of the step cannot rise. Each bit is fitted to what all
    other bits leave, not to what the bits before it leave. A class without a column in the last round has no code of
    its own, all such classes share one: with more classes than bits the authors' n_bits columns are too few.
    The paper's second hash function, boosted trees, is not offered.

    References
    ----------
    W.-C. Kang, W.-J. Li and Z.-H. Zhou, "Column sampling based discrete supervised hashing", AAAI 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = COSDISH(16, random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.score(X[1000:], y[1000:]) > 0.6
    True
    """

    codes_: NDArray[np.int8]
    objective_: NDArray[np.float64]

    constraints: ClassVar[dict[str, Constraint]] = {
        "n_columns": Integer(1, or_none=True),
        "n_rounds": Integer(1),
        "n_alternations": Integer(1),
        "n_anchors": Integer(1, or_none=True),
        "gamma": Number(above=0, or_none=True),
        "ridge": Number(above=0),
        "min_shared": Integer(1),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_columns: int | None = None,
        n_rounds: int = 10,
        n_alternations: int = 3,
        n_anchors: int | None = None,
        gamma: float | None = None,
        ridge: float = 1.0,
        min_shared: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_columns = n_columns
        self.n_rounds = n_rounds
        self.n_alternations = n_alternations
        self.n_anchors = n_anchors
        self.gamma = gamma
        self.ridge = ridge
        self.min_shared = min_shared
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Linear | Kernel:
        B = np.where(rng.standard_normal((len(X), self.n_bits)) > 0, 1.0, -1.0)
        n_classes = supervision.n_classes if isinstance(supervision, ClassLabels) else 0
        n_columns = self.n_columns or max(self.n_bits, COLUMNS_PER_CLASS * n_classes)
        objective = np.empty((self.n_rounds, self.n_alternations, 2))
        for round_number in range(self.n_rounds):
            columns = supervision.draw(n_columns, rng)
            S = balanced_columns(supervision, columns)
            others = np.ones(len(X), dtype=bool)
            others[columns] = False
            for alternation in range(self.n_alternations):
                objective[round_number, alternation, 0] = _error(S, B, columns)
                B[columns] = update_columns(S[columns], S[others], B[columns], B[others])
                objective[round_number, alternation, 1] = _error(S, B, columns)
                pull = S[others] @ B[columns]
                B[others] = np.where(pull > 0, 1.0, np.where(pull < 0, -1.0, B[others]))
        self.codes_ = B.astype(np.int8)
        self.objective_ = objective
        if self.n_anchors is None:
            mean, spread = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
            spread[spread == 0] = 1.0
            weights = Ridge((X - mean) / spread, self.ridge).solve(B).T / spread
            return Linear(weights=weights, bias=B.mean(axis=0) - weights @ mean)
        anchors = GaussianFeatures.draw(X, n_anchors=self.n_anchors, gamma=self.gamma, rng=rng)
        weights = Ridge(anchors.features(X), self.ridge).solve(B).T
        return Kernel.on_features(anchors, weights, B.mean(axis=0))


def balanced_columns(supervision: Supervision, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """S of all rows and these columns, dissimilar entries scaled so that both kinds weigh the same in sum."""
    S = supervision.signs(np.arange(len(supervision)), columns)
    n_similar, n_dissimilar = np.count_nonzero(S > 0), np.count_nonzero(S < 0)
    if n_dissimilar > n_similar:
        S[S < 0] = -n_similar / n_dissimilar
    return S


def update_columns(
    S_columns: NDArray[np.float64],
    S_others: NDArray[np.float64],
    B_columns: NDArray[np.float64],
    B_others: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Codes of the columns, bit by bit with all other bits fixed: ||q S - B B_columns'||^2 never rises."""
    B, n_bits = B_columns.copy(), B_columns.shape[1]
    left_columns = n_bits * S_columns - B @ B.T
    left_others = n_bits * S_others.T @ B_others - B @ (B_others.T @ B_others)  # (columns, bits)
    overlap = B_others.T @ B_others
    for k in range(n_bits):
        bit = B[:, k].copy()
        R = left_columns + np.outer(bit, bit)
        np.fill_diagonal(R, 0.0)  # the square of a sign is 1 whatever the sign
        linear = left_others[:, k] + overlap[k, k] * bit
        B[:, k] = solve_quadratic(R, linear, bit)
        left_columns = left_columns + np.outer(bit, bit) - np.outer(B[:, k], B[:, k])
        left_others += np.outer(bit - B[:, k], overlap[k])
    return B


def solve_quadratic(
    R: NDArray[np.float64], linear: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Signs z of large z'Rz + 2 linear'z: one-flip ascent from ``start`` and from the sign of ``linear``."""
    best, best_value = start, -np.inf
    for z in (start, np.where(linear > 0, 1.0, -1.0)):
        z, field = z.copy(), R @ z + linear
        while True:
            gains = -z * field  # of a flip, up to a factor of 4; R has no diagonal
            i = int(gains.argmax())
            if gains[i] <= 1e-9 * (1.0 + np.abs(field).max()):
                break
            z[i] = -z[i]
            field += 2.0 * z[i] * R[i]
        value = float(z @ (R @ z) + 2.0 * linear @ z)
        if value > best_value:
            best, best_value = z, value
    return best


def _error(S: NDArray[np.float64], B: NDArray[np.float64], columns: NDArray[np.intp]) -> float:
    return float(np.mean((S - B @ B[columns].T / B.shape[1]) ** 2))
