"""Passes over a database, chunk by chunk of the queries: what is counted for each query, and the measures from that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import as_words
from hashgrove.index.weighted import weight_planes
from hashgrove.metrics.expectation import expected_average_precision, expected_hits
from hashgrove.metrics.protocols import Protocol
from hashgrove.metrics.ranking import (
    count_by_class,
    count_relevant,
    count_weighted,
    rank_by_id,
)
from hashgrove.metrics.relevance import Relevance
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["Ranked", "rank"]

QUERIES_PER_CHUNK = 32
WEIGHTED_PER_CHUNK = 8  # fewer, since each query has histograms of 65,536 distances
SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


class Ranked(NamedTuple):
    """Measures of all rankings.

    ``average_precision`` (n_queries,) is NaN for a query without a relevant item; ``precision`` (n_queries, n_depths)
    is at the depths, and ``best`` is what it would be if all relevant items came first; ``tied`` (n_queries,) is the
    number of items at the distance of the k-th. The histograms ``totals`` and ``relevant``, of the distances of all
    items and of the relevant ones, are summed over the queries that have a relevant item. If the protocol has a depth,
    ``rank_precision`` and ``rank_recall`` (depth,) are the sums over these queries of the precision and recall at the
    ranks 1, 2, 3, ...; otherwise they are empty.
    """

    average_precision: NDArray[np.float64]
    precision: NDArray[np.float64]
    best: NDArray[np.float64]
    tied: NDArray[np.int64]
    totals: NDArray[np.int64]
    relevant: NDArray[np.int64]
    rank_precision: NDArray[np.float64]
    rank_recall: NDArray[np.float64]


def rank(
    columns: NDArray[np.uint64],
    codes: NDArray[np.uint8],
    labels: Relevance,
    left_out: NDArray[np.int64],
    depths: NDArray[np.int64],
    k: int,
    *,
    ties: str,
    protocol: Protocol,
    weights: NDArray[np.float64] | None,
    n_jobs: int | None,
) -> Ranked:
    """Rank the database for all queries, chunk by chunk; the last of the ``depths`` is that of the protocol."""
    words = as_words(codes)
    n_distances = 8 * codes.shape[1] + 1 if weights is None else 2**16
    if weights is None:
        count, n_rows = _counter(columns, words, labels, left_out), QUERIES_PER_CHUNK
    else:
        count, n_rows = _weighted_counter(columns, codes, weights, labels, left_out), WEIGHTED_PER_CHUNK
    counted = depths if protocol.depth is None else np.arange(1, depths[-1] + 1)
    shown = np.searchsorted(counted, depths)
    interval = np.searchsorted(counted, np.arange(depths[-1] + 1)) if ties == "id" else np.empty(0, np.int64)

    def rank_chunk(start: int, stop: int) -> tuple[Any, ...]:
        part = slice(start, stop)
        totals = np.empty((stop - start, n_distances), np.int64)
        relevant = np.empty_like(totals)
        count(part, totals, relevant)
        n_relevant = relevant.sum(axis=1)
        if ties == "expected":
            average_precision = expected_average_precision(totals, relevant, **protocol._asdict())
            hits = expected_hits(totals, relevant, counted)
        else:
            ranks, seen = totals.cumsum(axis=1) - totals, relevant.cumsum(axis=1) - relevant
            item = (columns, words[part], labels.columns, labels.queries[part], labels.min_shared, left_out[part])
            sums, counts = np.zeros(stop - start), np.zeros((stop - start, len(counted)), np.int64)
            rank_by_id(*item, ranks, seen, interval, sums, counts)
            hits = counts.cumsum(axis=1)
            divisor = hits[:, -1] if protocol.normalise == "retrieved" else n_relevant
            average_precision = np.where(n_relevant > 0, sums / np.maximum(divisor, 1), np.nan)
        kept = n_relevant > 0
        at_k = np.argmax(totals.cumsum(axis=1) >= k, axis=1)
        tied = np.take_along_axis(totals, at_k[:, None], axis=1)[:, 0]
        of_ranks = hits[kept] if protocol.depth is not None else hits[kept, :0]
        return (
            average_precision,
            hits[:, shown] / depths,
            np.minimum(n_relevant[:, None], depths) / depths,
            tied,
            totals[kept].sum(axis=0),
            relevant[kept].sum(axis=0),
            of_ranks.sum(axis=0) / counted[: of_ranks.shape[1]],
            (of_ranks / n_relevant[kept, None]).sum(axis=0),
        )

    parts = run_tasks(rank_chunk, chunks(len(codes), n_rows), n_jobs=n_jobs)
    average_precision, precision, best, tied, *summed = zip(*parts, strict=True)
    return Ranked(
        np.concatenate(average_precision),
        np.concatenate(precision),
        np.concatenate(best),
        np.concatenate(tied),
        *(np.sum(part, axis=0) for part in summed),
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
        planes, _ = weight_planes(codes[part], weights[part])
        marks = labels.columns, labels.queries[part], labels.min_shared
        count_weighted(columns, planes, *marks, left_out[part], totals, relevant)

    return count
