"""Learning curves: how good codes become with more rows, and from where on more rows no longer pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone

from hashgrove.hasher import SupervisedHasher
from hashgrove.metrics import evaluate
from hashgrove.runtime.parameters import Integer, Number, ParameterError
from hashgrove.supervision import MIN_SHARED, Target

__all__ = ["LearningCurve", "learning_curve"]

MAX_QUERIES = 5000  # held-out rows that are searched
HALVINGS = 4  # of all rows, for the default sizes
LEAST_ROWS = 100  # of the default sizes


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Quality on held-out rows as a function of the number of training rows.

    Attributes
    ----------
    rows : tuple of int
        Numbers of training rows, ascending.
    values : float64 array of shape (n_repeats, n_sizes)
        Mean average precision. Each repeat has held-out rows of its own; its larger sets of training rows contain the
        smaller ones.
    tolerance : float
        The gain of MAP that is not worth more rows.
    """

    rows: tuple[int, ...]
    values: NDArray[np.float64]
    tolerance: float

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean over the repeats, for each number of rows."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def spread(self) -> NDArray[np.float64]:
        """The standard deviation over the repeats, for each number of rows; NaN if there is one repeat."""
        if len(self.values) == 1:
            return np.full(len(self.rows), np.nan)
        return np.asarray(self.values.std(axis=0, ddof=1))

    @property
    def enough(self) -> int | None:
        """The smallest number of rows from which on more rows stop paying; None if the curve still rises at its end.

        The largest number of rows is better by at most ``tolerance``, even if the standard error of the difference,
        which is paired over the repeats, is added.
        """
        gains = self.values[:, -1:] - self.values
        errors = np.zeros(len(self.rows))
        if len(gains) > 1:
            errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
        pays = gains.mean(axis=0) + errors > self.tolerance
        first = 0 if not pays.any() else int(np.flatnonzero(pays)[-1]) + 1
        return self.rows[first] if first < len(self.rows) - 1 else None

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "rows": list(self.rows),
            "map": self.values.tolist(),
            "tolerance": self.tolerance,
            "enough": self.enough,
        }

    def __str__(self) -> str:
        lines = [f"{'rows':>11} {'MAP':>7}  spread"]
        for n, mean, spread in zip(self.rows, self.mean, self.spread, strict=True):
            lines.append(f"{n:>11,} {mean:>7.4f}  {'' if np.isnan(spread) else format(spread, '.4f')}".rstrip())
        if self.enough is None:
            last = self.mean[-1] - self.mean[-2]
            lines.append(f"The curve still rises: the last step gained {last:.4f}. More rows may pay.")
        else:
            lines.append(f"From {self.enough:,} rows on, more rows gained at most {self.tolerance:g}.")
        return "\n".join(lines)


def learning_curve(
    hasher: SupervisedHasher,
    X: ArrayLike,
    y: Any,
    *,
    rows: Sequence[int] | None = None,
    n_repeats: int = 3,
    held_out: float = 0.2,
    tolerance: float = 0.005,
    seed: int = 0,
) -> LearningCurve:
    """Fit clones of a hasher to more and more rows, and measure each on rows that were held out.

    Use it to train on a sample where there are many rows: it says how many are enough.

    Parameters
    ----------
    hasher : SupervisedHasher
        Its settings are used; the hasher itself is not fitted. Give it the hash function that you will use: with
        ``"auto"`` each fit chooses anew.
    X, y
        Rows with class labels or tags.
    rows : sequence of int, optional
        Numbers of training rows, ascending; at least two. By default all rows that are not held out, and halves of that
        number, down to a sixteenth or to 100 rows.
    n_repeats : int, default=3
        How often rows are held out and drawn anew.
    held_out : float, default=0.2
        The share of the rows that are held out; at most 5,000 of them are searched, each among the others.
    tolerance : float, default=0.005
        The gain of MAP that is not worth more rows.
    seed : int, default=0
        Seed of what is drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FastHash
    >>> X, y = load_digits(return_X_y=True)
    >>> curve = learning_curve(FastHash(16, hash_function="posterior", random_state=0), X, y, rows=[100, 400, 1400])
    >>> curve.rows, bool((np.diff(curve.mean) > 0).all())
    ((100, 400, 1400), True)
    """
    Integer(1).check("n_repeats", n_repeats)
    Number(above=0, below=1).check("held_out", held_out)
    Number(low=0, below=1).check("tolerance", tolerance)
    X = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X)
    labels = Target(y).read(X, min_shared=getattr(hasher, "min_shared", MIN_SHARED), method=type(hasher).__name__)
    known = np.flatnonzero(labels.known)
    n_out = max(2, round(held_out * len(known)))
    sizes = _sizes(rows, len(known) - n_out)
    values = np.empty((n_repeats, len(sizes)))
    for repeat in range(n_repeats):
        order = np.random.default_rng([seed, repeat]).permutation(known)
        searched, trained = np.sort(order[:n_out][:MAX_QUERIES]), order[n_out:]
        labels.subset(searched).check_pairs()  # otherwise there is nothing to measure
        truth, options = labels.subset(searched).evaluation_labels()
        options |= {"exclude_self": True, "knn": None, "n_jobs": getattr(hasher, "n_jobs", None)}
        for place, n in enumerate(sizes):
            some = np.sort(trained[:n])
            given, _ = labels.subset(some).evaluation_labels()
            codes = clone(hasher).fit(X[some], given).transform(X[searched])
            report = evaluate(codes, codes, y_queries=truth, y_database=truth, **options)
            values[repeat, place] = report.map
    return LearningCurve(sizes, values, float(tolerance))


def _sizes(rows: Sequence[int] | None, n: int) -> tuple[int, ...]:
    """The numbers of rows to learn from, of ``n`` that are not held out."""
    if rows is None:
        return tuple(n >> k for k in range(HALVINGS, -1, -1) if k < 2 or n >> k >= LEAST_ROWS)
    sizes = tuple(int(size) for size in rows)
    if len(sizes) < 2 or sizes[0] < 2 or any(b <= a for a, b in pairwise(sizes)):
        raise ParameterError("rows", f"must be two or more ascending numbers of rows. Got {list(sizes)} instead.")
    if sizes[-1] > n:
        raise ParameterError("rows", f"must be at most {n}, the rows that are not held out. Got {sizes[-1]} instead.")
    return sizes
