"""Spherical hashing (Heo, Lee, He, Chang and Yoon, CVPR 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder
from hashgrove.hasher import Hasher
from hashgrove.numerics.distances import DistancesTo
from hashgrove.numerics.sampling import sample_rows
from hashgrove.runtime.parameters import Constraint, Integer

__all__ = ["SPHER", "Spheres"]

ROWS_PER_CENTRE = 5  # a first centre is the mean of this many rows
MEAN_TOLERANCE, DEVIATION_TOLERANCE = 0.10, 0.15  # eps_m and eps_s of the paper, relative to a quarter of the rows


class SPHER(Hasher):
    """Spheres that each contain half of the points, and pairwise share a quarter: balanced and independent bits.

    The centres of two spheres that share more than a quarter of the points repel each other; centres of spheres that
    share less attract each other. This goes on until the mean deviation of the overlaps from a quarter is below 10 % of
    a quarter, and their standard deviation below 15 %.

    Parameters
    ----------
    n_bits : int
    max_samples : int
        Largest number of rows that the spheres are fitted to. If there are more, a random sample is used.
    max_iter : int
        Largest number of iterations.
    random_state : int, RandomState or None
        Seed of the sample and the first centres.

    Attributes
    ----------
    encoder_ : Spheres
    n_iter_ : int
        Number of iterations that were done.
    overlap_deviation_ : tuple of two floats
        Mean deviation of the overlaps from a quarter, and their standard deviation, both relative to a quarter.

    Notes
    -----
    Each iteration takes O(max_samples n_bits (d + n_bits)). Encoding takes O(n_bits d) per row. The number of bits is
    not limited, but if it is far above the number of dimensions, the spheres cannot all share a quarter pairwise.

    A first centre is the mean of 5 random rows, as in public implementations; the paper does not specify it. The paper
    iterates until the tolerances are met; here ``max_iter`` is a second limit. Codes are compared by the plain Hamming
    distance, as every index here does. The paper's spherical Hamming distance, |a xor b| / |a and b|, in which two
    points inside the same sphere are closer than two points outside it, is not used.

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
        """Move the centres until all pairs of spheres share about a quarter of the rows."""
        n_bits = self.n_bits
        if len(X) > self.max_samples:
            X = X[sample_rows(len(X), self.max_samples, rng)]
        X = X.astype(np.float64)
        centres = np.stack([X[rng.integers(len(X), size=ROWS_PER_CENTRE)].mean(axis=0) for _ in range(n_bits)])
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
    """Radii such that each sphere contains half of the rows, and the pairwise overlaps, relative to a quarter."""
    half = len(X) // 2
    squared = DistancesTo(centres).squared(X)
    ordered = np.partition(squared, (half - 1, half), axis=0)
    radii = np.sqrt((ordered[half - 1] + ordered[half]) / 2.0)  # between two rows, so that no row lies on the sphere
    inside = (squared < np.square(radii)).astype(np.float64)
    return radii, inside.T @ inside / (len(X) / 4.0)


def _deviation(overlaps: NDArray[np.float64]) -> tuple[float, float]:
    """Mean deviation of the overlaps from 1, and their standard deviation."""
    pairs = overlaps[np.triu_indices(len(overlaps), 1)]
    return (float(np.abs(pairs - 1.0).mean()), float(pairs.std())) if pairs.size else (0.0, 0.0)


def _independent(deviation: tuple[float, float]) -> bool:
    return deviation[0] <= MEAN_TOLERANCE and deviation[1] <= DEVIATION_TOLERANCE


@dataclass(frozen=True, eq=False)
class Spheres(Encoder):
    """Scores radius^2 - ||x - centre||^2: a bit is 1 inside its sphere.

    Parameters
    ----------
    centres : float64 array of shape (n_bits, n_features)
    radii : float64 array of shape (n_bits,)

    Examples
    --------
    >>> encoder = Spheres(centres=np.array([[0.0, 0.0]]), radii=np.array([2.0]))
    >>> encoder.scores([[0.0, 1.0], [3.0, 0.0]]).tolist()
    [[3.0], [-5.0]]
    """

    centres: Annotated[NDArray[np.float64], ("bits", "features")]
    radii: Annotated[NDArray[np.float64], ("bits",)]

    @cached_property
    def _distances(self) -> DistancesTo:
        return DistancesTo(self.centres)

    def _scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        return np.square(self.radii) - self._distances.squared(X)
