"""Probabilities of the classes or tags, as functions of the features.

One regression finds the labels, and its scores are calibrated to probabilities. What is learned from them sees
leave-one-out scores: those that rows get which the regression has not seen. `hashgrove.functions.posterior_bits` and
`hashgrove.functions.decodable` learn their bits from these probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder, Lifted, Posterior, UnitKernel
from hashgrove.encoders.posterior import softened
from hashgrove.functions.spreading import logistic_regression
from hashgrove.numerics.calibration import fit_sigmoids, fit_temperature
from hashgrove.numerics.leave_one_out import LeaveOneOutRidge
from hashgrove.numerics.rows import Rows, stratified_rows
from hashgrove.numerics.sampling import sample_rows
from hashgrove.numerics.sketch import Sketch
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.runtime.sharing import shared
from hashgrove.storage.stored_rows import StoredRows
from hashgrove.supervision import Supervision

__all__ = ["POWER", "LabelPosterior", "UnitRows"]

MAX_FEATURES = 4096  # more features are sketched before the regression
LARGEST_SKETCHED = 2.0  # a larger value in the sketch of a row of length 1 counts as this one
CALIBRATION_VALUES = 2**22  # scores in all that the calibration learns from
CALIBRATION_ROWS = 20_000  # at most
LIFTED_ROWS = 100_000  # that regressions on Gaussian features learn from
LOGISTIC_ROWS = 50_000  # that a logistic regression learns from
GAMMA_ROWS = 2000  # number of rows whose distances to the anchors determine gamma
PENALTY = 3e-5  # of the regression of a bit on phi, per row
POWER = 0.35  # the exponent that softens probabilities


@dataclass(frozen=True, eq=False)
class UnitRows:
    """The training rows as regressions see them: scaled to length 1, and possibly lifted by a Gaussian kernel.

    Attributes
    ----------
    lift : UnitKernel or None
        Gaussian features around anchors, which take the place of the features.
    sketch : Sketch
        Of very wide rows.
    rows : Rows of float32
    others : float32 array of shape (n_others, n_columns), or None
        Rows about which nothing is known.
    weights : float64 array of shape (n,), or None
        How much each row counts.
    learned : array of row numbers, or None
        The rows that regressions learn from: all, or a sample of 100,000 if rows are lifted.
    """

    lift: UnitKernel | None
    sketch: Sketch
    rows: Rows
    others: NDArray[np.float32] | None
    weights: NDArray[np.float64] | None
    learned: NDArray[np.intp] | None

    @classmethod
    @shared
    def of(
        cls,
        X: NDArray[Any] | StoredRows,
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
        *,
        n_anchors: int | None = None,
        others: NDArray[Any] | None = None,
        n_jobs: int | None = None,
    ) -> UnitRows:
        """Scale the rows of ``X``, once for all regressions if they are few; otherwise whenever they are needed."""
        lift = None if n_anchors is None else _lift(X, n_anchors, rng)
        n_columns = X.shape[1] if lift is None else lift.n_bits
        sketch = Sketch.draw(n_columns, MAX_FEATURES, rng)

        scaled = partial(_scaled, lift=lift, sketch=sketch)
        width = min(n_columns, MAX_FEATURES)
        rows = Rows(X, scaled, n_columns=width, n_jobs=n_jobs, is_costly=lift is not None)
        learned = None if lift is None or len(X) <= LIFTED_ROWS else stratified_rows(len(X), LIFTED_ROWS)
        return cls(lift, sketch, rows, None if others is None else scaled(others), weights, learned)

    @cached_property
    def ridge(self) -> LeaveOneOutRidge:
        """Regressions on these rows."""
        largest = 1.0 if self.sketch.matrix is None else LARGEST_SKETCHED
        return LeaveOneOutRidge(self.rows, self.weights, learned=self.learned, largest=largest)

    def lifted(self, encoder: Encoder) -> Encoder:
        """An encoder of lifted rows as an encoder of the features."""
        return encoder if self.lift is None else Lifted(lift=self.lift, bits=encoder)


def _scaled(X: NDArray[Any], *, lift: UnitKernel | None, sketch: Sketch) -> NDArray[np.float32]:
    return np.asarray(sketch.apply(unit_rows(X if lift is None else lift.scores(X, n_jobs=1))))


def _lift(X: NDArray[Any] | StoredRows, n_anchors: int, rng: np.random.Generator) -> UnitKernel:
    """Gaussian features around random rows; gamma is half the inverse of the mean squared distance to an anchor."""
    anchors = unit_rows(X[sample_rows(len(X), n_anchors, rng)])
    some = unit_rows(X[sample_rows(len(X), GAMMA_ROWS, rng)])
    distance = float(2 - 2 * (some @ anchors.T).mean())
    return UnitKernel(anchors=anchors, gamma=np.array(0.5 / distance if distance > 1e-12 else 1.0, np.float32))


@dataclass(frozen=True, eq=False)
class LabelPosterior:
    """Probabilities of the labels as a function of the features, in softened form.

    Attributes
    ----------
    rows : UnitRows
    weights, bias : float32 arrays of shape (n_labels, n_columns) and (n_labels,)
        Linear functions of these rows, whose softmax or sigmoids are the probabilities.
    exclusive : bool
        Whether the labels are classes, which exclude each other, or tags.
    power : float
        The exponent that softens the probabilities.
    logits : Rows of float32
        For each training row, from regressions that had not seen it; their softmax or sigmoids are calibrated
        probabilities.
    label_penalty : float or None
        The penalty of the ridge regression of the labels on the features, which has the least leave-one-out error;
        None if the labels were learned otherwise.
    """

    rows: UnitRows
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    exclusive: bool
    power: float
    logits: Rows
    label_penalty: float | None

    @classmethod
    @shared
    def learn(
        cls,
        rows: UnitRows,
        supervision: Supervision,
        *,
        power: float,
        rng: np.random.Generator,
        classifier: str = "ridge",
        n_jobs: int | None = None,
    ) -> LabelPosterior:
        """Learn the probabilities from class labels or tags."""
        labels = _present_labels(supervision)
        (n, n_labels), exclusive = labels.shape, supervision.exclusive
        is_ridge = classifier == "ridge"
        scores = _ridge(rows, labels) if is_ridge else _logistic(rows, supervision, rng, n_jobs=n_jobs)
        size = min(CALIBRATION_ROWS, max(CALIBRATION_VALUES // n_labels, 1)) if exclusive else CALIBRATION_ROWS
        sample = sample_rows(n, size, rng)
        known, counts = labels[sample].toarray(), None if supervision.weights is None else supervision.weights[sample]
        if exclusive:
            slope: Any = np.full(n_labels, fit_temperature(scores.left_out.take(sample), known, counts))
            shift: Any = np.zeros(n_labels)
        else:
            slope, shift = fit_sigmoids(scores.left_out.take(sample), known, counts)
        return cls(
            rows=rows,
            weights=(scores.weights * slope[:, None]).astype(np.float32),
            bias=(scores.bias * slope + shift).astype(np.float32),
            exclusive=exclusive,
            power=power,
            logits=scores.left_out.then(partial(_calibrated, slope=slope, shift=shift), is_kept=False),
            label_penalty=scores.penalty,
        )

    @cached_property
    def phi(self) -> Rows:
        """The softened probabilities of the training rows, each from regressions that had not seen the row."""
        return self.logits.then(partial(softened, exclusive=self.exclusive, power=self.power))

    @cached_property
    def seen(self) -> Rows:
        """The softened probabilities of the training rows as the encoder computes them."""
        how: dict[str, Any] = {
            "weights": self.weights,
            "bias": self.bias,
            "exclusive": self.exclusive,
            "power": self.power,
        }
        return self.rows.rows.then(partial(_softened_scores, **how), n_columns=len(self.bias))

    @cached_property
    def ridge(self) -> LeaveOneOutRidge:
        """Regressions on `phi`."""
        return LeaveOneOutRidge(self.phi, self.rows.weights, learned=self.rows.learned)

    def prepare_bits(self) -> None:
        """Compute what all bits need on all threads, rather than in the first of the threads that learn bits."""
        self.ridge.leverage(self.penalty)
        _ = self.seen, self._expanded

    @property
    def penalty(self) -> float:
        """The penalty of the regression of a bit on `phi`."""
        return PENALTY * (len(self.rows.rows) if self.rows.learned is None else len(self.rows.learned))

    def encoder(self, book: NDArray[np.float64], offset: NDArray[np.float64]) -> Posterior:
        """The encoder of the features, lifted or not, with the scores ``phi @ book.T + offset``."""
        return Posterior(
            weights=self._expanded,
            bias=self.bias,
            power=np.array(self.power, np.float32),
            exclusive=np.array(self.exclusive, np.uint8),
            book=book.astype(np.float32),
            offset=offset.astype(np.float32),
        )

    @cached_property
    def _expanded(self) -> NDArray[np.float32]:
        """The weights of the features."""
        return np.asarray(self.rows.sketch.expand(self.weights))


class _LabelScores(NamedTuple):
    """Linear scores of the labels before they are calibrated, and those by regressions that had not seen the row."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    left_out: Rows
    penalty: float | None


def _calibrated(scores: NDArray[Any], *, slope: NDArray[np.float64], shift: NDArray[np.float64]) -> NDArray[np.float32]:
    return (scores * slope + shift).astype(np.float32)


def _softened_scores(
    rows: NDArray[np.float32], *, weights: NDArray[np.float32], bias: NDArray[np.float32], **how: Any
) -> NDArray[np.float32]:
    return softened(rows @ weights.T + bias, **how)


def _ridge(rows: UnitRows, labels: Any) -> _LabelScores:
    """A ridge regression of the labels on the rows."""
    found = rows.ridge.solve(labels, rows.ridge.best_penalty(labels))
    return _LabelScores(found.weights, found.bias, rows.ridge.left_out_rows(found, labels), found.penalty)


@shared
def _logistic(
    rows: UnitRows, supervision: Supervision, rng: np.random.Generator, *, n_jobs: int | None = None
) -> _LabelScores:
    """A logistic regression of the labels on at most 50,000 rows; the other rows are unseen in any case."""
    labels = _present_labels(supervision)
    n = labels.shape[0]
    learned = stratified_rows(n, LOGISTIC_ROWS)
    found = logistic_regression(
        rows.rows.take(learned),
        labels[learned].toarray(),
        supervision.subset(learned),
        rng,
        others=rows.others,
        n_jobs=n_jobs,
    )
    place = np.full(n, -1)
    place[learned] = np.arange(len(learned))

    function = partial(_predict_unseen, model=found.model, left_out=found.left_out)
    unseen = rows.rows.then(function, place, n_columns=len(found.model.bias), is_kept=False)
    return _LabelScores(found.model.weights, found.model.bias, unseen, None)


def _predict_unseen(
    rows: NDArray[np.float32], place: NDArray[np.intp], *, model: Any, left_out: NDArray[Any]
) -> NDArray[np.float64]:
    """The leave-one-out scores of the rows that were learned from, at their places, and the scores of the others."""
    unseen = left_out[place]
    others = place < 0
    if others.any():
        unseen[others] = model.of(rows[others])
    return unseen.astype(np.float64)


def _present_labels(supervision: Supervision) -> Any:
    """A sparse matrix with a column for each label that some row has."""
    labels = supervision.indicator()
    return labels[:, np.flatnonzero(labels.sum(axis=0))]
