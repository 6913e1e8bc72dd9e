"""Logistic regression of the labels, in which rows without a label can take part.

Two guesses of the classes of such a row make different mistakes: labels that spread over a graph of near rows, which
knows where rows lie close together, and a regression that learned from the labelled rows, which knows what tells
classes apart. Their product, scaled to sum 1, is what the regression then learns from, beside the labels. For the
logits of a row that a model has not seen, neither guess has seen the label of the row. (The directions in which rows
are near or far come from all labels.) Rows that are far from all classes take no part: they may be of a class without
labels.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from hashgrove.functions.clusters import are_familiar
from hashgrove.functions.generic import GenericDirections
from hashgrove.numerics.calibration import fit_temperature
from hashgrove.numerics.logistic import Logits, OutOfFold, fit_out_of_fold, refit_out_of_fold, split_folds
from hashgrove.numerics.near_rows import near_rows_graph, spread_labels
from hashgrove.numerics.sampling import sample_rows
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.supervision import Supervision

__all__ = ["logistic_regression"]

MAX_ROWS = 10_000  # of the graph: of rows with a label, and of rows without
N_DIRECTIONS = 64  # in which rows are near or far
LEAST_HEARD = 1e-4  # of a class, as a share of what a row hears of all classes, so that no guess rules out a class
LEAST_PROBABILITY = 1e-6


def logistic_regression(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    supervision: Supervision,
    rng: np.random.Generator,
    *,
    others: NDArray[np.float32] | None = None,
    n_jobs: int | None = None,
) -> OutOfFold:
    """A logistic regression of the labels, with scores of each row by one that had not seen its label.

    Parameters
    ----------
    rows : float32 array of shape (n, d)
    labels : float64 array of shape (n, n_labels)
        One column per class or tag, which is 1 for the rows that have it.
    supervision : Supervision
        Whether labels are classes, and how much each row counts.
    rng : Generator
        Divides the rows into folds, and draws samples.
    others : float32 array of shape (n_others, d), optional
        Rows without a label. If labels are classes, at most 10,000 of them take part.
    n_jobs : int or None
    """
    exclusive = supervision.exclusive
    folds = split_folds(labels, exclusive=exclusive, rng=rng)
    options: dict[str, Any] = {"folds": folds, "sample_weight": supervision.weights, "n_jobs": n_jobs}
    found = fit_out_of_fold(rows, labels, exclusive=exclusive, rng=rng, **options)
    if others is None or not exclusive:
        return found
    others = others[sample_rows(len(others), MAX_ROWS, rng)]
    near = _NearRows.of(rows, others, supervision, rng, n_jobs=n_jobs)
    factor = fit_temperature(found.left_out.astype(np.float64), labels, supervision.weights)
    others = others[near.familiar]
    guess = partial(_guess, others, labels, near, factor)
    return refit_out_of_fold(found, rows, labels, others, guess, exclusive=exclusive, **options)


def _guess(
    others: NDArray[np.float32],
    labels: NDArray[np.float64],
    near: _NearRows,
    factor: float,
    visible: NDArray[np.bool_],
    model: Logits,
) -> NDArray[np.float64]:
    """The probabilities of the classes of other rows, from visible labels and a regression that learned from these."""
    p = softmax(model.of(others).astype(np.float64) * factor, axis=1)
    product = (near.shares(labels, visible) + LEAST_HEARD) * (p + LEAST_PROBABILITY)
    return np.asarray(product / product.sum(axis=1, keepdims=True))


class _NearRows(NamedTuple):
    """The graph over which labels spread: of some rows with a label, then of those without.

    Attributes
    ----------
    chosen : int64 array
        Numbers of the rows with a label.
    graph : sparse array
    familiar : int64 array
        Numbers, among the rows without a label, of those that may be of a labelled class.
    """

    chosen: NDArray[np.int64]
    graph: sparse.csr_array
    familiar: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        rows: NDArray[np.float32],
        others: NDArray[np.float32],
        supervision: Supervision,
        rng: np.random.Generator,
        *,
        n_jobs: int | None,
    ) -> _NearRows:
        """Near rows in the directions that vary most, relative to the variation inside classes."""
        chosen = sample_rows(len(rows), MAX_ROWS, rng)
        options: dict[str, Any] = {"n_directions": N_DIRECTIONS, "rng": rng, "others": others}
        found = GenericDirections.learn(rows[chosen], supervision.subset(chosen), **options)
        Z = unit_rows(found.rows @ found.directions.T)
        known, unknown = np.split(unit_rows(found.rows), [len(chosen)])
        familiar = np.flatnonzero(are_familiar(unknown, known, supervision.subset(chosen)))
        return cls(chosen, near_rows_graph(Z, n_jobs=n_jobs), familiar)

    def shares(self, labels: NDArray[np.float64], visible: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The share of each class in what familiar rows hear from the visible labels."""
        n = len(self.chosen)
        known = np.zeros((self.graph.shape[0], labels.shape[1]))
        known[:n] = labels[self.chosen] * visible[self.chosen, None]
        heard = spread_labels(self.graph, known)[n:][self.familiar]
        return np.asarray(heard / np.maximum(heard.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny))
