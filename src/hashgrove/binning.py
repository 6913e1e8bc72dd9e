"""256 linear levels per feature: one byte instead of four, and a split is a comparison of bytes.

As in the authors' code: the range of each feature in training is widened by a thousandth on both sides and divided
into 255 steps; values outside are clipped. "n_bins == 256, so uint8."
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.jit import chunks, kernel, run

__all__ = ["N_BINS", "bin_features", "fit_bins"]

N_BINS = 256
ROWS_PER_CHUNK = 1024


def fit_bins(X: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lowest level's value and the number of levels per unit, for each feature; 0 where it is constant.

    >>> low, scale = fit_bins(np.array([[0.0], [1.0]]))
    >>> bin_features(np.array([[-5.0], [0.0], [0.5], [1.0], [9.0]]), low, scale)
    array([[  0,   0, 128, 255, 255]], dtype=uint8)
    """
    smallest, largest = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        margin = (largest - smallest) / 1000
        low, scale = smallest - margin, (N_BINS - 1) / (largest - smallest + 2 * margin)
    usable = np.isfinite(scale) & np.isfinite(low)  # neither constant nor beyond the range of float64
    return np.where(usable, low, 0.0), np.where(usable, scale, 0.0)


def bin_features(
    X: NDArray[Any], low: NDArray[np.float64], scale: NDArray[np.float64], *, n_jobs: int | None = None
) -> NDArray[np.uint8]:
    """The levels of ``X``, transposed: uint8 of shape (n_features, n)."""
    bins = np.empty((X.shape[1], len(X)), np.uint8)

    def bin_chunk(start: int, stop: int) -> None:
        rows = X[start:stop]
        rows = np.ascontiguousarray(rows, dtype=np.float32 if rows.dtype == np.uint8 else rows.dtype)
        _bin(rows, low, scale, bins[:, start:stop])

    run(bin_chunk, chunks(len(X), ROWS_PER_CHUNK), n_jobs=n_jobs)
    return bins


@kernel
def _bin(rows, low, scale, out):
    """Write the level of each value of ``rows`` (n, d) to ``out`` (d, n), in tiles that stay in cache."""
    n, d = rows.shape
    for top in range(0, n, 64):
        for left in range(0, d, 64):
            for j in range(left, min(left + 64, d)):
                for i in range(top, min(top + 64, n)):
                    level = (np.float64(rows[i, j]) - low[j]) * scale[j] + 0.5
                    out[j, i] = np.uint8(min(max(level, 0.0), 255.0))
