"""Spherical hashing (Heo, Lee, He, Chang and Yoon, CVPR 2012)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Spheres
from hashgrove.hasher import Hasher
from hashgrove.numerics.distances import DistancesTo
from hashgrove.runtime.parameters import Constraint, Integer

__all__ = ["SPHER"]

POINTS_OF_A_CENTRE = 5
MEAN_TOLERANCE, DEVIATION_TOLERANCE = 0.10, 0.15  # eps_m and eps_s of the paper, in shares of a quarter


class SPHER(Hasher):
    """Spheres that each hold half of the points, of which each two share a quarter: independent, balanced bits.

    Centres that share too much repel each other, and those that share too little attract, until the mean deviation
    of the overlaps from a quarter is below 10 % and their standard deviation below 15 % of it.

    Parameters
    ----------
    n_bits : int
    max_samples : int
        Rows that the spheres are fitted to, drawn at random where there are more.
    max_iter : int
        Limit of iterations.
    random_state : int, RandomState or None
        Seed of the rows and of the first centres.

    Attributes
    ----------
    encoder_ : Spheres
    n_iter_ : int
        Iterations made.
    overlap_deviation_ : tuple of two floats
        Mean deviation of the overlaps from a quarter, and their standard deviation, both in shares of a quarter.

    Notes
    -----
    Cost: O(max_samples n_bits (d + n_bits)) an iteration, and O(n_bits d) a row to encode. There is no limit to the
    number of bits, but far more of them than the data have dimensions cannot share a quarter each two.

    A first centre is the mean of 5 random rows, as in public implementations; the paper leaves it open. Where the
    paper iterates until the tolerances are met, ``max_iter`` ends it here. Codes are compared by the plain Hamming
    distance, as by every index here; the paper's spherical Hamming distance, |a xor b| / |a and b|, which counts a
    shared inside as closer than a shared outside, is not used.

    References
    ----------
    J.-P. Heo, Y. Lee, J. He, S.-F. Chang and S.-E. Yoon, "Spherical hashing", CVPR 2012.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(400, 8))
    >>> hasher = SPHER(4, random_state=0).fit(X)
    >>> (hasher.decision_function(X) > 0).mean(axis=0).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """

    n_iter_: int
    overlap_deviation_: tuple[float, float]

    min_samples: ClassVar[int] = 2
    constraints: ClassVar[dict[str, Constraint]] = {
        "max_samples": Integer(2),
        "max_iter": Integer(1),
    }

    def __init__(
        self, n_bits: int = 64, *, max_samples: int = 10_000, max_iter: int = 100, random_state: Any = None
    ) -> None:
        self.n_bits = n_bits
        self.max_samples = max_samples
        self.max_iter = max_iter
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: None, rng: np.random.Generator) -> Spheres:
        n_bits = self.n_bits
        if len(X) > self.max_samples:
            X = X[np.sort(rng.choice(len(X), size=self.max_samples, replace=False))]
        X = X.astype(np.float64)
        centres = np.stack([X[rng.integers(len(X), size=POINTS_OF_A_CENTRE)].mean(axis=0) for _ in range(n_bits)])
        radii, overlaps = _balance(X, centres)
        self.n_iter_ = 0
        while self.n_iter_ < self.max_iter and not _independent(_deviation(overlaps)):
            excess = (overlaps - 1.0) / (2.0 * n_bits)
            np.fill_diagonal(excess, 0.0)
            centres += excess.sum(axis=1, keepdims=True) * centres - excess @ centres  # sum_j e_ij (c_i - c_j)
            radii, overlaps = _balance(X, centres)
            self.n_iter_ += 1
        self.overlap_deviation_ = _deviation(overlaps)
        return Spheres(centres=centres, radii=radii)


def _balance(X: NDArray[np.float64], centres: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Radii that take in half of the rows, and the overlaps of each two spheres, in shares of a quarter."""
    half = len(X) // 2
    squared = DistancesTo(centres).squared(X)
    ordered = np.partition(squared, (half - 1, half), axis=0)
    radii = np.sqrt((ordered[half - 1] + ordered[half]) / 2.0)  # between two rows, so that none is on the sphere
    inside = (squared < np.square(radii)).astype(np.float64)
    return radii, inside.T @ inside / (len(X) / 4.0)


def _deviation(overlaps: NDArray[np.float64]) -> tuple[float, float]:
    pairs = overlaps[np.triu_indices(len(overlaps), 1)]
    return (float(np.abs(pairs - 1.0).mean()), float(pairs.std())) if pairs.size else (0.0, 0.0)


def _independent(deviation: tuple[float, float]) -> bool:
    return deviation[0] <= MEAN_TOLERANCE and deviation[1] <= DEVIATION_TOLERANCE
