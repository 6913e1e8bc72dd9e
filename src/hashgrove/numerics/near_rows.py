"""A graph of near rows, over which labels spread (label spreading, Zhou et al., NIPS 2003)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["near_rows_graph", "spread_labels"]

ROWS_PER_CHUNK = 512
POWER = 3  # of the cosine: the weight of a near row
KEPT = 0.9  # the share of what a row hears from near rows; the rest is its own label
N_STEPS = 20


def near_rows_graph(Z: NDArray[np.float32], *, n_neighbours: int = 10, n_jobs: int | None = None) -> sparse.csr_array:
    """The weights between each row and its nearest rows by cosine, max(cos, 0)^3, divided by the roots of their sums.

    Two rows are joined if one of them is among the nearest rows of the other. O(n^2 d) time; memory for 512 x n cosines
    per thread, and for at most 2 x n_neighbours x n weights.

    Parameters
    ----------
    Z : float32 array of shape (n, d)
        Rows of length 1.
    n_neighbours : int, default=10
    n_jobs : int, optional

    Examples
    --------
    >>> Z = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    >>> near_rows_graph(Z, n_neighbours=1).toarray().tolist()[0]
    [0.0, 1.0, 0.0, 0.0]
    """
    n = len(Z)
    k = min(n_neighbours, n - 1)

    def nearest(start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        cosines = Z[start:stop] @ Z.T
        cosines[np.arange(stop - start), np.arange(start, stop)] = -np.inf
        found = np.argpartition(cosines, n - k, axis=1)[:, n - k :]
        return found, np.take_along_axis(cosines, found, axis=1)

    parts = run_tasks(nearest, chunks(n, ROWS_PER_CHUNK), n_jobs=n_jobs)
    found = np.concatenate([part for part, _ in parts]).ravel()
    weights = np.maximum(np.concatenate([part for _, part in parts]), 0).ravel().astype(np.float64) ** POWER
    directed = sparse.csr_array((weights, found, np.arange(0, n * k + 1, k)), shape=(n, n))
    joined = directed.maximum(directed.T)
    sums = np.asarray(joined.sum(axis=1)).ravel()
    scale = sparse.diags_array(1 / np.sqrt(np.where(sums > 0, sums, 1.0)))
    return sparse.csr_array(scale @ joined @ scale)


def spread_labels(graph: sparse.csr_array, labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share that each row hears of each label after 20 steps, in which rows pass on nine tenths of what they hear.

    Parameters
    ----------
    graph : sparse array of shape (n, n)
        See `near_rows_graph`.
    labels : array of shape (n, n_labels)
        A row of zeros is a row without a label.

    Examples
    --------
    >>> Z = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    >>> labels = np.array([[1.0, 0], [0, 0], [0, 1], [0, 0]])
    >>> (spread_labels(near_rows_graph(Z, n_neighbours=1), labels) > 0).tolist()
    [[True, False], [True, False], [False, True], [False, True]]
    """
    heard = labels
    for _ in range(N_STEPS):
        heard = KEPT * (graph @ heard) + (1 - KEPT) * labels
    return heard
