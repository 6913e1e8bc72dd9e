"""The quadratic problem of one bit, without its matrix: one small integer per pair, and two tables per bit.

The distance of a pair in the bits so far is all that a loss sees of the past, so a_ij is a table look-up in it.
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
from hashgrove.supervision.affinity import Affinity

__all__ = ["BinaryQuadratic", "PairDistances"]

ROWS_PER_CHUNK = 2048


class PairDistances:
    """The Hamming distance of every stored pair in the bits so far, kept up to date bit by bit.

    Parameters
    ----------
    affinity : Affinity
        The pairs.
    n_bits : int
        The number of bits that there will be: one byte a pair up to 255 bits, two above.
    n_jobs : int, optional
        Threads.
    """

    def __init__(self, affinity: Affinity, *, n_bits: int, n_jobs: int | None = None) -> None:
        self.affinity = affinity
        self.values: NDArray[Any] = np.zeros(len(affinity.indices), np.uint8 if n_bits < 256 else np.uint16)
        self.n_bits = 0
        self.n_jobs = n_jobs

    def add_bit(self, z: NDArray[np.int8]) -> None:
        """Add one where the ends of a pair differ in ``z``."""
        a = self.affinity
        tasks = [(a.indptr, a.indices, z, self.values, *rows) for rows in chunks(len(a), ROWS_PER_CHUNK)]
        run_tasks(_add_bit, tasks, n_jobs=self.n_jobs)
        self.n_bits += 1

    def mean(self, similar: NDArray[np.float64], dissimilar: NDArray[np.float64]) -> float:
        """Mean over the pairs of a table look-up in their distance: the objective, given the values of a loss."""
        a = self.affinity
        tasks = [(a.indptr, a.middle, self.values, self.n_bits, *rows) for rows in chunks(len(a), ROWS_PER_CHUNK)]
        counts = np.sum(run_tasks(_count, tasks, n_jobs=self.n_jobs), axis=0)
        return float((counts[0] @ similar + counts[1] @ dissimilar) / len(a.indices))


@dataclass(frozen=True, eq=False)
class BinaryQuadratic:
    """min z'Az of one bit, with a_ij = coefficients[distance_ij] (equation 9 of the paper)."""

    affinity: Affinity
    distances: NDArray[Any]
    coefficients: Coefficients

    def objective(self, z: NDArray[np.int8]) -> int:
        """z'Az, exact, in the fixed point of the coefficients."""
        a = self.affinity
        return int(_objective(a.indptr, a.middle, a.indices, self.distances, *self.coefficients, z))

    def weights(self) -> NDArray[np.float64]:
        """How much each point matters to this bit: sum_j |a_ij|, rescaled to mean 1."""
        a = self.affinity
        total = _absolute_sums(a.indptr, a.middle, self.distances, *self.coefficients)
        mean = total.mean()
        return total / mean if mean > 0 else np.ones(len(total))

    def matrix(self) -> sparse.csr_array:
        """A as a sparse matrix of floats."""
        a = self.affinity
        data = _entries(a.indptr, a.middle, self.distances, *self.coefficients)
        return sparse.csr_array((data, a.indices.astype(np.int32), a.indptr), shape=(len(a), len(a)))


@kernel
def _add_bit(indptr, indices, z, distances, first, last):
    """distances[e] += z[i] != z[j] for the entries e = (i, j) of rows [first, last)."""
    for i in range(first, last):
        own = z[i]
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            distances[e] += z[indices[e]] != own


@kernel
def _count(indptr, middle, distances, n_bits, first, last):
    """Number of similar (row 0) and dissimilar (row 1) entries at each distance, over rows [first, last)."""
    counts = np.zeros((2, n_bits + 1), np.int64)
    for i in range(first, last):
        for e in range(np.uint64(indptr[i]), np.uint64(middle[i])):
            counts[0, distances[e]] += 1
        for e in range(np.uint64(middle[i]), np.uint64(indptr[i + 1])):
            counts[1, distances[e]] += 1
    return counts


@kernel
def _objective(indptr, middle, indices, distances, similar, dissimilar, z):
    total = np.int64(0)
    for i in range(len(middle)):
        row = np.int64(0)
        for e in range(np.uint64(indptr[i]), np.uint64(middle[i])):
            row += similar[distances[e]] * z[indices[e]]
        for e in range(np.uint64(middle[i]), np.uint64(indptr[i + 1])):
            row += dissimilar[distances[e]] * z[indices[e]]
        total += z[i] * row
    return total


@kernel
def _absolute_sums(indptr, middle, distances, similar, dissimilar):
    sums = np.empty(len(middle), np.float64)
    for i in range(len(middle)):
        total = np.int64(0)
        for e in range(np.uint64(indptr[i]), np.uint64(middle[i])):
            total += abs(np.int64(similar[distances[e]]))
        for e in range(np.uint64(middle[i]), np.uint64(indptr[i + 1])):
            total += abs(np.int64(dissimilar[distances[e]]))
        sums[i] = total
    return sums


@kernel
def _entries(indptr, middle, distances, similar, dissimilar):
    data = np.empty(len(distances), np.float64)
    for i in range(len(middle)):
        for e in range(indptr[i], middle[i]):
            data[e] = similar[distances[e]]
        for e in range(middle[i], indptr[i + 1]):
            data[e] = dissimilar[distances[e]]
    return data
