"""`evaluate`: ranks a database for a set of queries and measures the rankings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import as_columns, as_words, check_codes
from hashgrove.index import FlatIndex, Index
from hashgrove.index.weighted import byte_tables, check_weights
from hashgrove.metrics.ranking import (
    count_by_class,
    count_relevant,
    count_weighted,
    expected_average_precision,
    expected_hits,
    rank_by_id,
    vote,
)
from hashgrove.metrics.relevance import Relevance
from hashgrove.metrics.report import Report
from hashgrove.runtime.parameters import Constraint, Flag, Integer, OneOf
from hashgrove.runtime.threads import available_threads, chunks, run_tasks

__all__ = ["TIES", "evaluate"]

QUERIES_PER_CHUNK = 32
QUERIES_PER_VOTE = 1024
WEIGHTED_PER_CHUNK = 8  # fewer, since each query has histograms of 65,536 distances
TIES = ("expected", "id")
CONSTRAINTS: dict[str, Constraint] = {
    "k": Integer(1),
    "ties": OneOf(TIES),
    "min_shared": Integer(1),
    "exclude_self": Flag(),
    "knn": Integer(1, or_none=True),
}
SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


def evaluate(
    database: Index | ArrayLike,
    queries: ArrayLike,
    y_query: Any,
    y_database: Any,
    *,
    k: int = 100,
    ties: str = "expected",
    min_shared: int = 2,
    exclude_self: bool = False,
    knn: int | None = 50,
    weights: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Report:
    """Rank the whole database for each query by Hamming distance, and measure the rankings.

    Parameters
    ----------
    database : Index, or uint8 array of shape (n_database, n_bytes)
        An index, or packed codes. The ids of packed codes are their row numbers.
    queries : uint8 array of shape (n_queries, n_bytes)
        Packed codes.
    y_query, y_database : array-like of shape (n,), or tag matrix of shape (n, n_tags)
        Class labels of any type (equal labels are relevant), or 0/1 tags, dense or scipy.sparse (items with at least
        ``min_shared`` tags in common are relevant). Row ``i`` of ``y_database`` belongs to row ``i`` of the packed
        codes or, for an index, to row ``i`` of its ``codes``, which are in ascending order of the ids.
    k : int
        Depth of precision@k.
    ties : {"expected", "id"}
        How items at equal distances are ranked; see `Report`. The expectation is the default because ranking by id
        favours the first classes if the database is sorted by class.
    min_shared : int
        Number of shared tags that makes an item relevant; used with tags only.
    exclude_self : bool
        If True, query ``i`` is item ``i`` of the database and is left out of its own ranking.
    knn : int or None
        Number of neighbours that vote in the classification error; None means that the error is not computed.
    weights : array of shape (n_queries, n_bits), optional
        Rank by weighted distances; see `FlatIndex.search_weighted`. Then ``ties`` must be "expected", and the
        classification error is not computed.
    n_jobs : int, optional
        Number of threads; None or -1 means all cores.

    Returns
    -------
    report : Report

    Examples
    --------
    >>> database = np.array([[0], [1], [255]], np.uint8)
    >>> report = evaluate(database, np.array([[0]], np.uint8), ["cat"], ["cat", "dog", "cat"], k=2)
    >>> round(report.map, 4), report.precision_at_k
    (0.8333, 0.5)
    """
    options = {"k": k, "ties": ties, "min_shared": min_shared, "exclude_self": exclude_self, "knn": knn}
    for name, value in options.items():
        CONSTRAINTS[name].check(name, value)
    items = database.codes if isinstance(database, Index) else check_codes(database, name="database")
    codes = check_codes(queries, n_bytes=items.shape[1] or None, name="queries")
    n_queries, n_database = len(codes), len(items)
    _check_sizes(n_queries, n_database, exclude_self)
    amounts = None if weights is None else check_weights(weights, codes)
    if amounts is not None and ties != "expected":
        raise ValueError(f"The 'ties' parameter must be 'expected' if weights are given. Got {ties!r} instead.")
    available_threads(n_jobs)
    labels = Relevance.from_labels(y_query, y_database, lengths=(n_queries, n_database), min_shared=int(min_shared))
    left_out = np.arange(n_queries) if exclude_self else np.full(n_queries, -1)
    length = n_database - bool(exclude_self)
    k = min(int(k), length)
    depths = _depths(k, length)

    average_precision, precision, totals, relevant = _rank(
        as_columns(items), codes, labels, left_out, depths, ties=ties, length=length, weights=amounts, n_jobs=n_jobs
    )
    kept = ~np.isnan(average_precision)
    if not kept.any():
        raise ValueError(
            "The 'y_query' parameter must give at least one query a relevant item in the database. "
            f"Got {n_queries} queries without any instead."
        )
    if labels.kind == "tags" or knn is None or amounts is not None:
        knn, knn_error = None, None
    else:
        knn = min(int(knn), length)
        index = database if isinstance(database, Index) else FlatIndex(items)
        wrong = _misclassified(index, codes, labels, left_out, knn=knn, n_jobs=n_jobs)
        knn_error = float(wrong[kept].mean())
    curve = precision[kept].mean(axis=0)
    first, last = np.flatnonzero(totals)[[0, -1]]
    found, hits = totals.cumsum()[first : last + 1], relevant.cumsum()[first : last + 1]
    recall, radius_precision = hits / hits[-1], hits / found
    return Report(
        map=float(average_precision[kept].mean()),
        precision_at_k=float(curve[np.searchsorted(depths, k)]),
        pr_area=_area(recall, radius_precision),
        knn_error=knn_error,
        precision_depths=depths,
        precision_curve=curve,
        radii=np.arange(first, last + 1),
        recall=recall,
        precision=radius_precision,
        n_queries=n_queries,
        n_without_relevant=int(n_queries - kept.sum()),
        n_database=n_database,
        k=k,
        knn=knn,
        ties=ties,
        labels=labels.kind,
        min_shared=labels.min_shared or None,
        exclude_self=bool(exclude_self),
        weighted=amounts is not None,
    )


def _rank(
    columns: NDArray[np.uint64],
    codes: NDArray[np.uint8],
    labels: Relevance,
    left_out: NDArray[np.int64],
    depths: NDArray[np.int64],
    *,
    ties: str,
    length: int,
    weights: NDArray[np.float64] | None,
    n_jobs: int | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Measures of all rankings: average precision, precision at the depths, and pooled histograms of distances.

    Average precision (n_queries,) is NaN for a query without a relevant item. The two histograms, of all items and of
    the relevant ones, are summed over the other queries.
    """
    words = as_words(codes)
    n_distances = 8 * codes.shape[1] + 1 if weights is None else 2**16
    if weights is None:
        count, n_rows = _counter(columns, words, labels, left_out), QUERIES_PER_CHUNK
    else:
        count, n_rows = _weighted_counter(columns, codes, weights, labels, left_out), WEIGHTED_PER_CHUNK
    interval = np.searchsorted(depths, np.arange(length + 1)) if ties == "id" else np.empty(0, np.int64)

    def rank_chunk(start: int, stop: int) -> tuple[Any, ...]:
        part = slice(start, stop)
        totals = np.empty((stop - start, n_distances), np.int64)
        relevant = np.empty_like(totals)
        count(part, totals, relevant)
        n_relevant = relevant.sum(axis=1)
        if ties == "expected":
            average_precision = expected_average_precision(totals, relevant)
            hits = expected_hits(totals, relevant, depths)
        else:
            ranks, seen = totals.cumsum(axis=1) - totals, relevant.cumsum(axis=1) - relevant
            item = (columns, words[part], labels.columns, labels.queries[part], labels.min_shared, left_out[part])
            sums, counts = np.zeros(stop - start), np.zeros((stop - start, len(depths)), np.int64)
            rank_by_id(*item, ranks, seen, interval, sums, counts)
            hits = counts.cumsum(axis=1)
            average_precision = np.where(n_relevant > 0, sums / np.maximum(n_relevant, 1), np.nan)
        kept = n_relevant > 0
        return average_precision, hits / depths, totals[kept].sum(axis=0), relevant[kept].sum(axis=0)

    parts = run_tasks(rank_chunk, chunks(len(codes), n_rows), n_jobs=n_jobs)
    average_precision, precision, totals, relevant = zip(*parts, strict=True)
    return (
        np.concatenate(average_precision),
        np.concatenate(precision),
        np.sum(totals, axis=0),
        np.sum(relevant, axis=0),
    )


def _counter(
    columns: NDArray[np.uint64], words: NDArray[np.uint64], labels: Relevance, left_out: NDArray[np.int64]
) -> Callable[[slice, NDArray[np.int64], NDArray[np.int64]], None]:
    """A function that fills in the histograms of some of the queries.

    For class labels the database is sorted by class, so that relevant items need no marks.
    """
    if labels.kind == "tags":

        def count(part: slice, totals: NDArray[np.int64], relevant: NDArray[np.int64]) -> None:
            marks = labels.columns, labels.queries[part], labels.min_shared
            count_relevant(columns, words[part], *marks, left_out[part], totals, relevant)

        return count
    order = np.argsort(labels.columns[0], kind="stable")
    sorted_columns = np.ascontiguousarray(columns[:, order])
    sorted_columns.flags.writeable = False  # like `columns`, so that kernels are compiled once
    firsts, lasts = (np.searchsorted(labels.columns[0], labels.queries[:, 0], side=s, sorter=order) for s in SIDES)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    sorted_left_out = np.where(left_out < 0, -1, place[left_out])

    def count_sorted(part: slice, totals: NDArray[np.int64], relevant: NDArray[np.int64]) -> None:
        count_by_class(sorted_columns, words[part], firsts[part], lasts[part], sorted_left_out[part], totals, relevant)

    return count_sorted


def _weighted_counter(
    columns: NDArray[np.uint64],
    codes: NDArray[np.uint8],
    weights: NDArray[np.float64],
    labels: Relevance,
    left_out: NDArray[np.int64],
) -> Callable[[slice, NDArray[np.int64], NDArray[np.int64]], None]:
    """The same as `_counter`, for weighted distances."""

    def count(part: slice, totals: NDArray[np.int64], relevant: NDArray[np.int64]) -> None:
        tables, _ = byte_tables(codes[part], weights[part])
        marks = labels.columns, labels.queries[part], labels.min_shared
        count_weighted(columns, tables, *marks, left_out[part], totals, relevant)

    return count


def _misclassified(
    index: Index,
    codes: NDArray[np.uint8],
    labels: Relevance,
    left_out: NDArray[np.int64],
    *,
    knn: int,
    n_jobs: int | None,
) -> NDArray[np.bool_]:
    """Whether the majority of the nearest items has another class than the query: bool (n_queries,)."""
    predicted = np.empty(len(codes), np.uint64)
    for start, stop in chunks(len(codes), QUERIES_PER_VOTE):
        _, ids = index.search(codes[start:stop], knn + 1, n_jobs=n_jobs)  # one more: a query may find itself
        positions = np.searchsorted(index.ids, ids)
        vote(positions, left_out[start:stop], knn, labels.columns[0], labels.n_classes, predicted[start:stop])
    return predicted != labels.queries[:, 0]


def _area(recall: NDArray[np.float64], precision: NDArray[np.float64]) -> float:
    """Area under the curve by trapezoids; the curve is level from recall 0 to the first point."""
    heights = (precision[1:] + precision[:-1]) / 2
    return float(recall[0] * precision[0] + np.sum(np.diff(recall) * heights))


def _depths(k: int, length: int) -> NDArray[np.int64]:
    """The depths 1, 2, 5, 10, 20, 50, ... below ``length``, and ``k`` and ``length``, in ascending order."""
    steps = [step * 10**power for power in range(len(str(length))) for step in (1, 2, 5)]
    return np.array(sorted({step for step in steps if step < length} | {k, length}), np.int64)


def _check_sizes(n_queries: int, n_database: int, exclude_self: bool) -> None:
    if n_queries == 0:
        raise ValueError("The 'queries' parameter must have at least one code. Got none instead.")
    if exclude_self and n_queries != n_database:
        raise ValueError(
            "The 'queries' parameter must be the codes of the database, in its order, if exclude_self=True. "
            f"Got {n_queries} queries and {n_database} codes in the database instead."
        )
    if n_database < 1 + bool(exclude_self):
        raise ValueError(
            f"The 'database' parameter must have at least {1 + bool(exclude_self)} codes. Got {n_database} instead."
        )
