"""Lloyd's k-means. Sums have a fixed order, so a seed gives the same centres with any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.numerics.distances import DistancesTo
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["kmeans"]

VALUES_PER_CHUNK = 2**20


def kmeans(
    X: NDArray[Any], n_centres: int, rng: np.random.Generator, *, max_iter: int
) -> tuple[NDArray[np.float64], int]:
    """Cluster the rows of X.

    The start is random rows; the end is when no row changes its centre, or after ``max_iter`` steps. A centre that
    loses all its rows moves to the row that is farthest from its centre. O(n n_centres d) per step.

    Parameters
    ----------
    X : array of shape (n, d)
    n_centres : int
    rng : Generator
    max_iter : int

    Returns
    -------
    centres : float64 array of shape (at most n_centres, d)
        In ascending order, without duplicates.
    n_iter : int
        Number of steps that were done.

    Examples
    --------
    >>> X = np.array([[0.0], [2.0], [9.0], [9.0]])
    >>> kmeans(X, 2, np.random.default_rng(0), max_iter=10)[0].tolist()
    [[1.0], [9.0]]
    """
    centres = X[rng.choice(len(X), size=min(n_centres, len(X)), replace=False)].astype(np.float64)
    labels = np.full(len(X), -1)
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- it is returned
        points = DistancesTo(centres)

        def assign(start: int, stop: int, points: DistancesTo = points) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
            squared = points.squared(X[start:stop])
            nearest = squared.argmin(axis=1)
            return nearest, squared[np.arange(len(nearest)), nearest]

        parts = run_tasks(assign, chunks(len(X), max(1, VALUES_PER_CHUNK // len(centres))))
        earlier, labels = labels, np.concatenate([nearest for nearest, _ in parts])
        if np.array_equal(earlier, labels):
            break
        members = sparse.csr_array((np.ones(len(X)), (labels, np.arange(len(X)))), shape=(len(centres), len(X)))
        counts = np.bincount(labels, minlength=len(centres))
        centres = (members @ X) / np.maximum(counts, 1)[:, None]
        empty = np.flatnonzero(counts == 0)
        if empty.size:
            distances = np.concatenate([squared for _, squared in parts])
            centres[empty] = X[np.argsort(-distances, kind="stable")[: empty.size]]
    return np.unique(centres, axis=0), n_iter
