"""Rows scaled to length 1, so that a linear score depends on the direction of a row only, as cosine similarity does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["unit_products", "unit_rows"]

SAFE = 1e15  # squares of numbers between 1 / SAFE and SAFE neither overflow nor vanish in float32


def unit_rows(X: NDArray[Any]) -> NDArray[np.float32]:
    """The rows of ``X`` divided by their Euclidean lengths; a row of zeros stays as it is.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1e300]])).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0], [0.0, 1.0]]
    """
    rows = _in_range(X)
    return rows / _lengths(rows)[:, None]


def unit_products(X: NDArray[Any], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """``unit_rows(X) @ weights.T`` without writing the unit rows to memory; one product in float32.

    >>> unit_products(np.array([[3.0, 4.0]]), np.array([[1.0, 1.0]], np.float32)).round(3).tolist()
    [[1.399999976158142]]
    """
    rows = _in_range(X)
    return (rows @ weights.T) / _lengths(rows)[:, None]


def _in_range(X: NDArray[Any]) -> NDArray[np.float32]:
    """The rows in float32. If some have a very large or very small largest value, all are divided by theirs."""
    largest = np.maximum(X.max(axis=1), -X.min(axis=1)) if X.dtype != np.uint8 else np.ones(1)
    if largest.max() > SAFE or (largest[largest > 0] < 1 / SAFE).any():
        X = X / np.where(largest > 0, largest, 1)[:, None]
    return X.astype(np.float32, copy=False)


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.where(lengths > 0, lengths, np.float32(1))
