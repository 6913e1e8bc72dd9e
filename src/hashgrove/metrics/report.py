"""The result of an evaluation, with the protocol that gave it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Report"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """Measures of retrieval by Hamming distance, averaged over queries, and the protocol behind them.

    **Queries without a relevant item** are left out of every measure; ``n_without_relevant`` counts them.
    **Ties** are items at one distance from the query. Under ``"expected"``, MAP and precision are
    expectations over random orders inside the ties; under ``"id"``, ties are in ascending order of id.

    Attributes
    ----------
    map : float
        Mean over queries of average precision over the *full* ranking: the mean, over the relevant items, of
        the precision at the rank of each.
    precision_at_k : float
        Mean fraction of relevant items among the first ``k``.
    pr_area : float
        Area under the precision-recall curve below, by trapezoids; left of the first point the curve is taken
        to be level.
    knn_error : float or None
        Fraction of queries whose class is not the majority class of the ``knn`` nearest by (distance, id),
        under either tie rule; of classes with equal votes, the one whose nearest item comes first wins. None
        for tags.
    precision_depths, precision_curve : arrays
        Mean precision among the first 1, 2, 5, 10, 20, 50, ... items, up to the whole ranking; ``k`` is among
        them.
    radii, recall, precision : arrays
        Precision-recall curve over Hamming radii: counts of items within a radius are added up over all
        queries, then divided. It starts at the smallest radius that holds an item and ends where all are
        found; ties are of no matter.
    n_queries, n_without_relevant : int
        Number of queries, and of those left out among them.
    n_database : int
        Items in the index.
    k : int
        Depth of ``precision_at_k``: as asked for, but at most the length of the ranking.
    knn : int or None
        Neighbours that vote: as asked for, but at most the length of the ranking; None where there is no
        vote.
    ties : {"expected", "id"}
    labels : {"classes", "tags"}
        Relevant means an equal class, or at least ``min_shared`` tags in common.
    min_shared : int or None
        None for classes.
    exclude_self : bool
        Whether query ``i`` was item ``i``, left out of its own ranking.
    weighted : bool
        Whether bits counted with weights; then ``radii`` are 1 / 32,768 of the sum of a query's weights.
    """

    map: float
    precision_at_k: float
    pr_area: float
    knn_error: float | None
    precision_depths: NDArray[np.int64]
    precision_curve: NDArray[np.float64]
    radii: NDArray[np.int64]
    recall: NDArray[np.float64]
    precision: NDArray[np.float64]
    n_queries: int
    n_without_relevant: int
    n_database: int
    k: int
    knn: int | None
    ties: str
    labels: str
    min_shared: int | None
    exclude_self: bool
    weighted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """All fields, arrays as lists: ready for `json.dumps`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}

    def __str__(self) -> str:
        relevant = "same class" if self.labels == "classes" else f"at least {self.min_shared} shared tags"
        ties = "expected over their orders" if self.ties == "expected" else "by id"
        rows = [
            ("MAP", self.map),
            (f"precision@{self.k}", self.precision_at_k),
            ("precision-recall area", self.pr_area),
        ]
        if self.knn_error is not None:
            rows.append((f"{self.knn}-NN error", self.knn_error))
        lines = [f"{name:<22} {value:.4f}" for name, value in rows]
        lines.append(f"{self.n_queries:,} queries on {self.n_database:,} items; relevant: {relevant}; ties: {ties}")
        if self.weighted:
            lines.append("bits of a query counted with weights")
        if self.exclude_self:
            lines.append("each query was left out of its own ranking")
        if self.n_without_relevant:
            queries, were = ("query", "was") if self.n_without_relevant == 1 else ("queries", "were")
            left_out = f"{self.n_without_relevant:,} {queries} without a relevant item {were}"
            lines.append(f"{left_out} left out of all measures")
        return "\n".join(lines)
