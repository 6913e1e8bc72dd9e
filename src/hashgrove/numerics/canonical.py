"""Canonical correlation analysis: the directions of features that correlate most with labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, eigh

from hashgrove.numerics.eigen import with_fixed_signs
from hashgrove.runtime.threads import chunks

__all__ = ["canonical_directions", "linear_directions"]

ROWS_PER_CHUNK = 8192
LEAST_CORRELATION = 1e-6  # a direction below this has nothing to do with the labels

Rows = Callable[[int, int], NDArray[np.float64]]  # (start, stop) -> these rows of the features, minus the mean row


def linear_directions(
    X: NDArray[Any], Y: sparse.csr_array, *, regularisation: float, n_directions: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """`canonical_directions` of the columns of X.

    Parameters
    ----------
    X : array of shape (n, n_features)
    Y, regularisation, n_directions
        As for `canonical_directions`.

    Returns
    -------
    mean : float64 array of shape (n_features,)
        Mean of the rows of X.
    directions, correlations
        As for `canonical_directions`.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0], [3.0, 2.0]])
    >>> Y = sparse.csr_array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> mean, directions, correlations = linear_directions(X, Y, regularisation=1e-4)
    >>> ((X - mean) @ directions.T).round(1).ravel().tolist(), correlations.round(2).tolist()
    ([-1.0, -1.0, 1.0, 1.0], [1.0])
    """
    mean = X.mean(axis=0, dtype=np.float64)
    found = canonical_directions(
        lambda start, stop: X[start:stop] - mean, Y, regularisation=regularisation, n_directions=n_directions
    )
    return mean, *found


def canonical_directions(
    rows: Rows, Y: sparse.csr_array, *, regularisation: float, n_directions: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions of unit variance that correlate most with the columns of Y.

    Parameters
    ----------
    rows : callable
        ``rows(start, stop)`` returns these rows of the features, centred. It is called for a few rows at a time, so
        the features need not be in memory all at once.
    Y : scipy.sparse.csr_array of shape (n, n_labels)
        One column per class or tag, 1 where the row has it.
    regularisation : float
        Added to the diagonal of both covariance matrices, in units of their mean variance.
    n_directions : int, optional
        The largest number of directions. There are never more than columns of Y and, for classes, one fewer.

    Returns
    -------
    directions : float64 array of shape (n_found, n_features)
    correlations : float64 array of shape (n_found,)
        In descending order.

    Examples
    --------
    >>> X = np.array([[-1.0, 2.0], [-1.0, -2.0], [1.0, 2.0], [1.0, -2.0]])
    >>> Y = sparse.csr_array((X[:, :1] > 0).astype(float))
    >>> directions, _ = canonical_directions(lambda start, stop: X[start:stop], Y, regularisation=1e-6)
    >>> directions.round(3).tolist()
    [[1.0, 0.0]]
    """
    n = Y.shape[0]
    mean = np.asarray(Y.sum(axis=0)) / n
    xx: Any = 0.0
    xy: Any = 0.0  # the rows are centred, so that their products with Y are those with Y minus its mean
    for start, stop in chunks(n, ROWS_PER_CHUNK):
        part = rows(start, stop)
        xx = xx + part.T @ part
        xy = xy + (Y[start:stop].T @ part).T
    xx, xy, yy = xx / n, xy / n, (Y.T @ Y).toarray() / n - np.outer(mean, mean)
    for covariance in (xx, yy):
        variance = np.trace(covariance) / len(covariance)
        covariance[np.diag_indices(len(covariance))] += regularisation * variance if variance > 0 else 1.0
    explained = xy @ cho_solve(cho_factor(yy), xy.T)
    n_kept = min(len(xx), len(yy) if n_directions is None else min(n_directions, len(yy)))
    squares, vectors = eigh(explained, xx, subset_by_index=(len(xx) - n_kept, len(xx) - 1))
    correlations = np.sqrt(np.maximum(squares[::-1], 0.0))
    kept = correlations > LEAST_CORRELATION
    kept[0] = True
    return np.ascontiguousarray(with_fixed_signs(vectors.T[::-1][kept])), correlations[kept]
