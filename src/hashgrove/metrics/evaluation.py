"""`evaluate`: ranks a database for a set of queries and measures the rankings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import Codes, as_columns, check_codes, check_model, model_of
from hashgrove.index import FlatIndex, Index
from hashgrove.index.ids import are_ascending
from hashgrove.index.weighted import check_weights
from hashgrove.metrics.collapse import count_distinct
from hashgrove.metrics.passes import Ranked, rank
from hashgrove.metrics.protocols import Protocol
from hashgrove.metrics.ranking import vote
from hashgrove.metrics.relevance import Relevance, labels_by_id
from hashgrove.metrics.report import Report
from hashgrove.runtime.parameters import Constraint, Flag, Integer, OneOf, ParameterError
from hashgrove.runtime.threads import available_threads, chunks

__all__ = ["TIES", "evaluate"]

QUERIES_PER_VOTE = 1024
TIES = ("expected", "id")
CONSTRAINTS: dict[str, Constraint] = {
    "k": Integer(1),
    "ties": OneOf(TIES),
    "min_shared": Integer(1),
    "exclude_self": Flag(),
    "knn": Integer(1, or_none=True),
}


def evaluate(
    database: Index | ArrayLike,
    queries: ArrayLike,
    *,
    y_queries: Any,
    y_database: Any,
    k: int = 100,
    ties: str = "expected",
    min_shared: int = 2,
    exclude_self: bool = False,
    knn: int | None = 50,
    weights: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    depth: int | None = None,
    normalise: str = "relevant",
    protocol: str | None = None,
    model: Any = None,
    n_jobs: int | None = None,
) -> Report:
    """Rank the whole database for each query by Hamming distance, and measure the rankings.

    Parameters
    ----------
    database : Index, or uint8 array of shape (n_database, n_bytes)
        An index, or packed codes. The ids of packed codes are their row numbers.
    queries : uint8 array of shape (n_queries, n_bytes)
        Packed codes.
    y_queries, y_database : array-like of shape (n,), tag matrix of shape (n, n_tags), or a mapping for the database
        Class labels of any type (equal labels are relevant), or 0/1 tags, dense or scipy.sparse (items with at least
        ``min_shared`` tags in common are relevant). Row ``i`` of ``y_database`` belongs to row ``i`` of the codes of
        the database; give ``ids`` if the labels are in another order. ``y_database`` may also be a mapping from ids to
        labels (or to rows of tags). Labels of items that are not in the database are ignored.
    k : int
        Depth of precision@k.
    ties : {"expected", "id"}
        The ranking of items at equal distances; see `Report`. The expectation is the default because ranking by id
        favours the first classes if the database is sorted by class.
    min_shared : int
        Number of shared tags that makes an item relevant; used with tags only.
    exclude_self : bool
        If True, query ``i`` is item ``i`` of the database and is left out of its own ranking.
    knn : int or None
        Number of neighbours that vote in the classification error; None means that the error is not computed.
    weights : array of shape (n_queries, n_bits), optional
        Rank by weighted distances; see `Index.search`. Then ``ties`` must be "expected", and the
        classification error is not computed.
    ids : array-like, optional
        The ids of the items that the rows of ``y_database`` belong to. Every item of the database must be among them.
    depth : int, optional
        Measure only the first ``depth`` items of each ranking; by default all.
    normalise : {"relevant", "retrieved"}
        Whether average precision is divided by the number of all relevant items, or of those among the first ``depth``
        items.
    protocol : {"full-ranking", "fasthash-paper"}, optional
        A name for values of ``depth`` and ``normalise``. ``"fasthash-paper"`` is what the paper's figures are:
        ``depth=10_000, normalise="retrieved"``. Ties still count by ``ties``: the authors' code ranks them in the order
        of the database, which the paper does not give; the expectation is the mean over all orders.
    model : str, or an object with the attribute ``digest``, optional
        The model that made the queries, if these are a plain array and the database knows its model.
    n_jobs : int, optional
        Number of threads; None or -1 means all cores.

    Returns
    -------
    report : Report

    Examples
    --------
    >>> database = np.array([[0], [1], [255]], np.uint8)
    >>> query, labels = np.array([[0]], np.uint8), {"y_queries": ["cat"], "y_database": ["cat", "dog", "cat"]}
    >>> report = evaluate(database, query, **labels, k=2)
    >>> round(report.map, 4), report.precision_at_k
    (0.8333, 0.5)

    Labels by id:

    >>> index = FlatIndex(database, ids=[30, 10, 20])
    >>> by_id = {10: "dog", 20: "cat", 30: "cat"}
    >>> evaluate(index, query, y_queries=["cat"], y_database=by_id, k=2).map == report.map
    True

    The first two items only, as one would compare with figures of other work:

    >>> report = evaluate(database, query, **labels, depth=2)
    >>> report.map, report.protocol is None
    (0.5, True)
    """
    measured = Protocol.of(protocol, depth=depth, normalise=normalise)
    options = {"k": k, "ties": ties, "min_shared": min_shared, "exclude_self": exclude_self, "knn": knn}
    for name, value in options.items():
        CONSTRAINTS[name].check(name, value)
    ids_of_items, stored = _items(database)
    check_model(queries, model, of_index=stored.model)
    items: NDArray[np.uint8] = np.asarray(stored)
    codes = check_codes(queries, n_bytes=items.shape[1] or None, name="queries")
    n_queries, n_database = len(codes), len(items)
    _check_sizes(n_queries, n_database, exclude_self)
    amounts = None if weights is None else check_weights(weights, codes)
    if amounts is not None and ties != "expected":
        raise ParameterError("ties", f"must be 'expected' if weights are given. Got {ties!r} instead.")
    available_threads(n_jobs)
    y_database = labels_by_id(y_database, ids, ids_of_items)
    labels = Relevance.from_labels(y_queries, y_database, lengths=(n_queries, n_database), min_shared=int(min_shared))
    places = np.arange(n_queries)
    if not are_ascending(ids_of_items):  # ties by id are ranked in the order of the items
        by_id = np.argsort(ids_of_items, kind="stable")
        items, labels, places = items[by_id], labels.reordered(by_id), np.argsort(by_id)
    left_out = places if exclude_self else np.full(n_queries, -1)
    length = n_database - bool(exclude_self)
    deepest = min(measured.depth or length, length)
    k = min(int(k), deepest)
    depths = _depths(k, deepest)

    ranked = rank(
        as_columns(items),
        codes,
        labels,
        left_out,
        depths,
        k,
        ties=ties,
        protocol=measured,
        weights=amounts,
        n_jobs=n_jobs,
    )
    kept = ~np.isnan(ranked.average_precision)
    if not kept.any():
        raise ParameterError(
            "y_queries",
            "must give at least one query a relevant item in the database. "
            f"Got {n_queries} queries without any instead.",
        )
    if labels.kind == "tags" or knn is None or amounts is not None:
        knn, knn_error = None, None
    else:
        knn = min(int(knn), length)
        wrong = _misclassified(FlatIndex(items), codes, labels, left_out, knn=knn, n_jobs=n_jobs)
        knn_error = float(wrong[kept].mean())
    curve = ranked.precision[kept].mean(axis=0)
    at_k = np.searchsorted(depths, k)
    radii, recall, precision = _over_radii(ranked) if measured.depth is None else _over_ranks(ranked, kept.sum())
    distances = (None, None) if amounts is not None else (ranked.relevant, ranked.totals - ranked.relevant)
    classes, class_map = _by_class(ranked.average_precision[kept], labels, kept)
    return Report(
        map=float(ranked.average_precision[kept].mean()),
        precision_at_k=float(curve[at_k]),
        pr_area=_area(recall, precision),
        knn_error=knn_error,
        precision_depths=depths,
        precision_curve=curve,
        best_precision_curve=ranked.best[kept].mean(axis=0),
        similar_distances=distances[0],
        dissimilar_distances=distances[1],
        radii=radii,
        recall=recall,
        precision=precision,
        n_queries=n_queries,
        n_without_relevant=int(n_queries - kept.sum()),
        n_database=n_database,
        k=k,
        knn=knn,
        ties=ties,
        labels=labels.kind,
        min_shared=labels.min_shared or None,
        exclude_self=bool(exclude_self),
        n_distinct=count_distinct(items),
        tied_at_k=float(ranked.tied[kept].mean()),
        classes=classes,
        class_map=class_map,
        weighted=amounts is not None,
        depth=measured.depth,
        normalise=measured.normalise,
        average_precision=ranked.average_precision,
        query_precision=np.where(kept, ranked.precision[:, at_k], np.nan),
    )


def _items(database: Index | ArrayLike) -> tuple[NDArray[Any], Codes]:
    """Ids and codes of a database; the ids of plain codes are their row numbers."""
    if isinstance(database, Index):
        return database.items()
    codes = Codes(check_codes(database, name="database"), model=model_of(database))
    return np.arange(len(codes)), codes


def _over_radii(ranked: Ranked) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Radii, and the recall and precision within them, with the items counted over all queries."""
    first, last = np.flatnonzero(ranked.totals)[[0, -1]]
    found, hits = ranked.totals.cumsum()[first : last + 1], ranked.relevant.cumsum()[first : last + 1]
    return np.arange(first, last + 1), hits / hits[-1], hits / found


def _over_ranks(ranked: Ranked, n_queries: int) -> tuple[None, NDArray[np.float64], NDArray[np.float64]]:
    """No radii, and the mean recall and precision at the ranks 1, 2, 3, ..."""
    return None, ranked.rank_recall / n_queries, ranked.rank_precision / n_queries


def _by_class(
    average_precision: NDArray[np.float64], labels: Relevance, kept: NDArray[np.bool_]
) -> tuple[NDArray[Any] | None, NDArray[np.float64] | None]:
    """The classes of the queries that were kept, and the mean average precision of each; None for tags."""
    if labels.kind == "tags":
        return None, None
    numbers, of_query = np.unique(labels.queries[kept, 0], return_inverse=True)
    sums = np.bincount(of_query, weights=average_precision)
    return labels.classes[numbers.astype(np.int64)], sums / np.bincount(of_query)


def _misclassified(
    index: FlatIndex,
    codes: NDArray[np.uint8],
    labels: Relevance,
    left_out: NDArray[np.int64],
    *,
    knn: int,
    n_jobs: int | None,
) -> NDArray[np.bool_]:
    """Whether the majority of the nearest items has another class than the query: bool (n_queries,).

    The ids of the index are 0, 1, 2, ..., the places of its items in ``labels``.
    """
    predicted = np.empty(len(codes), np.uint64)
    for start, stop in chunks(len(codes), QUERIES_PER_VOTE):
        positions = index.search(codes[start:stop], knn + 1, n_jobs=n_jobs).ids  # one more: a query may find itself
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
        raise ParameterError("queries", "must have at least one code. Got none instead.")
    if exclude_self and n_queries != n_database:
        raise ParameterError(
            "queries",
            "must be the codes of the database, in its order, if exclude_self=True. "
            f"Got {n_queries} queries and {n_database} codes in the database instead.",
        )
    if n_database < 1 + bool(exclude_self):
        raise ParameterError(
            "database", f"must have at least {1 + bool(exclude_self)} codes. Got {n_database} instead."
        )
