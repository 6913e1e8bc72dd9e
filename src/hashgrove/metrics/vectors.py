"""`evaluate_vectors`: the measures of `evaluate`, for items that are ranked by the distance of real vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hashgrove.metrics.expectation import expected_average_precision
from hashgrove.runtime.parameters import Flag, Integer, OneOf
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["VectorReport", "evaluate_vectors"]

QUERIES_PER_CHUNK = 64
METRICS = ("cosine", "euclidean")


@dataclass(frozen=True, eq=False, kw_only=True)
class VectorReport:
    """Measures of a ranking by real distances; ties, which are rare, are ranked by row.

    Attributes
    ----------
    map, precision_at_k, pr_area : float
        As in `Report`; the precision-recall curve runs over the number of retrieved items.
    recall, precision : float64 arrays of shape (n_database,)
        Of the first 1, 2, 3, ... items, over all queries that have a relevant item.
    k : int
    """

    map: float
    precision_at_k: float
    pr_area: float
    recall: NDArray[np.float64]
    precision: NDArray[np.float64]
    k: int


def evaluate_vectors(
    database: ArrayLike,
    queries: ArrayLike,
    *,
    y_queries: Any,
    y_database: Any,
    metric: str = "cosine",
    k: int = 100,
    min_shared: int = 2,
    exclude_self: bool = False,
    n_jobs: int | None = None,
) -> VectorReport:
    """Rank the database for each query by the distance of the vectors themselves, and measure the rankings.

    Parameters
    ----------
    database, queries : arrays of shape (n, n_features)
    y_queries, y_database : array-like of shape (n,), or tag matrix of shape (n, n_tags)
        As in `evaluate`.
    metric : {"cosine", "euclidean"}
        Before the cosine is taken, the mean of the database is subtracted.
    k, min_shared, exclude_self, n_jobs
        As in `evaluate`.

    Examples
    --------
    >>> database = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    >>> labels = {"y_queries": ["cat"], "y_database": ["cat", "dog", "cat"]}
    >>> report = evaluate_vectors(database, [[0.0, 2.0]], **labels, metric="euclidean", k=2)
    >>> round(report.map, 4), report.precision_at_k
    (0.8333, 0.5)
    """
    OneOf(METRICS).check("metric", metric)
    Integer(1).check("k", k)
    Flag().check("exclude_self", exclude_self)
    items, rows = (np.asarray(part).astype(np.float32) for part in (database, queries))
    if metric == "cosine":
        mean = items.mean(axis=0)
        items, rows = (_unit(part - mean) for part in (items, rows))
    squares = np.square(items).sum(axis=1) if metric == "euclidean" else np.zeros(len(items), np.float32)
    n = len(items) - exclude_self
    depth = min(k, n)

    def of_chunk(start: int, stop: int) -> tuple[NDArray[Any], ...]:
        distances = squares - 2 * rows[start:stop] @ items.T
        if exclude_self:
            distances[np.arange(stop - start), np.arange(start, stop)] = np.inf
        order = np.argsort(distances, axis=1, kind="stable")[:, :n]
        flags = np.take_along_axis(_relevant(y_queries[start:stop], y_database, min_shared), order, axis=1)
        relevant = flags[flags.any(axis=1)].astype(np.int64)
        return expected_average_precision(np.ones_like(relevant), relevant), relevant.sum(axis=0)

    parts = run_tasks(of_chunk, chunks(len(rows), QUERIES_PER_CHUNK), n_jobs=n_jobs)
    average, hits = np.concatenate([a for a, _ in parts]), np.sum([h for _, h in parts], axis=0).cumsum()
    if not len(average):
        nothing = np.full(n, np.nan)
        return VectorReport(
            map=np.nan, precision_at_k=np.nan, pr_area=np.nan, k=depth, recall=nothing, precision=nothing
        )
    recall, precision = hits / hits[-1], hits / (len(average) * np.arange(1, n + 1))
    return VectorReport(
        map=float(average.mean()),
        precision_at_k=float(precision[depth - 1]),
        pr_area=float(recall[0] * precision[0] + np.sum(np.diff(recall) * (precision[1:] + precision[:-1]) / 2)),
        recall=recall,
        precision=precision,
        k=depth,
    )


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32, copy=False)


def _relevant(y_queries: Any, y_database: Any, min_shared: int) -> NDArray[np.bool_]:
    """Whether each item of the database is relevant to each query."""
    if sparse.issparse(y_queries):
        return np.asarray((y_queries @ y_database.T).toarray() >= min_shared)
    y_queries, y_database = np.asarray(y_queries), np.asarray(y_database)
    if y_queries.ndim == 1:
        return y_queries[:, None] == y_database
    return (y_queries != 0).astype(np.float32) @ (y_database != 0).astype(np.float32).T >= min_shared
