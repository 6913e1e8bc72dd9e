"""`Report`: the results of an evaluation, and the settings that it was done with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.metrics.collapse import collapse_warning
from hashgrove.metrics.paired import Comparison
from hashgrove.metrics.protocols import Protocol
from hashgrove.runtime.html import html_table

if TYPE_CHECKING:
    from hashgrove.metrics.display import ReportDisplay
    from hashgrove.metrics.vectors import VectorReport

__all__ = ["Report"]

PER_QUERY = ("average_precision", "query_precision")


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """Measures of retrieval by Hamming distance, averaged over queries, and the settings of the evaluation.

    **Queries without a relevant item** are left out of all measures; ``n_without_relevant`` counts them.
    **Ties** are items at equal distances from the query. With ``ties="expected"``, MAP and precision are expectations
    over random orders of the tied items; with ``ties="id"``, tied items are ranked in ascending order of their ids.

    Attributes
    ----------
    map : float
        Mean average precision: the average precision of a query is the mean, over its relevant items, of the
        precision at their ranks. It is taken over the *full* ranking or, if ``depth`` is given, over its first items,
        and then divided by the number of relevant items that ``normalise`` says.
    precision_at_k : float
        Mean fraction of relevant items among the first ``k`` items.
    pr_area : float
        Area under the precision-recall curve (see ``radii``) by trapezoids; the curve is taken to be level from
        recall 0 to its first point.
    knn_error : float or None
        Fraction of queries whose class is not the majority class of the ``knn`` nearest items. For both values of
        ``ties`` these are ranked by distance and then by id. Of classes with equally many votes, the one whose
        nearest item comes first wins. None if it was not computed, and for tags.
    classes, class_map : arrays or None
        The classes of the queries, in ascending order, and the mean average precision of the queries of each. None
        for tags.
    macro_map : float or None
        Mean of ``class_map``: every class counts the same, however many queries it has. None for tags.
    precision_depths, precision_curve : arrays
        Mean precision among the first 1, 2, 5, 10, 20, 50, ... items, up to the whole ranking. ``k`` is one of the
        depths. With a ``depth``, the curve ends there.
    best_precision_curve : array
        What ``precision_curve`` would be if all relevant items came first. A query with 7 relevant items has a
        precision of at most 0.7 among the first 10.
    similar_distances, dissimilar_distances : arrays or None
        The number of relevant items, and of other items, at the Hamming distances 0, 1, 2, ... from the queries,
        counted over the queries. None if distances were weighted.
    radii, recall, precision : arrays
        Precision-recall curve over Hamming radii: the items within a radius are counted over all queries, and then
        the counts are divided. The curve starts at the smallest radius with an item and ends at the radius with all
        of them. Ties do not matter here. With a ``depth``, the curve is over the ranks from 1 to ``depth`` instead,
        with the means of the recall and of the precision of the queries, and ``radii`` is None.
    n_queries, n_without_relevant : int
        Number of queries, and how many of them have no relevant item.
    n_database : int
        Number of items in the database.
    n_distinct : int
        Number of different codes in the database. Items that were trained on often share one code per class; see
        `warning`.
    tied_at_k : float
        Mean number of items at the distance of the k-th item, itself included. Where it is large, which of them are
        among the first ``k`` is arbitrary.
    k : int
        Depth of ``precision_at_k``: the value asked for, or the length of the ranking if that is smaller.
    knn : int or None
        Number of neighbours that vote: the value asked for, or the length of the ranking if that is smaller. None
        if there was no vote.
    ties : {"expected", "id"}
    labels : {"classes", "tags"}
        An item is relevant if it has the class of the query, or at least ``min_shared`` tags in common with it.
    min_shared : int or None
        None for classes.
    exclude_self : bool
        Whether query ``i`` was item ``i`` of the database, and was left out of its own ranking.
    weighted : bool
        Whether distances were weighted. If so, the unit of ``radii`` is 1 / 32,768 of the sum of the query's weights.
    depth : int or None
        The number of first items that were measured; None means all.
    normalise : {"relevant", "retrieved"}
        Whether average precision was divided by all relevant items, or by those among the first ``depth`` items.
    protocol : str or None
        The name of this ``depth`` and ``normalise``: ``"full-ranking"``, ``"fasthash-paper"``, or None.
    average_precision, query_precision : arrays of shape (n_queries,)
        Average precision and precision@k of each query, from which `compare` finds intervals; NaN for queries without
        a relevant item. They are not in `to_dict`.
    """

    map: float
    precision_at_k: float
    pr_area: float
    knn_error: float | None
    precision_depths: NDArray[np.int64]
    precision_curve: NDArray[np.float64]
    best_precision_curve: NDArray[np.float64]
    similar_distances: NDArray[np.int64] | None
    dissimilar_distances: NDArray[np.int64] | None
    radii: NDArray[np.int64] | None
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
    n_distinct: int
    tied_at_k: float
    classes: NDArray[Any] | None = None
    class_map: NDArray[np.float64] | None = None
    weighted: bool = False
    depth: int | None = None
    normalise: str = "relevant"
    average_precision: NDArray[np.float64]
    query_precision: NDArray[np.float64]

    @property
    def protocol(self) -> str | None:
        """The name of the protocol that gave the figures; None if it has none."""
        return Protocol(self.depth, self.normalise).name

    @property
    def macro_map(self) -> float | None:
        """Mean of ``class_map``; None for tags."""
        return None if self.class_map is None else float(self.class_map.mean())

    @property
    def best_precision_at_k(self) -> float:
        """The largest possible ``precision_at_k``: some queries may have fewer than ``k`` relevant items."""
        return float(self.best_precision_curve[np.searchsorted(self.precision_depths, self.k)])

    @property
    def warning(self) -> str | None:
        """Advice if the codes of the database have collapsed; None if they have not."""
        return collapse_warning(self.n_database, self.n_distinct)

    def compare(self, other: Report | VectorReport) -> Comparison:
        """Differences from another evaluation of the same queries, with 95 % intervals over queries.

        Parameters
        ----------
        other : Report or VectorReport
            The same queries in the same order, with the same ``k``.

        Examples
        --------
        >>> from hashgrove import evaluate
        >>> good, bad = np.array([[0], [1], [254], [255]], np.uint8), np.array([[0], [255], [1], [254]], np.uint8)
        >>> labels = {"y_queries": [0, 0, 1, 1], "y_database": [0, 0, 1, 1], "k": 1, "exclude_self": True}
        >>> ours, theirs = (evaluate(codes, codes, **labels) for codes in (good, bad))
        >>> print(ours.compare(theirs).map)
        +0.667 to +0.667
        """
        return Comparison.of(self, other)

    def plot(self, kind: str | None = None, *, ax: Any = None, name: str | None = None) -> ReportDisplay:
        """Draw the report with matplotlib, which the extra ``plot`` installs.

        Parameters
        ----------
        kind : {"precision", "precision-recall", "distances", "classes"}, optional
            Precision at K, with the best values that are possible; precision and recall; distances of relevant and
            other items; mean average precision per class. By default all of them, in a new figure.
        ax : matplotlib Axes, optional
            Where to draw one ``kind``, such as the axes of another report's picture, to compare the two.
        name : str, optional
            The name of these codes in the legend.

        Examples
        --------
        >>> display = report.plot("precision", name="FastHash")  # doctest: +SKIP
        >>> other.plot("precision", ax=display.axes_["precision"], name="ITQ")  # doctest: +SKIP
        """
        from hashgrove.metrics.display import ReportDisplay

        return ReportDisplay.of(self, kind, ax, name)

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, with arrays as lists, so that `json.dumps` can write them; macro MAP and protocol too.

        Values per query are left out.
        """
        names = [field.name for field in fields(self) if field.name not in PER_QUERY]
        values = {name: getattr(self, name) for name in names}
        values |= {"macro_map": self.macro_map, "protocol": self.protocol}
        values = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        if values["classes"] is not None:
            plain = (bool, int, float, str)
            values["classes"] = [label if isinstance(label, plain) else str(label) for label in values["classes"]]
        return values

    def __str__(self) -> str:
        return "\n".join([*(f"{name:<22} {value}" for name, value in self._figures()), *self._notes()])

    def _repr_html_(self) -> str:
        return html_table("Retrieval by Hamming distance", self._figures(), notes=self._notes())

    def _figures(self) -> list[tuple[str, str]]:
        """Names and values of the measures."""
        rows = [("MAP", f"{self.map:.4f}")]
        if self.macro_map is not None and self.class_map is not None:
            classes = _count(len(self.class_map), "class", "classes")
            rows.append((f"macro MAP ({classes})", f"{self.macro_map:.4f}"))
        best = self.best_precision_at_k
        limit = "" if best == 1 else f" (at most {best:.4f}: queries have too few relevant items for more)"
        rows.append((f"precision@{self.k}", f"{self.precision_at_k:.4f}{limit}"))
        rows.append(("precision-recall area", f"{self.pr_area:.4f}"))
        if self.knn_error is not None:
            rows.append((f"{self.knn}-NN error", f"{self.knn_error:.4f}"))
        return rows

    def _notes(self) -> list[str]:
        """How it was measured, and what is to be known about the codes."""
        relevant = "same class" if self.labels == "classes" else f"at least {self.min_shared} shared tags"
        ties = "expected over their orders" if self.ties == "expected" else "by id"
        queries = _count(self.n_queries, "query", "queries")
        lines = [f"{queries} on {self.n_database:,} items; relevant: {relevant}; ties: {ties}"]
        tied = f"{self.tied_at_k:,.1f} items tie at rank {self.k} with the item there, on average"
        lines.append(f"{_count(self.n_distinct, 'distinct code', 'distinct codes')}; {tied}")
        if self.depth is not None:
            named = "" if self.protocol is None else f" (protocol {self.protocol})"
            lines.append(f"of the first {self.depth:,} items, MAP over the {self.normalise} relevant ones{named}")
        if self.weighted:
            lines.append("the bits of each query counted with weights")
        if self.exclude_self:
            lines.append("each query was left out of its own ranking")
        if self.n_without_relevant:
            were = "was" if self.n_without_relevant == 1 else "were"
            left_out = _count(self.n_without_relevant, "query", "queries")
            lines.append(f"{left_out} without a relevant item {were} left out of all measures")
        if self.warning is not None:
            lines.append(f"warning: {self.warning}")
        return lines


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"
