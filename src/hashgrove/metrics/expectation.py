"""Measures as expectations over random orders of tied items, from two histograms of distances per query.

Items at equal distances from a query are tied. The histograms, of all items and of the relevant ones, give the
expectation in closed form (McSherry and Najork, 2008, "Computing information retrieval performance measures efficiently
in the presence of tied scores"). If a group of ties is cut, because only the first items are measured, the number of
its relevant items that are left is random too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel

__all__ = ["expected_average_precision", "expected_hits"]

NEGLIGIBLE = 1e-18  # probability, as a share of the largest one, from which on the rest adds nothing


def expected_average_precision(
    totals: NDArray[np.int64], relevant: NDArray[np.int64], *, depth: int | None = None, normalise: str = "relevant"
) -> NDArray[np.float64]:
    """Average precision from histograms of distances, as an expectation over random orders of tied items.

    Parameters
    ----------
    totals : int array of shape (n_queries, n_distances)
        Number of items at each distance.
    relevant : int array of shape (n_queries, n_distances)
        Number of relevant items among them.
    depth : int, optional
        Number of first items that are looked at; by default all. The order of the items also decides which items of
        the last group of ties are among them.
    normalise : {"relevant", "retrieved"}
        Whether the sum of the precisions is divided by the number of all relevant items, or of those among the first
        ``depth`` items. If there are none among them, the average precision is 0.

    Returns
    -------
    average_precision : float64 array of shape (n_queries,)
        NaN for a query without a relevant item.

    Examples
    --------
    Two items at one distance, one of them relevant: it comes first (1) or second (1/2).

    >>> expected_average_precision(np.array([[2]]), np.array([[1]]))
    array([0.75])

    Of the first item alone: it is relevant (1) or not (0).

    >>> expected_average_precision(np.array([[2]]), np.array([[1]]), depth=1, normalise="retrieved")
    array([0.5])
    """
    totals, relevant = np.asarray(totals, np.int64), np.asarray(relevant, np.int64)
    length = int(totals.sum(axis=1).max(initial=0))
    depth = length if depth is None else min(int(depth), length)
    average_precision = np.empty(len(totals))
    _average_precision(totals, relevant, depth, normalise == "retrieved", _harmonic(depth), average_precision)
    return average_precision


@lru_cache(maxsize=1)  # every chunk of queries asks for the same
def _harmonic(n: int) -> NDArray[np.float64]:
    """The harmonic numbers 0, 1, 1 + 1/2, ... up to the n-th."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])


@kernel
def _group_sum(before: int, hits_before: int, n: int, r: int, harmonic: Any) -> float:
    """Expected sum of the precisions at r relevant items, in random order among n places after ``before`` items.

    A relevant item is at place i with probability 1/n, and the other r - 1 relevant items are spread evenly over the
    other n - 1 places. With N items before, R of them relevant, the precision at place i is
    (R + 1 + (i - 1) (r - 1) / (n - 1)) / (N + i). Its sum over i needs harmonic numbers only.
    """
    inverse = harmonic[before + n] - harmonic[before]
    share = (r - 1) / max(n - 1, 1)
    return r / n * ((hits_before + 1) * inverse + share * (n - (before + 1) * inverse))


@kernel
def _average_precision(
    totals: Any, relevant: Any, depth: int, by_retrieved: bool, harmonic: Any, average_precision: Any
) -> None:
    """Write the expected average precision of each query. O(distances + relevant items in the group that is cut)."""
    for q in range(totals.shape[0]):
        n_relevant = relevant[q].sum()
        if n_relevant == 0:
            average_precision[q] = np.nan
            continue
        total, items, hits, d = 0.0, 0, 0, 0
        while d < totals.shape[1] and items + totals[q, d] <= depth:
            n, r = totals[q, d], relevant[q, d]
            if r > 0:
                total += _group_sum(items, hits, n, r, harmonic)
            items, hits, d = items + n, hits + r, d + 1
        if items < depth and d < totals.shape[1]:
            group = totals[q, d], relevant[q, d]
            average_precision[q] = _with_part(
                total, items, hits, group, depth - items, by_retrieved, n_relevant, harmonic
            )
        elif by_retrieved:
            average_precision[q] = total / max(hits, 1)
        else:
            average_precision[q] = total / n_relevant


@kernel
def _with_part(
    total: float,
    items: int,
    hits: int,
    group: Any,
    m: int,
    by_retrieved: bool,
    n_relevant: int,
    harmonic: Any,
) -> float:
    """Expected average precision if only ``m`` items of the last group, (size, relevant items), are looked at.

    How many of them are relevant follows a hypergeometric distribution. Its probabilities are computed from that of
    the most likely number, in both directions, until they no longer matter.
    """
    n, r = group
    low, high = max(0, m - (n - r)), min(r, m)
    mode = min(max((m + 1) * (r + 1) // (n + 2), low), high)
    mass = mean = 0.0
    for step in (-1, 1):
        k, weight = mode, 1.0
        while low <= k <= high and weight > NEGLIGIBLE:
            if step < 0 or k > mode:  # the mode itself counts once
                divisor = hits + k if by_retrieved else n_relevant
                mass += weight
                mean += weight * (total + _group_sum(items, hits, m, k, harmonic)) / max(divisor, 1)
            if step < 0:
                weight *= k * (n - r - m + k) / ((r - k + 1) * (m - k + 1))
            else:
                weight *= (r - k) * (m - k) / ((k + 1) * (n - r - m + k + 1))
            k += step
    return mean / mass


def expected_hits(totals: NDArray[np.int64], relevant: NDArray[np.int64], depths: NDArray[np.int64]) -> NDArray[Any]:
    """Expected number of relevant items among the first places of each ranking.

    Within a group of ties it grows evenly from place to place.

    Parameters
    ----------
    totals, relevant : int arrays of shape (n_queries, n_distances)
        As for `expected_average_precision`.
    depths : int array of shape (n_depths,)
        Numbers of first places, ascending.

    Returns
    -------
    hits : float64 array of shape (n_queries, n_depths)

    Examples
    --------
    >>> expected_hits(np.array([[2, 1]]), np.array([[1, 1]]), np.array([1, 2, 3]))
    array([[0.5, 1. , 2. ]])
    """
    hits = np.empty((len(totals), len(depths)))
    _interpolate(totals, relevant, depths, hits)
    return hits


@kernel
def _interpolate(totals: Any, relevant: Any, depths: Any, hits: Any) -> None:
    """Write the expected hits at each depth; no depth is larger than the sum of a row of ``totals``."""
    for q in range(totals.shape[0]):
        d, items, found = 0, 0, 0
        for k in range(len(depths)):
            while items + totals[q, d] < depths[k]:
                items += totals[q, d]
                found += relevant[q, d]
                d += 1
            share = (depths[k] - items) / max(totals[q, d], 1)
            hits[q, k] = found + share * relevant[q, d]
