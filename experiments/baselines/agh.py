"""Anchor graph hashing with one and with two layers (Liu, Wang, Kumar and Chang, ICML 2011)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from experiments.baselines.anchor_graph import AnchorGraph, nearest_anchors, truncated_similarities
from experiments.baselines.kmeans import kmeans
from hashgrove.hasher import Hasher
from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.runtime.parameters import Constraint, Integer
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["AGH1", "AGH2"]

ROWS_PER_CHUNK = 1024
EIGENVALUE_FLOOR = 1e-10  # smaller eigenvalues of the graph are rounding error; the largest one is 1


class AGH1(Hasher):
    """One-layer anchor graph hashing: the smoothest eigenvectors of an anchor graph, thresholded at zero.

    Each point is described by its similarities z to the nearest anchors. The similarity of two points is z L^-1 z',
    where L holds the mass of each anchor. The eigenvectors of this graph of n points are computed from a matrix of
    shape (n_anchors, n_anchors). They extend to a new point by its similarities to the anchors.

    Parameters
    ----------
    n_bits : int
        At most n_anchors - 1: the graph has only that many eigenvectors that are not constant.
    n_anchors : int
        Number of anchors, the centres of k-means; 300 in the paper. At most the number of points is used.
    n_nearest : int
        Number of anchors that a point is similar to, s in the paper. The paper tunes it for each data set; the authors'
        code has 2.
    max_iter : int
        Largest number of k-means steps.
    random_state : int, RandomState or None
        Seed of k-means.

    Attributes
    ----------
    encoder_ : AnchorGraph
    eigenvalues_ : float64 array
        Eigenvalues of the eigenvectors that are used, in descending order. An eigenvector with eigenvalue 1 is constant
        on each component of the graph.
    n_iter_ : int
        Number of k-means steps that were done.

    Notes
    -----
    Fitting takes O(n n_anchors d) per k-means step and for the similarities, O(n n_nearest^2 + n_anchors^3) for the
    eigenvectors, and O(n n_nearest) memory. Encoding takes O(n_anchors (d + n_bits)) per row.

    The width of the Gaussian is the mean distance to the farthest of the nearest anchors, as in the authors' code.
    That code drops every eigenvalue above 0.999. Here only the constant eigenvector is dropped, as in the paper, so a
    graph with several components keeps the eigenvectors that separate them.

    References
    ----------
    W. Liu, J. Wang, S. Kumar and S.-F. Chang, "Hashing with graphs", ICML 2011.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> AGH1(16, n_anchors=30, random_state=0).fit(X).transform(X).shape
    (100, 2)
    """

    eigenvalues_: NDArray[np.float64]
    n_iter_: int

    min_samples: ClassVar[int] = 2
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_anchors": Integer(2),
        "n_nearest": Integer(1),
        "max_iter": Integer(1),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_anchors: int = 300,
        n_nearest: int = 3,
        max_iter: int = 10,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.n_nearest = n_nearest
        self.max_iter = max_iter
        self.random_state = random_state

    def max_bits(self, *, n_samples: int, n_features: int) -> int:
        """One fewer than anchors: the graph has one eigenvector per anchor, and one of them is constant."""
        return max(min(self.n_anchors, n_samples) - 1, 0)

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> AnchorGraph:
        """Find the anchors, the eigenvectors of their graph, and the thresholds of the second bits (two layers)."""
        n_bits = self.n_bits
        anchors, self.n_iter_ = kmeans(X, self.n_anchors, rng, max_iter=self.max_iter)
        n_nearest = min(self.n_nearest, len(anchors))
        Z, bandwidth = _similarities(X, anchors, n_nearest)
        n_functions = self._n_functions(n_bits)
        self.eigenvalues_, weights = _eigenfunctions(Z, n_functions)
        slopes, intercepts = np.ones((2, n_functions)), np.zeros((2, n_functions))
        second = n_bits - n_functions
        if second:
            thresholds = np.stack([_second_thresholds(Z, weight) for weight in weights[:second]], axis=1)
            # the second bit scores -y + b- where y <= 0, and y - b+ where y > 0
            slopes = np.hstack([slopes, np.repeat([[-1.0], [1.0]], second, axis=1)])
            intercepts = np.hstack([intercepts, thresholds * [[1.0], [-1.0]]])
            weights = np.concatenate([weights, weights[:second]])
        return AnchorGraph(
            anchors=anchors,
            weights=weights,
            slopes=slopes,
            intercepts=intercepts,
            bandwidth=np.array(bandwidth),
            n_nearest=np.array(n_nearest, np.int64),
        )

    def _n_functions(self, n_bits: int) -> int:
        """Number of eigenvectors that ``n_bits`` bits are made of."""
        return n_bits


class AGH2(AGH1):
    """Two-layer anchor graph hashing: each eigenvector of the graph gives two bits.

    The first bit is its sign, as in `AGH1`. The second bit splits each of the two sides again, at the thresholds that
    cut the graph least while the second bits stay balanced. Codes of the same length then need half as many
    eigenvectors, and the later eigenvectors, of higher frequency, are the worse ones.

    Parameters, cost and deviations are those of `AGH1`, except that up to 2 (n_anchors - 1) bits are possible. A code
    holds all first bits and then all second bits. If ``n_bits`` is odd, the last eigenvector gives one bit only.

    References
    ----------
    W. Liu, J. Wang, S. Kumar and S.-F. Chang, "Hashing with graphs", ICML 2011.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> hasher = AGH2(16, n_anchors=30, random_state=0).fit(X)
    >>> hasher.transform(X).shape, hasher.eigenvalues_.shape
    ((100, 2), (8,))
    """

    def max_bits(self, *, n_samples: int, n_features: int) -> int:
        """Twice as many as with one layer."""
        return 2 * super().max_bits(n_samples=n_samples, n_features=n_features)

    def _n_functions(self, n_bits: int) -> int:
        return (n_bits + 1) // 2


def _similarities(X: NDArray[Any], anchors: NDArray[np.float64], n_nearest: int) -> tuple[sparse.csr_array, float]:
    """The paper's Z, of shape (n, n_anchors), and the bandwidth. Each row has ``n_nearest`` entries that sum to 1."""
    points = DistancesTo(anchors)
    parts = run_tasks(
        lambda start, stop: nearest_anchors(X[start:stop], points, n_nearest), chunks(len(X), ROWS_PER_CHUNK)
    )
    columns = np.concatenate([part[0] for part in parts])
    squared = np.concatenate([part[1] for part in parts])
    bandwidth = float(np.sqrt(squared[:, -1]).mean()) or 1.0
    values = truncated_similarities(squared, bandwidth)
    starts = np.arange(0, columns.size + 1, n_nearest)
    return sparse.csr_array((values.ravel(), columns.ravel(), starts), shape=(len(X), len(anchors))), bandwidth


def _eigenfunctions(Z: sparse.csr_array, n_functions: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues of Z L^-1 Z' except the trivial one, and W with the eigenvectors y = Z W'.

    W has shape (n_functions, n_anchors). The eigenvectors V of the small matrix M = L^-1/2 Z'Z L^-1/2 are extended to
    all points by W = n^1/2 L^-1/2 V S^-1/2 (equation 6).
    """
    n, n_anchors = Z.shape
    mass = np.asarray(Z.sum(axis=0)).ravel()
    root = np.sqrt(np.where(mass > 0, mass, 1.0))  # an anchor without points must not divide by zero
    M = (Z.T @ Z).toarray() / root / root[:, None]
    trivial = np.sqrt(mass / n)
    M -= np.outer(trivial, trivial)  # its eigenvalue changes from 1 to 0, even if other eigenvalues are 1, too
    values, vectors = eigh(M)
    values, vectors = values[::-1][:n_functions], with_fixed_signs(vectors.T[::-1][:n_functions])
    if len(values) < n_functions or values[-1] <= EIGENVALUE_FLOOR:
        found = int((values > EIGENVALUE_FLOOR).sum())
        raise ValueError(
            f"The anchor graph must have {n_functions} eigenvectors that are not constant for this many bits. Got "
            f"{found} from {n_anchors} anchors and n_samples={n}: use fewer bits, more anchors or more points."
        )
    return values, np.sqrt(n) * vectors / np.sqrt(values)[:, None] / root


def _second_thresholds(Z: sparse.csr_array, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """(b-, b+) of one eigenvector y: the second bit is y > b+ where y > 0, and y < b- elsewhere.

    With u = |y| - b+ on the positive side and u = |y| + b- on the other, the thresholds minimise u' Lap u subject to
    sum u = 0, where Lap = I - Z L^-1 Z' (equation 10). Lap maps constants to zero, so the objective depends only on
    t = b+ + b-. Its minimum is t = a'Lap|y| / a'Lap a, where a indicates the positive side; sum u = 0 then gives both
    thresholds.
    """
    y = Z @ weight
    n, positive = len(y), (y > 0).astype(np.float64)
    mass = np.asarray(Z.sum(axis=0)).ravel()
    through = (Z.T @ positive) / np.where(mass > 0, mass, 1.0)
    n_positive, size = positive.sum(), np.abs(y)
    cut = n_positive - through @ (Z.T @ positive)
    t = (positive @ size - through @ (Z.T @ size)) / cut if cut > 1e-9 * n else 0.0
    total = size.sum()  # b+ n+ - b- n- = total
    return np.array([(n_positive * t - total) / n, (total + (n - n_positive) * t) / n])
