"""The quadratic problem of one bit, stored without its matrix: one small integer per pair, and two tables per bit.

A loss depends on the earlier bits only through the distance of a pair in them. So a_ij is looked up in a table by that
distance. If points have weights, it is multiplied by the weights of both points: a point of weight 2 counts like two
equal points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.losses import Coefficients
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import chunks, run_tasks
from hashgrove.supervision import Affinity

__all__ = ["BinaryQuadratic", "PairDistances", "coefficient"]

ROWS_PER_CHUNK = 2048


class PairDistances:
    """The Hamming distance of every stored pair in the bits so far, kept up to date bit by bit.

    Parameters
    ----------
    affinity : Affinity
        The pairs.
    n_bits : int
        The final number of bits. A distance takes one byte for up to 255 bits, and two bytes for more.
    weights : array of shape (n_points,), optional
        How much each point counts in `mean`.
    n_jobs : int, optional
        Number of threads.
    """

    def __init__(
        self,
        affinity: Affinity,
        *,
        n_bits: int,
        weights: NDArray[np.float64] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.affinity = affinity
        self.values: NDArray[Any] = np.zeros(len(affinity.indices), np.uint8 if n_bits < 256 else np.uint16)
        self.n_bits = 0
        self.weights = weights
        self.n_jobs = n_jobs

    def add_bit(self, z: NDArray[np.int8]) -> None:
        """Add one to the distance of every pair whose points differ in ``z``."""
        a = self.affinity
        tasks = [(a.indptr, a.indices, z, self.values, *rows) for rows in chunks(len(a), ROWS_PER_CHUNK)]
        run_tasks(_add_bit, tasks, n_jobs=self.n_jobs)
        self.n_bits += 1

    def mean(self, similar: NDArray[np.float64], dissimilar: NDArray[np.float64]) -> float:
        """The mean over all pairs of a table entry for their distance: with the tables of a loss, the objective.

        Tables may go beyond the largest distance, the number of bits so far.
        """
        a = self.affinity
        arrays = a.indptr, a.first_dissimilar, a.indices, self.values, self.weights, self.n_bits
        counts = np.sum(
            run_tasks(_count, [(*arrays, *rows) for rows in chunks(len(a), ROWS_PER_CHUNK)], n_jobs=self.n_jobs), axis=0
        )
        n = counts.shape[1]
        return float((counts[0] @ similar[:n] + counts[1] @ dissimilar[:n]) / counts.sum())


@dataclass(frozen=True, eq=False)
class BinaryQuadratic:
    """min z'Az for one bit, with a_ij = coefficients[distance_ij] (equation 9 of the paper).

    If ``point_weights`` is given (each at most 1), a_ij is multiplied by the weights of both points.
    """

    affinity: Affinity
    distances: NDArray[Any]
    coefficients: Coefficients
    point_weights: NDArray[np.float64] | None = None

    @property
    def entries(self) -> tuple[Any, ...]:
        """The arrays that the kernels need to look up a_ij, in the order of their arguments."""
        a = self.affinity
        return a.indptr, a.first_dissimilar, a.indices, self.distances, *self.coefficients, self.point_weights

    def objective(self, z: NDArray[np.int8]) -> int:
        """z'Az, exactly, in the fixed-point units of the coefficients."""
        return int(_objective(*self.entries, z))

    def weights(self) -> NDArray[np.float64]:
        """Weight of each point i in this bit: sum_j |a_ij|, rescaled to mean 1."""
        total = _absolute_sums(*self.entries)
        mean = total.mean()
        return total / mean if mean > 0 else np.ones(len(total))

    def matrix(self) -> sparse.csr_array:
        """A as a sparse matrix of floats."""
        a = self.affinity
        data = _values(*self.entries)
        return sparse.csr_array((data, a.indices.astype(np.int32), a.indptr), shape=(len(a), len(a)))


@kernel
def coefficient(table, distance, point_weights, i, j):
    """a_ij in fixed point. The rounded product is the same for (i, j) and (j, i), so A stays symmetric and exact."""
    if point_weights is None:
        return table[distance]
    return np.int32(np.rint(table[distance] * (point_weights[i] * point_weights[j])))


@kernel
def _add_bit(indptr, indices, z, distances, first, last):
    """distances[e] += z[i] != z[j] for the entries e = (i, j) of rows [first, last)."""
    for i in range(first, last):
        bit = z[i]
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            distances[e] += z[indices[e]] != bit


@kernel
def _pair_weight(point_weights, i, j):
    """The weight of a pair: the product of the weights of its points, or 1."""
    if point_weights is None:
        return 1.0
    return point_weights[i] * point_weights[j]


@kernel
def _count(indptr, first_dissimilar, indices, distances, point_weights, n_bits, first, last):
    """Total weight of the similar (row 0) and dissimilar (row 1) entries at each distance, for rows [first, last)."""
    counts = np.zeros((2, n_bits + 1), np.float64)
    for i in range(first, last):
        for e in range(np.uint64(indptr[i]), np.uint64(first_dissimilar[i])):
            counts[0, distances[e]] += _pair_weight(point_weights, i, indices[e])
        for e in range(np.uint64(first_dissimilar[i]), np.uint64(indptr[i + 1])):
            counts[1, distances[e]] += _pair_weight(point_weights, i, indices[e])
    return counts


@kernel
def _objective(indptr, first_dissimilar, indices, distances, similar, dissimilar, point_weights, z):
    """z'Az. O(entries)."""
    total = np.int64(0)
    for i in range(len(first_dissimilar)):
        row = np.int64(0)
        for e in range(np.uint64(indptr[i]), np.uint64(first_dissimilar[i])):
            row += coefficient(similar, distances[e], point_weights, i, indices[e]) * z[indices[e]]
        for e in range(np.uint64(first_dissimilar[i]), np.uint64(indptr[i + 1])):
            row += coefficient(dissimilar, distances[e], point_weights, i, indices[e]) * z[indices[e]]
        total += z[i] * row
    return total


@kernel
def _absolute_sums(indptr, first_dissimilar, indices, distances, similar, dissimilar, point_weights):
    """sum_j |a_ij| for each point i. O(entries)."""
    sums = np.empty(len(first_dissimilar), np.float64)
    for i in range(len(first_dissimilar)):
        total = np.int64(0)
        for e in range(np.uint64(indptr[i]), np.uint64(first_dissimilar[i])):
            total += abs(np.int64(coefficient(similar, distances[e], point_weights, i, indices[e])))
        for e in range(np.uint64(first_dissimilar[i]), np.uint64(indptr[i + 1])):
            total += abs(np.int64(coefficient(dissimilar, distances[e], point_weights, i, indices[e])))
        sums[i] = total
    return sums


@kernel
def _values(indptr, first_dissimilar, indices, distances, similar, dissimilar, point_weights):
    """a_ij for each entry, in the order of ``distances``. O(entries)."""
    data = np.empty(len(distances), np.float64)
    for i in range(len(first_dissimilar)):
        for e in range(indptr[i], first_dissimilar[i]):
            data[e] = coefficient(similar, distances[e], point_weights, i, indices[e])
        for e in range(first_dissimilar[i], indptr[i + 1]):
            data[e] = coefficient(dissimilar, distances[e], point_weights, i, indices[e])
    return data
