"""Weighted Hamming distance: a bit that differs counts with its weight. One table look-up per byte of a code.

With ``abs(hasher.decision_function(X))`` as weights, bits that a query is sure of count more (asymmetric distance: real
queries against binary items). Weights are rounded to whole units, so that distances are exact and equal ones are ties.

`hashgrove.index` searches by these distances and `hashgrove.metrics` evaluates them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import TILE, check_codes, unpack
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import ParameterError

__all__ = ["N_UNITS", "all_weighted_distances", "byte_tables", "check_weights", "weighted_distances"]

N_UNITS = 2**15  # about the sum of the rounded weights of a query, so that distances fit uint16


def check_weights(weights: ArrayLike, codes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Check that there is one weight per bit of each query, finite and not negative; return them as float64.

    >>> check_weights([[1, 2, 3]], np.zeros((1, 1), np.uint8)).tolist()
    [[1.0, 2.0, 3.0]]
    """
    array = np.asarray(weights, dtype=np.float64)
    n_queries, n_bytes = codes.shape
    if array.ndim != 2 or len(array) != n_queries or -(-array.shape[1] // 8) != n_bytes:
        raise ParameterError(
            "weights",
            f"must have {n_queries} rows, one per query, and {8 * n_bytes - 7} to "
            f"{8 * n_bytes} columns, one per bit. Got shape {array.shape} instead.",
        )
    wrong = array[~(np.isfinite(array) & (array >= 0))]
    if len(wrong):
        raise ParameterError("weights", f"must be finite and not negative. Got {wrong[0]} instead.")
    return array


def byte_tables(codes: ArrayLike, weights: NDArray[np.float64]) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """Tables from the bytes of an item to their share of the distance from each query.

    Parameters
    ----------
    codes : uint8 array of shape (n_queries, n_bytes)
        The queries.
    weights : float64 array of shape (n_queries, n_bits)
        As returned by `check_weights`.

    Returns
    -------
    tables : uint16 array of shape (n_queries, 256 n_bytes)
        Entry ``256 b + value``: what byte ``b`` adds to the distance if it has this value, in units.
    units : float64 array of shape (n_queries,)
        The weight of one unit.

    Examples
    --------

    >>> tables, units = byte_tables(np.array([[0b01]], np.uint8), np.array([[3.0, 1.0]]))
    >>> (tables[0, :4] * units[0]).round(3).tolist()
    [3.0, 0.0, 4.0, 1.0]
    """
    codes = check_codes(codes)
    n_queries, n_bytes = codes.shape
    largest = weights.max(axis=1, initial=0.0)
    largest[largest == 0] = 1.0
    shares = weights / largest[:, None]  # from 0 to 1, so that their sum neither overflows nor underflows
    n_largest = np.maximum(shares.sum(axis=1), 1.0)  # the sum of the weights, counted in largest weights
    whole = np.zeros((n_queries, 8 * n_bytes), np.int64)
    whole[:, : weights.shape[1]] = np.rint(shares / n_largest[:, None] * N_UNITS)
    query_bits = unpack(codes, n_bits=8 * n_bytes).reshape(n_queries, n_bytes, 1, 8)
    byte_bits = unpack(np.arange(256, dtype=np.uint8)[:, None], n_bits=8)
    tables = ((byte_bits != query_bits) * whole.reshape(n_queries, n_bytes, 1, 8)).sum(axis=3)
    return tables.reshape(n_queries, -1).astype(np.uint16), largest / N_UNITS * n_largest


@kernel
def weighted_distances(columns: Any, table: Any, start: int, stop: int, out: Any) -> None:
    """Write the distances from one query to the items from ``start`` to ``stop``, in units, into ``out``, uint16.

    ``columns`` is uint64 (n_words, n), ``table`` is uint16 (256 n_bytes,). About 0.4 ns per byte of an item.
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
def all_weighted_distances(columns: Any, table: Any, out: Any) -> None:
    """Write the distances from one query to all items, in units, into ``out``, uint16 (n,)."""
    for start in range(0, len(out), TILE):
        stop = min(start + TILE, len(out))
        weighted_distances(columns, table, start, stop, out[start:stop])
