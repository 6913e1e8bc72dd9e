"""Weighted Hamming distance: bits that a query is sure of count more. A table look-up for each byte of a code.

With the margins of a query's bits as weights, ``abs(hasher.decision_function(X))``, it is the asymmetric ranking of
real queries against binary items. Weights are taken in whole units, so that distances are exact, and tied alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import TILE, check_codes, unpack
from hashgrove.runtime.compiling import kernel

__all__ = ["LEVELS", "byte_tables", "check_weights", "nearest", "weighted_distances"]

LEVELS = 2**15  # whole units that the weights of a query add up to, nearly: distances fit into uint16


def check_weights(weights: ArrayLike, codes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Weights (n_queries, n_bits), none negative, of as many bits as the codes have bytes for."""
    array = np.asarray(weights, dtype=np.float64)
    n_queries, n_bytes = codes.shape
    if array.ndim != 2 or len(array) != n_queries or -(-array.shape[1] // 8) != n_bytes:
        raise ValueError(
            f"The 'weights' parameter must have {n_queries} rows, one a query, and {8 * n_bytes - 7} to {8 * n_bytes} "
            f"columns, one a bit. Got shape {array.shape} instead."
        )
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError("The 'weights' parameter must be finite and not negative. Got other values.")
    return array


def byte_tables(codes: ArrayLike, weights: NDArray[np.float64]) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """What each value of each byte of an item adds to its distance, uint16 (n_queries, 256 n_bytes); and the unit.

    >>> tables, unit = byte_tables(np.array([[0b01]], np.uint8), np.array([[3.0, 1.0]]))
    >>> (tables[0, :4] * unit[0]).round(3).tolist()
    [3.0, 0.0, 4.0, 1.0]
    """
    codes = check_codes(codes)
    n_queries, n_bytes = codes.shape
    sums = weights.sum(axis=1)
    units = np.where(sums > 0, sums, 1.0) / LEVELS
    whole = np.zeros((n_queries, 8 * n_bytes), np.int64)
    whole[:, : weights.shape[1]] = np.rint(weights / units[:, None])
    own = unpack(codes, n_bits=8 * n_bytes).reshape(n_queries, n_bytes, 1, 8)
    values = unpack(np.arange(256, dtype=np.uint8)[:, None], n_bits=8)
    tables = ((values != own) * whole.reshape(n_queries, n_bytes, 1, 8)).sum(axis=3)
    return tables.reshape(n_queries, -1).astype(np.uint16), units


@kernel
def weighted_distances(columns: Any, table: Any, start: int, stop: int, out: Any) -> None:
    """Write the distances of one query to items ``start`` to ``stop``, in units, into ``out``, uint16.

    ``columns`` is uint64 (n_words, n), ``table`` uint16 (256 n_bytes,). About 0.4 ns a byte of an item.
    """
    n_bytes = np.uint64(len(table) // 256)
    for i in range(np.uint64(stop - start)):
        out[i] = 0
    for b in range(n_bytes):
        shift, first = (b % np.uint64(8)) * np.uint64(8), b * np.uint64(256)
        column = columns[b // np.uint64(8), start:stop]
        for i in range(np.uint64(stop - start)):
            out[i] += table[first + ((column[i] >> shift) & np.uint64(255))]


@kernel
def _all_distances(columns: Any, table: Any, out: Any) -> None:
    for start in range(0, len(out), TILE):
        stop = min(start + TILE, len(out))
        weighted_distances(columns, table, start, stop, out[start:stop])


def nearest(
    columns: NDArray[np.uint64], table: NDArray[np.uint16], k: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Distances and positions of the ``k`` nearest items of one query, by distance and then position."""
    distances = np.empty(columns.shape[1], np.uint16)
    _all_distances(columns, table, distances)
    limit = np.partition(distances, k - 1)[k - 1]
    found = np.flatnonzero(distances <= limit)
    found = found[np.argsort(distances[found], kind="stable")[:k]]
    return distances[found], found
