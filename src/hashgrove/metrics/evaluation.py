"""`evaluate`: from an index, queries and labels to a `Report`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import as_words, check_codes
from hashgrove.index import Index
from hashgrove.index.base import check_integer
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
from hashgrove.runtime.threads import available_threads, chunks, run_tasks

__all__ = ["evaluate"]

QUERIES_PER_CHUNK = 32
QUERIES_PER_VOTE = 1024
WEIGHTED_PER_CHUNK = 8  # each has histograms of 65,536 distances
TIES = ("expected", "id")
SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


def evaluate(
    index: Index,
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
    """Rank the whole database for every query, and measure the rankings.

    Parameters
    ----------
    index : FlatIndex or another index
        The database.
    queries : uint8 array of shape (n_queries, n_bytes)
        Packed codes.
    y_query, y_database : array-like of shape (n,), or tag matrix of shape (n, n_tags)
        Class labels of any type (relevant = equal), or 0/1 tags, dense or scipy.sparse (relevant = at least
        ``min_shared`` in common). Row ``i`` of ``y_database`` belongs to row ``i`` of ``index.codes``, which
        is in ascending order of ids.
    k : int
        Depth of precision@k.
    ties : {"expected", "id"}
        How items at one distance are ranked; see `Report`. By id, a database that is sorted by class favours
        the first classes, so the expectation is the default.
    min_shared : int
        For tags only.
    exclude_self : bool
        Query ``i`` is item ``i`` of the database and is left out of its own ranking.
    knn : int or None
        Neighbours that vote in the classification error; None leaves it out.
    weights : array of shape (n_queries, n_bits), optional
        Rank by weighted distances, see `FlatIndex.search_weighted`; ties by expectation only, and no kNN error.
    n_jobs : int, optional
        Threads; None or -1 is every core.

    Returns
    -------
    report : Report

    Examples
    --------
    >>> from hashgrove import FlatIndex
    >>> index = FlatIndex(np.array([[0], [1], [255]], np.uint8))
    >>> report = evaluate(index, np.array([[0]], np.uint8), ["cat"], ["cat", "dog", "cat"], k=2)
    >>> round(report.map, 4), report.precision_at_k
    (0.8333, 0.5)
    """
    codes = check_codes(queries, n_bytes=index.n_bytes, name="queries")
    n_queries, n_database = len(codes), len(index)
    _check_sizes(n_queries, n_database, exclude_self)
    _check_options(k=k, ties=ties, min_shared=min_shared, knn=knn)
    amounts = None if weights is None else check_weights(weights, codes)
    if amounts is not None and ties != "expected":
        raise ValueError(f"The 'ties' parameter must be 'expected' with weights. Got {ties!r} instead.")
    available_threads(n_jobs)
    labels = Relevance.from_labels(y_query, y_database, lengths=(n_queries, n_database), min_shared=int(min_shared))
    own = np.arange(n_queries) if exclude_self else np.full(n_queries, -1)
    length = n_database - bool(exclude_self)
    k = min(int(k), length)
    depths = _depths(k, length)

    average_precision, precision, totals, relevant = _rank(
        index, codes, labels, own, depths, ties=ties, length=length, weights=amounts, n_jobs=n_jobs
    )
    kept = ~np.isnan(average_precision)
    if not kept.any():
        raise ValueError(
            "The 'y_query' parameter must give some query a relevant item in the database. "
            f"Got none for all {n_queries} queries instead."
        )
    if labels.kind == "tags" or knn is None or amounts is not None:
        knn, knn_error = None, None
    else:
        knn = min(int(knn), length)
        wrong = _misclassified(index, codes, labels, own, knn=knn, n_jobs=n_jobs)
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
    index: Index,
    codes: NDArray[np.uint8],
    labels: Relevance,
    own: NDArray[np.int64],
    depths: NDArray[np.int64],
    *,
    ties: str,
    length: int,
    weights: NDArray[np.float64] | None,
    n_jobs: int | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Average precision (n_queries,), NaN without a relevant item; precision at depths; pooled histograms."""
    columns, words = index.columns, as_words(codes)
    n_distances = 8 * codes.shape[1] + 1 if weights is None else 2**16
    if weights is None:
        count, n_rows = _counter(columns, words, labels, own), QUERIES_PER_CHUNK
    else:
        count, n_rows = _weighted_counter(columns, codes, weights, labels, own), WEIGHTED_PER_CHUNK
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
            item = (columns, words[part], labels.columns, labels.queries[part], labels.min_shared, own[part])
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
    columns: NDArray[np.uint64], words: NDArray[np.uint64], labels: Relevance, own: NDArray[np.int64]
) -> Callable[[slice, NDArray[np.int64], NDArray[np.int64]], None]:
    """A function that fills in the histograms of a part of the queries; classes are counted in their own order."""
    if labels.kind == "tags":

        def count(part: slice, totals: NDArray[np.int64], relevant: NDArray[np.int64]) -> None:
            marks = labels.columns, labels.queries[part], labels.min_shared
            count_relevant(columns, words[part], *marks, own[part], totals, relevant)

        return count
    order = np.argsort(labels.columns[0], kind="stable")
    sorted_columns = np.ascontiguousarray(columns[:, order])
    sorted_columns.flags.writeable = False  # as the columns of an index are: one compilation for both
    firsts, lasts = (np.searchsorted(labels.columns[0], labels.queries[:, 0], side=s, sorter=order) for s in SIDES)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    sorted_own = np.where(own < 0, -1, place[own])

    def count_sorted(part: slice, totals: NDArray[np.int64], relevant: NDArray[np.int64]) -> None:
        count_by_class(sorted_columns, words[part], firsts[part], lasts[part], sorted_own[part], totals, relevant)

    return count_sorted


def _weighted_counter(
    columns: NDArray[np.uint64],
    codes: NDArray[np.uint8],
    weights: NDArray[np.float64],
    labels: Relevance,
    own: NDArray[np.int64],
) -> Callable[[slice, NDArray[np.int64], NDArray[np.int64]], None]:
    """The same for weighted distances."""

    def count(part: slice, totals: NDArray[np.int64], relevant: NDArray[np.int64]) -> None:
        tables, _ = byte_tables(codes[part], weights[part])
        marks = labels.columns, labels.queries[part], labels.min_shared
        count_weighted(columns, tables, *marks, own[part], totals, relevant)

    return count


def _misclassified(
    index: Index,
    codes: NDArray[np.uint8],
    labels: Relevance,
    own: NDArray[np.int64],
    *,
    knn: int,
    n_jobs: int | None,
) -> NDArray[np.bool_]:
    """Whether the vote of the nearest gives another class than the query's, bool (n_queries,)."""
    predicted = np.empty(len(codes), np.uint64)
    for start, stop in chunks(len(codes), QUERIES_PER_VOTE):
        _, ids = index.search(codes[start:stop], knn + 1, n_jobs=n_jobs)  # one more: a query may find itself
        positions = np.searchsorted(index.ids, ids)
        vote(positions, own[start:stop], knn, labels.columns[0], labels.n_classes, predicted[start:stop])
    return predicted != labels.queries[:, 0]


def _area(recall: NDArray[np.float64], precision: NDArray[np.float64]) -> float:
    """Area under the curve by trapezoids, with the first point drawn level to recall 0."""
    heights = (precision[1:] + precision[:-1]) / 2
    return float(recall[0] * precision[0] + np.sum(np.diff(recall) * heights))


def _depths(k: int, length: int) -> NDArray[np.int64]:
    """1, 2, 5, 10, 20, 50, ... below ``length``, with ``k`` and ``length``, ascending."""
    steps = [step * 10**power for power in range(len(str(length))) for step in (1, 2, 5)]
    return np.array(sorted({step for step in steps if step < length} | {k, length}), np.int64)


def _check_sizes(n_queries: int, n_database: int, exclude_self: bool) -> None:
    if n_queries == 0:
        raise ValueError("The 'queries' parameter must have at least one code. Got none instead.")
    if exclude_self and n_queries != n_database:
        raise ValueError(
            "The 'queries' parameter must be the codes of the index, in its order, with exclude_self=True. "
            f"Got {n_queries} queries and {n_database} codes in the index instead."
        )
    if n_database < 1 + bool(exclude_self):
        raise ValueError(
            f"The 'index' parameter must hold at least {1 + bool(exclude_self)} codes. Got {n_database} instead."
        )


def _check_options(*, k: Any, ties: Any, min_shared: Any, knn: Any) -> None:
    if ties not in TIES:
        raise ValueError(f"The 'ties' parameter must be one of {list(TIES)}. Got {ties!r} instead.")
    check_integer(k, "k", 1)
    check_integer(min_shared, "min_shared", 1)
    if knn is not None:
        check_integer(knn, "knn", 1)
