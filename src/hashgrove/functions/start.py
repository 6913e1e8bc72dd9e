"""The linear start of boosted trees: a bit's margin begins at a linear score, and the trees learn what remains.

For each bit, two regressions predict its values: one on the softened probabilities of the labels, one on the features
themselves, both of rows scaled to length 1. A logistic regression of their leave-one-out predictions says how much each
is worth. Pairs have no labels; there only the features count. Trees see leave-one-out scores, so they learn to mend the
errors that the linear score makes on rows it has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import UNIT, Encoder, Linear, Posterior, Sum
from hashgrove.functions.base import is_constant
from hashgrove.functions.posterior import CALIBRATION_ROWS, POWER, LabelPosterior, UnitRows
from hashgrove.numerics.calibration import fit_logistic
from hashgrove.numerics.leave_one_out import Regression
from hashgrove.numerics.rows import stratified_rows
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.storage.stored_rows import StoredRows
from hashgrove.supervision import Supervision

__all__ = ["LinearStart", "Start"]

CERTAIN = 4.0  # half the log-odds of a bit that is the same for all rows


@dataclass(frozen=True, eq=False)
class LinearStart:
    """The rows and the label probabilities that the linear scores of all bits share."""

    rows: UnitRows
    penalty: float | None
    posterior: LabelPosterior | None

    @classmethod
    @single_threaded_blas()
    def prepare(
        cls,
        X: NDArray[Any] | StoredRows,
        supervision: Supervision | None,
        rng: np.random.Generator,
        *,
        n_anchors: int | None = None,
        n_jobs: int | None = None,
    ) -> LinearStart:
        """Decompose the rows and, if there are labels, learn their probabilities."""
        weights = None if supervision is None else supervision.weights
        rows = UnitRows.of(X, weights, rng, n_anchors=n_anchors, n_jobs=n_jobs)
        if supervision is None or not supervision.has_labels:
            _ = rows.ridge  # on all threads, before those that learn bits need it
            return cls(rows, None, None)
        posterior = LabelPosterior.learn(rows, supervision, power=POWER, rng=rng, classifier="ridge")
        posterior.prepare_bits()
        return cls(rows, posterior.label_penalty, posterior)

    @single_threaded_blas()
    def learn(self, Z: NDArray[np.int8], weights: Sequence[NDArray[np.float64] | None]) -> list[Start]:
        """The linear scores of some bits, each the same as if it was alone, in three passes over the rows.

        Row k of ``Z`` has the values of a bit, and ``weights[k]`` says how much each training row matters for it.
        """
        targets, ridge = Z.T, self.rows.ridge
        penalties = ridge.best_penalties(targets) if self.penalty is None else [self.penalty] * len(Z)
        parts = [(ridge, ridge.solve_each(targets, penalties))]
        if self.posterior is not None:
            ridge = self.posterior.ridge
            parts.append((ridge, ridge.solve_each(targets, [self.posterior.penalty] * len(Z))))
        left_out = [ridge.left_out_each(found, targets) for ridge, found in parts]
        scores = [
            _Score.of(z, w, [found[k] for _, found in parts], [columns[:, k] for columns in left_out])
            for k, (z, w) in enumerate(zip(Z, weights, strict=True))
        ]
        seen = self._seen(scores)
        return [self._start(score, seen[:, k]) for k, score in enumerate(scores)]

    def _start(self, score: _Score, seen: NDArray[np.float64]) -> Start:
        features = Linear(
            weights=self.rows.sketch.expand(score.factors[0]).astype(np.float32),
            bias=np.array([score.shift if self.posterior is None else 0.0], np.float32),
            unit=UNIT,
        )
        labels = None if self.posterior is None else self.posterior.encoder(score.factors[1], np.array([score.shift]))
        return Start(score.left_out, seen, self.rows, features, labels)

    def _seen(self, scores: Sequence[_Score]) -> NDArray[np.float64]:
        """The scores of the training rows as the encoders compute them, a column per bit."""
        columns = [[factor[0].astype(np.float32) for factor in score.factors] for score in scores]
        function = partial(_scores_seen, columns=columns, shifts=[score.shift for score in scores])
        return np.asarray(self.rows.rows.apply(function, *(() if self.posterior is None else (self.posterior.seen,))))


def _scores_seen(
    *sources: NDArray[np.float32], columns: list[list[NDArray[np.float32]]], shifts: list[float]
) -> NDArray[np.float64]:
    """The scores of some rows: those of the features, and of the probabilities of the labels."""
    found = np.empty((len(sources[0]), len(columns)))
    for k, (of_sources, shift) in enumerate(zip(columns, shifts, strict=True)):
        found[:, k] = sum(rows @ column for rows, column in zip(sources, of_sources, strict=True)) + shift
    return found


class _Score(NamedTuple):
    """A bit's score: the weights of each regression times its worth, a constant, and the leave-one-out scores."""

    factors: list[NDArray[np.float64]]
    shift: float
    left_out: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        z: NDArray[np.int8],
        weights: NDArray[np.float64] | None,
        found: Sequence[Regression],
        left_out: Sequence[NDArray[Any]],
    ) -> _Score:
        """The score of a bit from its regressions and their leave-one-out predictions."""
        predictions = np.column_stack([*left_out, np.ones(len(z))])
        if is_constant(z):
            worth = np.array([0.0] * len(found) + [float(z[0]) * CERTAIN])
        else:
            some = stratified_rows(len(z), CALIBRATION_ROWS)
            worth = _worth(predictions[some], (z[some] + 1) / 2, None if weights is None else weights[some])
        factors = [factor * part.weights for factor, part in zip(worth, found, strict=False)]
        shift = float(worth[-1] + sum(factor * part.bias[0] for factor, part in zip(worth, found, strict=False)))
        return cls(factors, shift, predictions @ worth)


def _worth(
    columns: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """The factors of the predictions in half the log-odds; the last column is 1.

    A prediction that knows nothing is the mean of the other rows, which is a little lower for rows of value 1 than for
    rows of value 0. With a large negative factor it would give the values away, so it is left out.
    """
    used = np.append((targets - targets.mean()) @ columns[:, :-1] > 0, True)
    worth = np.zeros(len(used))
    worth[used] = fit_logistic(columns[:, used], targets, weights) / 2
    return worth


@dataclass(frozen=True, eq=False)
class Start:
    """The linear score of one bit, in half log-odds.

    Attributes
    ----------
    left_out, seen : float64 arrays of shape (n,)
        For each training row, by regressions that had not seen the row, and as the encoder computes it.
    rows : UnitRows
    features : Linear
        The part of the features; it also has the shift if there are no labels.
    labels : Posterior or None
        The part of the probabilities of the labels.
    """

    left_out: NDArray[np.float64]
    seen: NDArray[np.float64]
    rows: UnitRows
    features: Linear
    labels: Posterior | None

    def encoder(self, factor: float) -> Encoder:
        """An encoder whose scores are ``factor`` times the linear score."""
        features = self.features.scaled(factor)
        if self.labels is None:
            return self.rows.lifted(features)
        return self.rows.lifted(Sum(parts=(self.labels.scaled(factor), features)))
