"""Column sampling based discrete supervised hashing (Kang, Li and Zhou, AAAI 2016)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Kernel, Linear
from hashgrove.hasher import SupervisedHasher
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.numerics.ridge import Ridge
from hashgrove.numerics.signs import nonzero_signs, signs
from hashgrove.runtime.parameters import Constraint, Integer, Number
from hashgrove.supervision import Supervision

__all__ = ["COSDISH"]

COLUMNS_PER_CLASS = 5


class COSDISH(SupervisedHasher):
    """Codes of all points fitted to sampled columns of the pairwise label matrix, then hash functions by regression.

    Each round draws some columns of the label matrix S, that is, some points. It then alternates two updates: of the
    codes of these points, bit by bit, where each bit is a binary quadratic problem; and of the codes of all other
    points in closed form, as the sign of S times the codes of the columns, which minimises the L1 error.

    Parameters
    ----------
    n_bits : int
    n_columns : int or None
        Number of columns drawn per round. None means n_bits, the authors' choice, but at least five per class.
    n_rounds, n_alternations : int, default=10, 3
        Number of rounds, and of alternations in each round.
    n_anchors : int or None, default=None
        None: linear hash functions (ridge regression on standardised features), as in the paper. A number: ridge
        regression on Gaussian features around that many anchors.
    gamma : float or None
        With anchors: width of the kernel exp(-gamma d^2). None means 1 / (2 x mean squared distance to an anchor).
    ridge : float, default=1
        Penalty on the squared weights in the ridge regression.
    min_shared : int, default=2
        With tags: points that share at least this many tags are similar.
    random_state : int, RandomState or None
        Seed of the first codes, the columns and the anchors.

    Attributes
    ----------
    encoder_ : Linear or Kernel
    codes_ : ndarray of shape (n, n_bits)
        The codes, -1 and +1, that the hash functions were fitted to.
    objective_ : ndarray of shape (n_rounds, n_alternations, 2)
        Mean of (q S_ij - inner product of codes i and j)^2 / q^2 over the columns, with q = n_bits, before and after
        the update of the codes of the columns. The second value is never larger.

    Notes
    -----
    A dissimilar entry of S is not -1, but minus the ratio of the number of similar to the number of dissimilar entries
    in the columns (a public copy of the authors' code prints that ratio without the minus).

    Deviations: the paper turns the quadratic problem into a clustering problem and solves that by a 2-approximation.
    Here it is solved by flips of single signs, from the present bit and from the greedy sign, so the error of the step
    cannot increase. Each bit is fitted to the residual of all other bits, not only of the bits before it. All classes
    without a column in the last round share one code, so with more classes than bits the authors' n_bits columns are
    too few. The paper's second kind of hash function, boosted trees, is not offered.

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
        """Find the codes of the training points round by round, then fit hash functions to them."""
        B = signs(rng.standard_normal((len(X), self.n_bits)))
        n_classes = len(supervision.class_names)
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
                B[others] = nonzero_signs(pull, B[others])
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
    """S of all rows and these columns; dissimilar entries weigh at most as much in total as similar ones."""
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
    """New codes of the columns, set bit by bit. The error ||q S - B B_columns'||^2 never increases."""
    B, n_bits = B_columns.copy(), B_columns.shape[1]
    residual_columns = n_bits * S_columns - B @ B.T
    residual_others = n_bits * S_others.T @ B_others - B @ (B_others.T @ B_others)  # (columns, bits)
    overlap = B_others.T @ B_others
    for k in range(n_bits):
        bit = B[:, k].copy()
        R = residual_columns + np.outer(bit, bit)
        np.fill_diagonal(R, 0.0)  # the square of a sign is always 1
        linear = residual_others[:, k] + overlap[k, k] * bit
        B[:, k] = solve_quadratic(R, linear, bit)
        residual_columns = residual_columns + np.outer(bit, bit) - np.outer(B[:, k], B[:, k])
        residual_others += np.outer(bit - B[:, k], overlap[k])
    return B


def solve_quadratic(
    R: NDArray[np.float64], linear: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Signs z with a large z'Rz + 2 linear'z, found by flips of single signs from ``start`` and from sign(linear)."""
    best, best_value = start, -np.inf
    for z in (start, signs(linear)):
        z, field = z.copy(), R @ z + linear
        while True:
            gains = -z * field  # gain of each flip, divided by 4; the diagonal of R is zero
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
    """Mean squared error of the columns, relative to n_bits."""
    return float(np.mean((S - B @ B[columns].T / B.shape[1]) ** 2))
