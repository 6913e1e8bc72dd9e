"""Eigenvectors with a fixed sign, and matrices that whiten: the inverse square root of a symmetric matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

__all__ = ["inverse_root", "whitening", "with_fixed_signs"]

TINY = float(np.finfo(np.float64).tiny)


def with_fixed_signs(vectors: NDArray[Any]) -> NDArray[Any]:
    """Turn each vector so that its entry of largest magnitude is positive.

    LAPACK and ARPACK may return an eigenvector with either sign; a fixed one makes results reproducible.

    Parameters
    ----------
    vectors : array of shape (n_vectors, n), one vector per row, or of shape (n,) for a single vector

    Returns
    -------
    vectors : array of the same shape

    Examples
    --------
    >>> with_fixed_signs(np.array([[1.0, -2.0], [-1.0, 3.0]])).tolist()
    [[-1.0, 2.0], [-1.0, 3.0]]
    """
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=-1, keepdims=True), axis=-1)
    return vectors * np.where(largest < 0, -1.0, 1.0)


def whitening(matrix: NDArray[Any], *, floor: float, driver: str = "evd") -> NDArray[np.float64]:
    """W with W' M W = identity, for a symmetric, positive semi-definite matrix M.

    Parameters
    ----------
    matrix : array of shape (n, n)
    floor : float
        Eigenvectors whose eigenvalue is at most this share of the largest one are left out: they are mostly
        rounding error. The eigenvector of the largest eigenvalue is always kept.
    driver : {"evd", "evr"}
        The LAPACK routine. The results of the two differ in their last bits.

    Returns
    -------
    W : array of shape (n, n_kept)

    Examples
    --------
    >>> W = whitening(np.diag([4.0, 0.25, 0.0]), floor=1e-8)
    >>> np.abs(W).round(6).tolist()
    [[0.0, 0.5], [2.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = eigh(matrix, driver=driver)
    kept = values > max(floor * values[-1], TINY)
    kept[-1] = True
    return np.asarray(vectors[:, kept] / np.sqrt(np.maximum(values[kept], TINY)))


def inverse_root(
    matrix: NDArray[Any], *, added: float = 0.0, floor: float = 0.0, least: float = 0.0
) -> NDArray[np.float64]:
    """(M + added)^(-1/2) for a symmetric, positive semi-definite matrix M: the symmetric matrix that whitens.

    Parameters
    ----------
    matrix : array of shape (n, n)
    added : float
        Added to every eigenvalue, as ZCA whitening does; negative eigenvalues count as 0 first.
    floor, least : float
        Eigenvectors whose eigenvalue is at most ``floor`` times the largest one, or at most ``least``, are left
        out: they are mostly rounding error.

    Returns
    -------
    root : array of shape (n, n)

    Examples
    --------
    >>> inverse_root(np.diag([3.9, 0.15]), added=0.1).round(6).tolist()
    [[0.5, 0.0], [0.0, 2.0]]
    """
    values, vectors = eigh(matrix, driver="evd")
    values = np.maximum(values, 0.0) + added
    kept = values > max(floor * values[-1], least)
    vectors = vectors[:, kept]
    return np.asarray((vectors / np.sqrt(values[kept])) @ vectors.T)
