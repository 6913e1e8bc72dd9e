"""Anchor graph hashing with one and with two layers (Liu, Wang, Kumar and Chang, ICML 2011)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from hashgrove.encoders import AnchorGraph
from hashgrove.encoders.anchor_graph import nearest_anchors, truncated_similarities
from hashgrove.hasher import Hasher
from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.numerics.kmeans import kmeans
from hashgrove.runtime.parameters import Constraint, Integer
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["AGH1", "AGH2"]

ROWS_PER_CHUNK = 1024
EIGENVALUE_FLOOR = 1e-10  # of the graph, whose largest is 1; what is below it is rounding error


class AGH1(Hasher):
    """One-layer anchor graph hashing: the smoothest eigenvectors of an anchor graph, thresholded at zero.

    Two points are as similar as their similarities z to the nearest anchors agree, z L^-1 z' with L the mass of each
    anchor. The eigenvectors of this graph of n points come from one of n_anchors x n_anchors, and extend to new points
    through their own z.

    Parameters
    ----------
    n_bits : int
        At most n_anchors - 1: the graph has no more eigenvectors that are not constant.
    n_anchors : int
        Centres of k-means; the paper has 300. No more than there are points.
    n_nearest : int
        Anchors that a point is similar to, s in the paper, which tunes it for each data set (2 in the authors' code).
    max_iter : int
        Limit of steps of k-means.
    random_state : int, RandomState or None
        Seed of the k-means.

    Attributes
    ----------
    encoder_ : AnchorGraph
    eigenvalues_ : float64 array
        Of the eigenvectors that are used, falling; 1 would be constant on each component of the graph.
    n_iter_ : int
        Steps of k-means made.

    Notes
    -----
    Cost: O(n n_anchors d) for a step of k-means and for the similarities, O(n n_nearest^2 + n_anchors^3) for the
    eigenvectors; memory O(n n_nearest). O(n_anchors (d + n_bits)) a row to encode.

    The width of the Gaussian is the mean distance to the farthest of the nearest anchors, as in the authors' code.
    That code drops every eigenvalue above 0.999; here only the constant eigenvector is dropped, as in the paper, and a
    graph of several components keeps the eigenvectors that tell these apart.

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
        """The graph has as many eigenvectors as anchors, and one of them is constant."""
        return max(min(self.n_anchors, n_samples) - 1, 0)

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> AnchorGraph:
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
            # y <= 0: -y + b-, y > 0: y - b+
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
        """Eigenvectors that so many bits are made of."""
        return n_bits


class AGH2(AGH1):
    """Two-layer anchor graph hashing: each eigenvector of the graph gives two bits.

    The first bit is its sign, as in `AGH1`. The second one splits either side once more, where this cuts the graph
    least and leaves the two halves balanced in sum, so that the eigenvectors of higher frequency, which are worse,
    are not needed.

    Parameters, cost and deviations are those of `AGH1`, except that 2 (n_anchors - 1) bits are possible. The first
    halves come first in a code. With an odd ``n_bits`` the last eigenvector has one bit.

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
        """Twice those of one layer."""
        return 2 * super().max_bits(n_samples=n_samples, n_features=n_features)

    def _n_functions(self, n_bits: int) -> int:
        return (n_bits + 1) // 2


def _similarities(X: NDArray[Any], anchors: NDArray[np.float64], n_nearest: int) -> tuple[sparse.csr_array, float]:
    """Z of the paper, (n, n_anchors) with ``n_nearest`` entries a row that sum to one, and the bandwidth."""
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
    """The largest eigenvalues of Z L^-1 Z' but the trivial one, and W (n_functions, n_anchors) with y = Z W'.

    The eigenvectors of the small matrix M = L^-1/2 Z'Z L^-1/2 are extended by W = n^1/2 L^-1/2 V S^-1/2 (equation 6).
    """
    n, n_anchors = Z.shape
    mass = np.asarray(Z.sum(axis=0)).ravel()
    root = np.sqrt(np.where(mass > 0, mass, 1.0))  # an anchor of no point has no similarity and no weight
    M = (Z.T @ Z).toarray() / root / root[:, None]
    trivial = np.sqrt(mass / n)
    M -= np.outer(trivial, trivial)  # its eigenvalue, 1, becomes 0, also where it is not the only one of 1
    values, vectors = eigh(M)
    values, vectors = values[::-1][:n_functions], with_fixed_signs(vectors.T[::-1][:n_functions])
    if len(values) < n_functions or values[-1] <= EIGENVALUE_FLOOR:
        found = int((values > EIGENVALUE_FLOOR).sum())
        raise ValueError(
            f"The anchor graph must have {n_functions} eigenvectors that are not constant for this many bits. Got "
            f"{found} from {n_anchors} anchors and n_samples={n}: use fewer bits, or more anchors or points."
        )
    return values, np.sqrt(n) * vectors / np.sqrt(values)[:, None] / root


def _second_thresholds(Z: sparse.csr_array, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """(b-, b+) of one eigenvector y: the second bit is y > b+ where y > 0, and y < b- elsewhere.

    u = |y| - b+ on the positive side and |y| + b- on the other is to make u' (I - Z L^-1 Z') u least with sum u = 0
    (equation 10). With a the indicator of the positive side, the graph Laplacian ignores constants, so that only
    t = b+ + b- matters to the first, t = a'Lap|y| / a'Lap a, and the second then gives both.
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
