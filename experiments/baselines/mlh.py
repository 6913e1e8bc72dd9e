"""Minimal loss hashing (Norouzi and Fleet, ICML 2011): hyperplanes by structured prediction with a hinge-like loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Linear
from hashgrove.hasher import SupervisedHasher
from hashgrove.numerics.signs import signs
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number
from hashgrove.runtime.threads import chunks
from hashgrove.supervision import Affinity, Supervision

__all__ = ["MLH"]

ROWS_PER_CHUNK = 8192


class MLH(SupervisedHasher):
    """Hyperplanes through the mean that keep similar pairs within ``rho`` bits and dissimilar pairs beyond.

    A pair at distance m costs max(m - rho + 1, 0) if it is similar and lam max(rho - m + 1, 0) if it is dissimilar. The
    paper's upper bound of this loss is minimised by stochastic gradient descent with momentum. For each pair,
    loss-adjusted inference finds the two codes with the largest score plus epsilon times loss, exactly, by sorting the
    bits.

    Parameters
    ----------
    n_bits : int
    rho : int or None
        None means n_bits / 4, rounded, but at least 1.
    lam : float, default=0.5
        Weight of dissimilar pairs, lambda in the paper.
    normalise : bool, default=False
        Whether the two losses are divided by n_bits - rho + 1 and rho + 1, their largest values, as in the author's
        code.
    epsilon : float or None
        Weight of the loss relative to the score in the bound; None means 1 / n_bits.
    n_iter : int, default=20
        Number of epochs. The step size decreases linearly to 0.
    n_pairs : int, default=20000
        Number of pairs per epoch, half of them similar.
    batch_size : int, default=100
        Number of pairs per gradient step.
    learning_rate, momentum : float, default=1, 0.9
        Step size of the first epoch, and share of the previous step that is added to each step.
    n_similar, n_dissimilar : int, default=50
        Number of neighbours of each point that the pairs are drawn from.
    min_shared : int, default=2
        With tags: points that share at least this many tags are similar.
    random_state : int, RandomState or None
        Seed of the first hyperplanes and the pairs.

    Attributes
    ----------
    encoder_ : Linear
    loss_ : ndarray of shape (n_iter,)
        Mean loss over the pairs of each epoch; the loss of a pair is taken just before the step that uses it.
    bound_ : ndarray of shape (n_iter,)
        Mean of the upper bound that is minimised. It is never below epsilon times ``loss_``.

    Notes
    -----
    Features are centred and divided by their mean norm. The weights of each hyperplane keep unit length, as in the
    paper (the authors' later code has weight decay instead). Deviations: no hyper-parameter is chosen by validation,
    and the features are not reduced by PCA first.

    References
    ----------
    M. Norouzi and D. J. Fleet, "Minimal loss hashing for compact binary codes", ICML 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = MLH(16, n_iter=5, random_state=0).fit(X[:1000], y[:1000])
    >>> bool(hasher.loss_[-1] < hasher.loss_[0])
    True
    """

    loss_: NDArray[np.float64]
    bound_: NDArray[np.float64]

    constraints: ClassVar[dict[str, Constraint]] = {
        "rho": Integer(1, or_none=True),
        "lam": Number(above=0),
        "normalise": Flag(),
        "epsilon": Number(above=0, or_none=True),
        "n_iter": Integer(1),
        "n_pairs": Integer(1),
        "batch_size": Integer(1),
        "learning_rate": Number(above=0),
        "momentum": Number(low=0),
        "n_similar": Integer(1),
        "n_dissimilar": Integer(1),
        "min_shared": Integer(1),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        rho: int | None = None,
        lam: float = 0.5,
        normalise: bool = False,
        epsilon: float | None = None,
        n_iter: int = 20,
        n_pairs: int = 20_000,
        batch_size: int = 100,
        learning_rate: float = 1.0,
        momentum: float = 0.9,
        n_similar: int = 50,
        n_dissimilar: int = 50,
        min_shared: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.rho = rho
        self.lam = lam
        self.normalise = normalise
        self.epsilon = epsilon
        self.n_iter = n_iter
        self.n_pairs = n_pairs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.min_shared = min_shared
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Linear:
        """Minimise the bound by stochastic gradient descent, from random hyperplanes."""
        pairs = supervision.affinity(
            n_similar=self.n_similar, n_dissimilar=self.n_dissimilar, random_state=int(rng.integers(2**31))
        )
        source = PairSource.of(pairs)
        mean = X.mean(axis=0, dtype=np.float64)
        norms = [np.linalg.norm(X[start:stop] - mean, axis=1) for start, stop in chunks(len(X), ROWS_PER_CHUNK)]
        scale = float(np.concatenate(norms).mean()) or 1.0
        epsilon = 1.0 / self.n_bits if self.epsilon is None else self.epsilon
        table = epsilon * pair_losses(self.n_bits, rho=self._rho(), lam=self.lam, normalise=self.normalise)

        W = _unit_rows(rng.standard_normal((self.n_bits, X.shape[1])))
        step = np.zeros_like(W)
        n_batches = -(-self.n_pairs // self.batch_size)
        sums = np.zeros((self.n_iter, 2))
        for epoch in range(self.n_iter):
            rate = self.learning_rate * (1.0 - epoch / self.n_iter)
            for _ in range(n_batches):
                first, second, similar = source.draw(self.batch_size, rng)
                left, right = ((X[rows] - mean) / scale for rows in (first, second))
                a, b = left @ W.T, right @ W.T
                bits_a, bits_b, distance = adjusted_codes(a, b, table[similar])
                signs_a, signs_b = signs(a), signs(b)
                gradient = (signs_a - bits_a).T @ left + (signs_b - bits_b).T @ right
                step = self.momentum * step + rate / self.batch_size * gradient
                W = _unit_rows(W + step)
                true = (signs_a != signs_b).sum(axis=1)
                bound = ((bits_a - signs_a) * a).sum() + ((bits_b - signs_b) * b).sum() + table[similar, distance].sum()
                sums[epoch] += table[similar, true].sum() / epsilon, bound
        weights = W / scale
        self.loss_, self.bound_ = (sums / (n_batches * self.batch_size)).T
        return Linear(weights=weights, bias=-weights @ mean)

    def _rho(self) -> int:
        return max(1, round(self.n_bits / 4)) if self.rho is None else self.rho


def pair_losses(n_bits: int, *, rho: int, lam: float, normalise: bool = False) -> NDArray[np.float64]:
    """The loss of a dissimilar pair (row 0) and a similar pair (row 1) at each distance from 0 to ``n_bits``.

    >>> pair_losses(4, rho=2, lam=0.5).tolist()
    [[1.5, 1.0, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0, 3.0]]
    >>> pair_losses(4, rho=2, lam=0.5, normalise=True).round(2).tolist()
    [[0.5, 0.33, 0.17, 0.0, 0.0], [0.0, 0.0, 0.33, 0.67, 1.0]]
    """
    m = np.arange(n_bits + 1)
    losses = np.stack([lam * np.maximum(rho - m + 1.0, 0.0), np.maximum(m - rho + 1.0, 0.0)])
    return losses / [[rho + 1.0], [max(n_bits - rho + 1.0, 1.0)]] if normalise else losses


def adjusted_codes(
    a: NDArray[np.float64], b: NDArray[np.float64], losses: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """For each pair, the codes g and h with the largest g'a + h'b + loss(distance of g and h), and that distance.

    ``a`` and ``b`` have shape (n, n_bits), ``losses`` has shape (n, n_bits + 1). A bit that is equal in both codes
    contributes at most |a + b|, a bit that differs at most |a - b|. So if m bits differ, they are the m bits with the
    largest |a - b| - |a + b|.
    """
    gain = np.abs(a - b) - np.abs(a + b)
    order = np.argsort(-gain, axis=1, kind="stable")
    totals = np.zeros_like(losses)
    np.cumsum(np.take_along_axis(gain, order, axis=1), axis=1, out=totals[:, 1:])
    distance = np.argmax(totals + losses, axis=1)
    differs = np.empty(gain.shape, dtype=bool)
    np.put_along_axis(differs, order, np.arange(gain.shape[1]) < distance[:, None], axis=1)
    codes_a = signs(np.where(differs, a - b, a + b))
    return codes_a, np.where(differs, -codes_a, codes_a), distance


@dataclass(frozen=True, eq=False)
class PairSource:
    """The pairs of an affinity, in a form that random pairs can be drawn from.

    Attributes
    ----------
    indices : uint32 array
        The neighbours of all points.
    runs : two tuples (points, starts, ends), for similar and for dissimilar pairs
        The points that have such neighbours, and where in ``indices`` these are.
    """

    indices: NDArray[np.uint32]
    runs: tuple[tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]], ...]

    @classmethod
    def of(cls, pairs: Affinity) -> PairSource:
        """The source that draws from the pairs of an affinity."""
        runs = []
        for start, end in ((pairs.indptr[:-1], pairs.first_dissimilar), (pairs.first_dissimilar, pairs.indptr[1:])):
            points = np.flatnonzero(end > start)
            runs.append((points, start[points], end[points]))
        return cls(pairs.indices, tuple(runs))

    def draw(
        self, n_pairs: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Draw pairs as (first, second, 1 if similar else 0); half of them are similar if there are both kinds."""
        n_similar = n_pairs // 2
        if not (len(self.runs[0][0]) and len(self.runs[1][0])):
            n_similar = n_pairs if len(self.runs[0][0]) else 0
        first, second = [], []
        for (points, start, end), size in zip(self.runs, (n_similar, n_pairs - n_similar), strict=True):
            if size:
                chosen = rng.integers(len(points), size=size)
                first.append(points[chosen])
                second.append(self.indices[rng.integers(start[chosen], end[chosen])].astype(np.intp))
        similar = (np.arange(n_pairs) < n_similar).astype(np.intp)
        return np.concatenate(first), np.concatenate(second), similar


def _unit_rows(W: NDArray[np.float64]) -> NDArray[np.float64]:
    return W / np.maximum(np.linalg.norm(W, axis=1, keepdims=True), np.finfo(float).tiny)
