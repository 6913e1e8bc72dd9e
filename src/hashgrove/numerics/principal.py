"""Principal component analysis from the covariance matrix, which is summed up from chunks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.runtime.threads import chunks

__all__ = ["principal_directions", "scatter_matrix"]

ROWS_PER_CHUNK = 8192


def scatter_matrix(X: NDArray[Any], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of (x - mean)(x - mean)' over the rows x of X, computed from chunks of rows.

    Time O(n d^2) and memory O(d^2), plus one chunk of rows, for X of shape (n, d).

    >>> scatter_matrix(np.array([[0.0, 3.0], [2.0, 3.0]]), np.array([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    total = np.zeros((X.shape[1], X.shape[1]))
    for start, stop in chunks(len(X), ROWS_PER_CHUNK):
        centred = X[start:stop] - mean
        total += centred.T @ centred
    return total


def principal_directions(X: NDArray[Any], n_directions: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The directions along which the rows of X vary most.

    Time O(n d^2 + d^3) and memory O(d^2), plus one chunk of rows, for X of shape (n, d).

    Parameters
    ----------
    X : array of shape (n, n_features)
    n_directions : int
        At most the number of features.

    Returns
    -------
    mean : float64 array of shape (n_features,)
        Mean of the rows.
    directions : float64 array of shape (n_directions, n_features)
        Unit vectors, in descending order of variance.

    Examples
    --------
    >>> mean, directions = principal_directions(np.array([[0.0, 3.0], [2.0, 3.0], [4.0, 3.0]]), 1)
    >>> mean.tolist(), directions.tolist()
    ([2.0, 3.0], [[1.0, 0.0]])
    """
    n_features = X.shape[1]
    mean = X.mean(axis=0, dtype=np.float64)
    last = (n_features - n_directions, n_features - 1)
    vectors = eigh(scatter_matrix(X, mean), subset_by_index=last)[1].T[::-1]
    return mean, np.ascontiguousarray(with_fixed_signs(vectors))
