"""Canonical directions: those along which rows correlate most with their labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh

from hashgrove.runtime.threads import chunks

__all__ = ["canonical_directions", "linear_directions"]

ROWS_PER_CHUNK = 8192
LEAST_CORRELATION = 1e-6  # directions below it have nothing to do with the labels

Rows = Callable[[int, int], NDArray[np.float64]]  # rows from start to stop, with their mean subtracted


def linear_directions(
    X: NDArray[Any], Y: NDArray[np.float64], *, regularisation: float, n_directions: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean of the rows of X, and the `canonical_directions` of the features as they are."""
    mean = X.mean(axis=0, dtype=np.float64)
    found = canonical_directions(
        lambda start, stop: X[start:stop] - mean, Y, regularisation=regularisation, n_directions=n_directions
    )
    return mean, *found


def canonical_directions(
    rows: Rows, Y: NDArray[np.float64], *, regularisation: float, n_directions: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions of unit variance that correlate most with Y, and their correlations, largest first.

    There are at most as many as columns of Y, and for classes one less. ``rows`` gives a few rows at a time, so that
    they need not be in memory together.
    """
    Y = Y - Y.mean(axis=0)
    xx: Any = 0.0
    xy: Any = 0.0
    for start, stop in chunks(len(Y), ROWS_PER_CHUNK):
        part = rows(start, stop)
        xx = xx + part.T @ part
        xy = xy + part.T @ Y[start:stop]
    xx, xy, yy = xx / len(Y), xy / len(Y), Y.T @ Y / len(Y)
    for covariance in (xx, yy):
        variance = np.trace(covariance) / len(covariance)
        covariance[np.diag_indices(len(covariance))] += regularisation * variance if variance > 0 else 1.0
    explained = xy @ cho_solve(cho_factor(yy), xy.T)
    n_kept = min(len(xx), len(yy) if n_directions is None else min(n_directions, len(yy)))
    squares, vectors = eigh(explained, xx, subset_by_index=(len(xx) - n_kept, len(xx) - 1))
    correlations = np.sqrt(np.maximum(squares[::-1], 0.0))
    kept = correlations > LEAST_CORRELATION
    kept[0] = True
    directions = vectors.T[::-1][kept]
    largest = np.abs(directions).argmax(axis=1)
    directions *= np.sign(directions[np.arange(len(directions)), largest])[:, None]  # LAPACK leaves the sign open
    return np.ascontiguousarray(directions), correlations[kept]
