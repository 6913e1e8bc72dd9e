"""Principal directions by the covariance matrix, chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hashgrove.runtime.threads import chunks

__all__ = ["principal_directions", "with_fixed_signs"]

ROWS_PER_CHUNK = 8192


def principal_directions(X: NDArray[Any], n_directions: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of the rows, and the directions of largest variance, shape (n_directions, n_features).

    Time O(n d^2 + d^3), memory O(d^2) besides a chunk of rows.
    """
    n_features = X.shape[1]
    mean = X.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((n_features, n_features))
    for start, stop in chunks(len(X), ROWS_PER_CHUNK):
        centred = X[start:stop] - mean
        covariance += centred.T @ centred
    vectors = eigh(covariance, subset_by_index=(n_features - n_directions, n_features - 1))[1].T[::-1]
    return mean, np.ascontiguousarray(with_fixed_signs(vectors))


def with_fixed_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rows, each with its largest entry positive: LAPACK and ARPACK leave the sign of an eigenvector open."""
    largest = np.abs(vectors).argmax(axis=1)
    signs = np.where(vectors[np.arange(len(vectors)), largest] < 0, -1.0, 1.0)
    return vectors * signs[:, None]
