"""Validation: the quality of the codes of a fit on rows that it has not seen, beside methods that need no labels.

Users should learn how good their codes are before they trust them. `validate` measures the codes on held-out rows, and
beside them the vectors themselves (cosine similarity) and codes of the same length that are learned without labels
(ITQ). The same rows are searched for with all of them, so each difference has an interval that is paired over rows.
Codes that lose against one of these by more than that are not worth their labels, and `FastHash.fit` warns of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hashgrove.baselines import ITQ, LSH
from hashgrove.encoders import Encoder
from hashgrove.hasher import Hasher
from hashgrove.metrics import Comparison, Report, VectorReport, count_distinct, evaluate, evaluate_vectors
from hashgrove.metrics.display import new_axes
from hashgrove.numerics.rows import stratified_rows
from hashgrove.runtime.html import html_table
from hashgrove.runtime.parameters import Number, ParameterError
from hashgrove.storage.stored_rows import rows_of
from hashgrove.supervision import MIN_SHARED, Supervision, Target, draw_groups

__all__ = ["HeldOut", "Measured", "Validation", "hold_out", "measure", "validate"]

K = 10
MAX_ROWS = 10_000  # that are searched
RIVAL_ROWS, RIVAL_VALUES = 50_000, 2**26  # that unsupervised codes learn from, at most
CODES, VECTORS, DECODED = "these codes", "float vectors, cosine", "these codes, decoded"


@dataclass(frozen=True)
class Measured:
    """One line of the comparison.

    ``distinct`` is None for vectors. ``lead`` is how much better the codes are than this method, with 95 % intervals
    over the held-out rows; None for the codes themselves.
    """

    method: str
    n_bytes: int
    map: float
    precision_at_10: float
    distinct: int | None
    lead: Comparison | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.lead is not None:
            map_lead, precision_lead = (difference._asdict() for difference in self.lead)
            values["lead"] = {"map": map_lead, "precision_at_10": precision_lead}
        return values


@dataclass(frozen=True)
class Validation:
    """The quality of codes on held-out rows, each of which was searched for among the others.

    Attributes
    ----------
    rows : tuple of Measured
        The codes first, then what they are compared with. Of codes that can be decoded the last row is their ranking by
        `hashgrove.index.Decoded`, of all items.
    n_rows : int
        Number of held-out rows.
    best_precision_at_10 : float
        The largest possible ``precision_at_10``: that of a row with 7 others of its class is at most 0.7.
    """

    rows: tuple[Measured, ...]
    n_rows: int
    best_precision_at_10: float = 1.0

    @property
    def map(self) -> float:
        """Mean average precision of the codes."""
        return self.rows[0].map

    def warnings(self) -> list[str]:
        """One sentence for each method whose MAP is better than that of the codes beyond the interval."""
        codes, *others = self.rows
        decoded = max((row.map for row in others if row.method == DECODED), default=0.0)
        return [
            f"On held-out rows the codes are worse than {other.method}: MAP {codes.map:.3f} against {other.map:.3f} "
            f"(95 % interval of the difference: {other.lead.map}). "
            "More labelled rows may help; otherwise use these instead."
            for other in others
            if other.lead is not None and other.lead.map.high < 0 and other.map > decoded
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        rows = [row.to_dict() for row in self.rows]
        return {"n_rows": self.n_rows, "best_precision_at_10": self.best_precision_at_10, "rows": rows}

    def plot(self, *, axes: Any = None) -> Any:
        """Draw MAP and precision at 10 of all methods as bars, with matplotlib, which the extra ``plot`` installs.

        Parameters
        ----------
        axes : sequence of two matplotlib Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        figure : matplotlib Figure
        """
        left, right = new_axes(2) if axes is None else axes
        names = [row.method for row in self.rows]
        colours = ["C0", *["C7"] * (len(names) - 1)]
        for ax, title, values in (
            (left, "MAP", [row.map for row in self.rows]),
            (right, "precision at 10", [row.precision_at_10 for row in self.rows]),
        ):
            ax.bar_label(ax.barh(names, values, color=colours), fmt=" %.3f")
            ax.set(title=title, xlim=(0, 1.15))
            ax.invert_yaxis()
        if self.best_precision_at_10 < 1:
            right.axvline(self.best_precision_at_10, linestyle=":", color="C3", label="best that is possible")
            right.legend(loc="lower right")
        right.set_yticklabels([])
        return left.figure

    def _repr_html_(self) -> str:
        header = ("method", "bytes", "MAP", "P@10", "distinct", "lead in MAP (95 %)", "lead in P@10 (95 %)")
        rows = []
        for row in self.rows:
            lead = ("", "") if row.lead is None else (row.lead.map, row.lead.precision_at_k)
            figures = (f"{row.n_bytes:,}", f"{row.map:.4f}", f"{row.precision_at_10:.4f}")
            rows.append((row.method, *figures, "" if row.distinct is None else f"{row.distinct:,}", *lead))
        return html_table(f"On {self.n_rows:,} held-out rows", rows, header=header, notes=self._limits())

    def _limits(self) -> list[str]:
        """A note if the precision cannot be 1."""
        if self.best_precision_at_10 == 1:
            return []
        return [f"P@10 is at most {self.best_precision_at_10:.4f}: rows have too few others of their class for more."]

    def __str__(self) -> str:
        lines = [
            f"{'on ' + format(self.n_rows, ',') + ' held-out rows':<28} {'bytes':>6} {'MAP':>7} {'P@10':>7}  distinct"
        ]
        for row in self.rows:
            distinct = "" if row.distinct is None else f"{row.distinct:,}"
            figures = f"{row.n_bytes:>6,} {row.map:>7.4f} {row.precision_at_10:>7.4f}"
            lines.append(f"{row.method:<28} {figures}  {distinct}".rstrip())
        lines += self._limits()
        compared = [(row.method, row.lead) for row in self.rows if row.lead is not None]
        if compared:
            lines += ["", f"{'lead of these codes (95 %)':<28} {'MAP':<21} P@10"]
        lines += [f"{method:<28} {lead.map!s:<21} {lead.precision_at_k}{_verdict(lead)}" for method, lead in compared]
        return "\n".join(lines)


def _verdict(lead: Comparison) -> str:
    return "" if lead.map.is_decided else "  (MAP not distinguishable)"


class HeldOut(NamedTuple):
    """Rows to validate on, with their labels, and the numbers of the rows to train on."""

    trained: NDArray[np.intp]
    X: NDArray[Any]
    labels: Supervision


def hold_out(
    validation: Any,
    X: NDArray[Any],
    supervision: Supervision,
    *,
    read: Callable[[Any, Any], tuple[NDArray[Any], Supervision]],
    seed: int,
    groups: NDArray[np.intp] | None = None,
) -> HeldOut:
    """Split off rows to validate on, and refuse those that could not be measured after a fit.

    Parameters
    ----------
    validation : float or (X, y)
        The share of the rows to hold out, or rows of their own with their labels, which ``read`` checks.
    X, supervision
        The rows that `fit` was given, and what is known about them.
    read : function
    seed : int
        Seed of the split.
    groups : array of shape (n,), optional
        Numbers of groups of rows; a share is made up of whole groups.
    """
    if sparse.issparse(X):
        raise TypeError("The 'X' parameter must be a dense array with validation. Got a sparse matrix instead.")
    if isinstance(validation, Real):
        Number(above=0, below=1).check("validation", validation)
        rng = np.random.default_rng([seed, 5])
        if groups is None:
            order, n_out = rng.permutation(len(X)), max(2, round(float(validation) * len(X)))
            trained, chosen = np.sort(order[n_out:]), np.sort(order[:n_out])
        else:
            is_out = draw_groups(groups, float(validation), rng)
            trained, chosen = np.flatnonzero(~is_out), np.flatnonzero(is_out)
        rows, labels = rows_of(X, chosen), supervision.subset(chosen)
        supervision.subset(trained).check_pairs()
    elif isinstance(validation, tuple | list) and len(validation) == 2:
        trained, (rows, labels) = np.arange(len(X)), read(*validation)
    else:
        raise ParameterError(
            "validation",
            "must be a share between 0 and 1, or rows and their labels (X, y). "
            f"Got {type(validation).__name__} instead.",
        )
    labels.check_pairs()
    return HeldOut(trained, rows, labels)


def validate(hasher: Hasher, X_train: Any, X: Any, y: Any, *, unlabelled: Any = None, seed: int = 0) -> Validation:
    """Measure a fitted hasher on held-out rows beside cosine similarity and unsupervised codes of the same length.

    Parameters
    ----------
    hasher : Hasher
        Fitted.
    X_train : array of shape (n_train, n_features)
        The rows it was trained on; the unsupervised codes learn from them, too.
    X, y : array of shape (n, n_features), and class labels or tags
        Rows it was not trained on. Rows without a label are left out, and at most 10,000 random ones are used.
    unlabelled : label
        The value in ``y`` of rows without a label.
    seed : int
        Seed of the unsupervised codes, and of the sample if there are more rows.
    """
    shared = getattr(hasher, "min_shared", MIN_SHARED)
    labels = Target(y, unlabelled=unlabelled).read(X, min_shared=shared, method=type(hasher).__name__)
    n_jobs = getattr(hasher, "n_jobs", None)
    return measure(hasher.encoder_, np.asarray(X_train), np.asarray(X), labels, seed=seed, n_jobs=n_jobs)


def measure(
    encoder: Encoder,
    X_train: NDArray[Any],
    X: NDArray[Any],
    labels: Supervision,
    *,
    seed: int,
    n_jobs: int | None = None,
) -> Validation:
    """Measure an encoder on the rows ``X`` with these labels; see `validate`."""
    chosen = labels.draw(MAX_ROWS, np.random.default_rng([seed, 6]))
    X, (y, options) = X[chosen], labels.subset(chosen).evaluation_labels()
    options |= {"k": K, "exclude_self": True, "n_jobs": n_jobs}

    def of_codes(codes: NDArray[np.uint8]) -> Report:
        return evaluate(codes, codes, y_queries=y, y_database=y, knn=None, **options)

    def line(method: str, n_bytes: int, report: Report | VectorReport, distinct: int | None) -> Measured:
        lead = None if report is mine else mine.compare(report)
        return Measured(method, n_bytes, report.map, report.precision_at_k, distinct, lead)

    n_bits = encoder.n_bits
    codes = encoder.encode(X, n_jobs=n_jobs)
    mine = of_codes(codes)
    rival = ITQ(n_bits, random_state=seed) if n_bits <= X.shape[1] else LSH(n_bits, random_state=seed)
    size = min(RIVAL_ROWS, max(RIVAL_VALUES // X.shape[1], 1))
    others = rival.fit(X_train[stratified_rows(len(X_train), size)]).transform(X)
    vectors = evaluate_vectors(X, X, y_queries=y, y_database=y, **options)
    name = f"{type(rival).__name__}, {n_bits} bits, no labels"
    rows = [
        line(CODES, codes.shape[1], mine, count_distinct(codes)),
        line(VECTORS, 4 * X.shape[1], vectors, None),
        line(name, others.shape[1], of_codes(others), count_distinct(others)),
    ]
    if encoder.decoder is not None:
        p = encoder.as_queries(X, n_jobs=n_jobs).probabilities
        decoded = evaluate_vectors(encoder.decoder.decode(codes), p, y_queries=y, y_database=y, metric="dot", **options)
        rows.append(line(DECODED, codes.shape[1], decoded, count_distinct(codes)))
    return Validation(rows=tuple(rows), n_rows=len(X), best_precision_at_10=mine.best_precision_at_k)
