"""`evaluate_vectors`: the measures of `evaluate`, for items that are ranked by the distance of real vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hashgrove.metrics.expectation import expected_average_precision
from hashgrove.metrics.paired import Comparison
from hashgrove.metrics.report import Report
from hashgrove.runtime.html import html_table
from hashgrove.runtime.parameters import Flag, Integer, OneOf
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["VectorReport", "evaluate_vectors"]

QUERIES_PER_CHUNK = 64
METRICS = ("cosine", "euclidean", "dot")


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
    average_precision, query_precision : float64 arrays of shape (n_queries,)
        Average precision and precision@k of each query; NaN for queries without a relevant item.
    """

    map: float
    precision_at_k: float
    pr_area: float
    recall: NDArray[np.float64]
    precision: NDArray[np.float64]
    k: int
    average_precision: NDArray[np.float64]
    query_precision: NDArray[np.float64]

    def __str__(self) -> str:
        return "\n".join(f"{name:<22} {value}" for name, value in self._figures())

    def _repr_html_(self) -> str:
        return html_table("Retrieval by distances of vectors", self._figures())

    def _figures(self) -> list[tuple[str, str]]:
        measures = {"MAP": self.map, f"precision@{self.k}": self.precision_at_k, "precision-recall area": self.pr_area}
        return [(name, f"{value:.4f}") for name, value in measures.items()]

    def compare(self, other: Report | VectorReport) -> Comparison:
        """Differences from another evaluation of the same queries; see `Report.compare`."""
        return Comparison.of(self, other)


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
    metric : {"cosine", "euclidean", "dot"}
        Before the cosine is taken, the mean of the database is subtracted. With ``"dot"``, items with the largest inner
        product come first.
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
        relevant = flags.astype(np.int64)
        average = expected_average_precision(np.ones_like(relevant), relevant)  # NaN without a relevant item
        precision = np.where(np.isnan(average), np.nan, relevant[:, :depth].mean(axis=1))
        return average, precision, relevant.sum(axis=0)

    parts = run_tasks(of_chunk, chunks(len(rows), QUERIES_PER_CHUNK), n_jobs=n_jobs)
    average, query_precision = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    hits = np.sum([part[2] for part in parts], axis=0).cumsum()
    n_kept = int((~np.isnan(average)).sum())
    recall = precision = np.full(n, np.nan)
    area = mean = np.nan
    if n_kept:
        recall, precision = hits / hits[-1], hits / (n_kept * np.arange(1, n + 1))
        area = float(recall[0] * precision[0] + np.sum(np.diff(recall) * (precision[1:] + precision[:-1]) / 2))
        mean = float(np.nanmean(average))
    return VectorReport(
        map=mean,
        precision_at_k=float(precision[depth - 1]),
        pr_area=area,
        recall=recall,
        precision=precision,
        k=depth,
        average_precision=average,
        query_precision=query_precision,
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
