"""Weighted Hamming distance: a bit that differs counts with its weight. A few counts of ones per word of a code.

A weight is a whole number, and its binary digits are planes: the bits of a code that differ and have a digit of a plane
are counted at once, as in the scan, and the counts of all planes make the distance.

With ``abs(hasher.decision_function(X))`` as weights, bits that a query is sure of count more (asymmetric distance: real
queries against binary items). Weights are rounded to whole units, so that distances are exact and equal ones are ties.

`hashgrove.index` searches by these distances and `hashgrove.metrics` evaluates them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import TILE, as_words, check_codes, pack
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import ParameterError
from hashgrove.runtime.simd import popcount

__all__ = ["N_UNITS", "all_weighted_distances", "check_weights", "weight_planes", "weighted_distances"]

N_UNITS = 2**15  # about the sum of the rounded weights of a query, so that distances fit uint16
STEP = 4  # planes that are counted in one pass over the codes


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


def weight_planes(codes: ArrayLike, weights: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Round weights to whole units, and divide them up into planes of binary digits.

    Parameters
    ----------
    codes : uint8 array of shape (n_queries, n_bytes)
        The queries.
    weights : float64 array of shape (n_queries, n_bits)
        As returned by `check_weights`.

    Returns
    -------
    planes : uint64 array of shape (n_queries, 1 + n_planes, n_words)
        The words of each query, and then the digits of the weights, the highest first; the number of planes is a
        multiple of four.
    units : float64 array of shape (n_queries,)
        The weight of one unit.

    Examples
    --------
    >>> planes, units = weight_planes(np.array([[0b01]], np.uint8), np.array([[3.0, 1.0]]))
    >>> distances = np.empty(4, np.uint16)
    >>> all_weighted_distances(np.arange(4, dtype=np.uint64)[None], planes[0], distances)
    >>> (distances * units[0]).round(3).tolist()
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
    n_planes = STEP * max(1, -(-int(whole.max(initial=0)).bit_length() // STEP))
    digits = whole[:, None] >> np.arange(n_planes)[::-1, None] & 1
    packed = pack(digits.reshape(-1, 8 * n_bytes).astype(np.bool_))
    planes = as_words(packed).reshape(n_queries, n_planes, -1)
    return np.concatenate([as_words(codes)[:, None], planes], axis=1), largest / N_UNITS * n_largest


@kernel
def weighted_distances(columns: Any, planes: Any, start: int, stop: int, sums: Any, out: Any) -> None:
    """Write the distances from one query to the items from ``start`` to ``stop``, in units, into ``out``, uint16.

    ``columns`` is uint64 (n_words, n), ``planes`` is one entry of those of `weight_planes`, and ``sums`` is uint64 with
    room for as many items. An exclusive or, and an intersection and a count per plane, for each word of an item.
    """
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    n = np.uint64(stop - start)
    for i in range(n):
        sums[i] = 0
    for p in range(1, planes.shape[0], STEP):
        for w in range(columns.shape[0]):
            query, column = planes[0, w], columns[w, start:stop]
            a, b, c, d = planes[p, w], planes[p + 1, w], planes[p + 2, w], planes[p + 3, w]
            shift = np.uint64(0 if w else STEP)
            for i in range(n):
                word = column[i] ^ query
                high = (popcount(word & a) << three) + (popcount(word & b) << two)
                sums[i] = (sums[i] << shift) + high + (popcount(word & c) << one) + popcount(word & d)
    for i in range(n):
        out[i] = sums[i]


@kernel
def all_weighted_distances(columns: Any, planes: Any, out: Any) -> None:
    """Write the distances from one query to all items, in units, into ``out``, uint16 (n,)."""
    sums = np.empty(TILE, np.uint64)
    for start in range(0, len(out), TILE):
        stop = min(start + TILE, len(out))
        weighted_distances(columns, planes, start, stop, sums, out[start:stop])
