"""Spherical k-means: clusters of rows by the direction that they point in (Dhillon & Modha, 2001)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.runtime.blas import single_threaded_blas

__all__ = ["spherical_clusters"]

N_STEPS = 20


def spherical_clusters(Z: NDArray[np.float32], n_clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The number of the cluster of each row, from 0; some clusters may be empty.

    The first centres are random rows that are far from each other (k-means++). A row belongs to the centre with the
    largest cosine; in each of 20 steps centres become the mean directions of their rows. O(n d n_clusters) per step;
    memory for n x n_clusters cosines.

    Parameters
    ----------
    Z : float32 array of shape (n, d)
        Rows of length 1.
    n_clusters : int
    rng : Generator

    Examples
    --------
    >>> Z = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)
    >>> found = spherical_clusters(Z, 2, np.random.default_rng(0))
    >>> bool(found[0] == found[2] != found[1] == found[3])
    True
    """
    with single_threaded_blas():
        centres = _far_rows(Z, n_clusters, rng)
        for _ in range(N_STEPS):
            sums = _indicator((Z @ centres.T).argmax(axis=1), n_clusters) @ Z
            is_used = np.abs(sums).max(axis=1) > 0
            centres[is_used] = unit_rows(sums[is_used])
        return np.asarray((Z @ centres.T).argmax(axis=1))


def _far_rows(Z: NDArray[np.float32], n_rows: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Random rows, each drawn with a probability in proportion to 1 - its largest cosine to those before it."""
    chosen = np.empty((n_rows, Z.shape[1]), np.float32)
    chosen[0] = Z[rng.integers(len(Z))]
    distance = 1 - Z @ chosen[0]
    for k in range(1, n_rows):
        shares = np.maximum(distance, 0).astype(np.float64).cumsum()
        chosen[k] = Z[min(int(np.searchsorted(shares, rng.random() * shares[-1], side="right")), len(Z) - 1)]
        np.minimum(distance, 1 - Z @ chosen[k], out=distance)
    return chosen


def _indicator(numbers: NDArray[np.int64], n: int) -> sparse.csr_array:
    """A sparse matrix with a row per cluster, which is 1 for the rows of the cluster."""
    entries = np.ones(len(numbers), np.float32), (numbers, np.arange(len(numbers)))
    return sparse.csr_array(entries, shape=(n, len(numbers)))
