"""Posterior bits: every bit is a function of how likely each class or tag is.

A classifier that is trained for one bit has to learn an arbitrary division of the classes. A classifier of the labels
themselves is easier to learn, and what it says about all labels is enough for every bit. So one regression finds the
labels, its scores are calibrated to probabilities p, and each bit is linear in phi = p^0.35, scaled to length 1.
Everything after the regression learns from leave-one-out scores: what rows get that it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from hashgrove.encoders import Encoder, Lifted, Posterior, UnitKernel
from hashgrove.encoders.posterior import softened
from hashgrove.numerics.calibration import fit_sigmoids, fit_temperature
from hashgrove.numerics.leave_one_out import LeaveOneOutRidge, Regression
from hashgrove.numerics.logistic import Targets, fit_out_of_fold, split_folds
from hashgrove.numerics.sampling import sample_rows
from hashgrove.numerics.sketch import Sketch
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.parameters import Constraint, Integer, Number, OneOf, check_parameters
from hashgrove.runtime.sharing import shared
from hashgrove.supervision import Supervision

__all__ = ["POWER", "LabelPosterior", "PosteriorBits", "UnitRows"]

MAX_FEATURES = 4096  # more features are sketched before the regression
CALIBRATION_ROWS = 20_000
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
    rows : float32 array of shape (n, n_columns)
    weights : float64 array of shape (n,), or None
        How much each row counts.
    n_jobs : int, optional
        Number of threads that regressions on these rows use.
    """

    lift: UnitKernel | None
    sketch: Sketch
    rows: NDArray[np.float32]
    weights: NDArray[np.float64] | None
    n_jobs: int | None = 1

    @classmethod
    @shared
    def of(
        cls,
        X: NDArray[Any],
        weights: NDArray[np.float64] | None,
        rng: np.random.Generator,
        *,
        n_anchors: int | None = None,
        n_jobs: int | None = None,
    ) -> UnitRows:
        """Scale the rows of ``X``, once for all regressions."""
        lift = None if n_anchors is None else _lift(X, n_anchors, rng)
        rows = X if lift is None else lift.scores(X, n_jobs=n_jobs)
        sketch = Sketch.draw(rows.shape[1], MAX_FEATURES, rng)
        rows = sketch.apply(unit_rows(rows))
        return cls(lift, sketch, rows, weights, n_jobs)

    @cached_property
    def ridge(self) -> LeaveOneOutRidge:
        """Regressions on these rows."""
        return LeaveOneOutRidge(self.rows, self.weights, n_jobs=self.n_jobs)

    def lifted(self, encoder: Encoder) -> Encoder:
        """An encoder of lifted rows as an encoder of the features."""
        return encoder if self.lift is None else Lifted(lift=self.lift, bits=encoder)


def _lift(X: NDArray[Any], n_anchors: int, rng: np.random.Generator) -> UnitKernel:
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
    weights, bias : float32 arrays of shape (n_labels, n_features) and (n_labels,)
        Linear functions of a row of length 1, whose softmax or sigmoids are the probabilities.
    exclusive : bool
        Whether the labels are classes, which exclude each other, or tags.
    power : float
        The exponent that softens the probabilities.
    logits : float32 array of shape (n, n_labels)
        For each training row, from regressions that had not seen it; their softmax or sigmoids are calibrated
        probabilities.
    phi : float32 array of shape (n, n_labels)
        The softened probabilities of the training rows, each from regressions that had not seen the row.
    seen : float32 array of shape (n, n_labels)
        The softened probabilities of the training rows as the encoder computes them.
    ridge : LeaveOneOutRidge
        Regressions on ``phi``.
    penalty : float
        The regression of a bit on ``phi`` has this penalty.
    label_penalty : float or None
        The penalty of the ridge regression of the labels on the features, which has the least leave-one-out error;
        None if the labels were learned otherwise.
    """

    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    exclusive: bool
    power: float
    logits: NDArray[np.float32]
    phi: NDArray[np.float32]
    seen: NDArray[np.float32]
    ridge: LeaveOneOutRidge
    penalty: float
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
        labels = supervision.indicator().toarray()
        labels = labels[:, labels.any(axis=0)]
        exclusive = supervision.exclusive
        label_penalty = None
        if classifier == "logistic":
            found = _logistic(rows, labels, supervision, rng, n_jobs)
        else:
            label_penalty = rows.ridge.best_penalty(labels)
            found = rows.ridge.solve(labels, label_penalty)
        sample = sample_rows(len(labels), CALIBRATION_ROWS, rng)
        scores = found.left_out[sample]
        counts = None if supervision.weights is None else supervision.weights[sample]
        if exclusive:
            slope: Any = np.full(labels.shape[1], fit_temperature(scores, labels[sample], counts))
            shift: Any = np.zeros(labels.shape[1])
        else:
            slope, shift = fit_sigmoids(scores, labels[sample], counts)
        weights, bias = (found.weights * slope[:, None]).astype(np.float32), (found.bias * slope + shift)
        logits = (found.left_out * slope + shift).astype(np.float32)
        phi = softened(logits, exclusive=exclusive, power=power)
        return cls(
            weights=rows.sketch.expand(weights),
            bias=bias.astype(np.float32),
            exclusive=exclusive,
            power=power,
            logits=logits,
            phi=phi,
            seen=softened(rows.rows @ weights.T + bias.astype(np.float32), exclusive=exclusive, power=power),
            ridge=LeaveOneOutRidge(phi, supervision.weights),
            penalty=PENALTY * len(phi),
            label_penalty=label_penalty,
        )

    def encoder(self, book: NDArray[np.float64], offset: NDArray[np.float64]) -> Posterior:
        """The encoder with the scores ``phi @ book.T + offset``."""
        return Posterior(
            weights=self.weights,
            bias=self.bias,
            power=np.array(self.power, np.float32),
            exclusive=np.array(self.exclusive, np.uint8),
            book=book.astype(np.float32),
            offset=offset.astype(np.float32),
        )


def _logistic(
    rows: UnitRows,
    labels: NDArray[np.float64],
    supervision: Supervision,
    rng: np.random.Generator,
    n_jobs: int | None,
) -> Regression:
    """A logistic regression of the labels on the rows, with scores of each row by one that had not seen it."""
    found = fit_out_of_fold(
        rows.rows,
        labels,
        exclusive=supervision.exclusive,
        folds=split_folds(labels, exclusive=supervision.exclusive, rng=rng),
        targets=lambda visible: Targets(labels, supervision.weights),
        rng=rng,
        n_jobs=n_jobs,
    )
    return Regression(found.model.weights, found.model.bias, found.left_out.astype(np.float64))


class _Prepared(NamedTuple):
    """The training rows, and the probabilities of their labels."""

    rows: UnitRows
    posterior: LabelPosterior


class PosteriorBits(BaseEstimator):  # type: ignore[misc]
    """Bits that are linear in the softened probabilities of the labels; for class labels and tags.

    This hash function is quick to learn and to use, and it is strong with many classes, few labels per class and
    features of a network. It cannot learn from pairs or triplets.

    Parameters
    ----------
    classifier : {"ridge", "logistic"}, default="ridge"
        The regression that predicts the labels. ``"logistic"`` takes longer to train and as long to encode; its
        probabilities are better where there are few labels per class, and worse on some data.
    power : float, default=0.35
        The exponent that softens the probabilities. Towards 0 all labels count alike; with 1 only likely labels count.
    n_anchors : int or None, default=None
        Number of random training rows that serve as centres of Gaussian features, from which the labels are then
        predicted. ``None`` means the features themselves. Gaussian features are better where classes are not linearly
        separable; encoding takes longer.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FastHash
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = FastHash(32, hash_function=PosteriorBits(), random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.score(X[1000:], y[1000:]) > 0.8
    True
    """

    constraints: ClassVar[dict[str, Constraint]] = {
        "classifier": OneOf(("ridge", "logistic")),
        "power": Number(above=0, below=1.0000001),
        "n_anchors": Integer(1, or_none=True),
    }
    stagewise: ClassVar[bool] = False  # what a bit gets wrong says little about others: all come from the same p
    weighted: ClassVar[bool] = False
    generic_share: ClassVar[float] = 0.25

    def __init__(self, *, classifier: str = "ridge", power: float = POWER, n_anchors: int | None = None) -> None:
        self.classifier = classifier
        self.power = power
        self.n_anchors = n_anchors

    def prepare(
        self,
        X: NDArray[Any],
        rng: np.random.Generator,
        *,
        supervision: Supervision | None = None,
        earlier: Encoder | None = None,
        n_jobs: int | None = None,
    ) -> _Prepared:
        """Learn the probabilities of the labels, once per fit."""
        check_parameters(self)
        if supervision is None or not supervision.has_labels:
            raise ValueError(
                "PosteriorBits must be given class labels or tags as y, because it learns how likely each label is. "
                "Got pairs or triplets; use hash_function=BoostedTrees(start='linear'), which learns from them."
            )
        with single_threaded_blas():
            rows = UnitRows.of(X, supervision.weights, rng, n_anchors=self.n_anchors, n_jobs=n_jobs)
            posterior = LabelPosterior.learn(
                rows, supervision, power=self.power, rng=rng, classifier=self.classifier, n_jobs=n_jobs
            )
        return _Prepared(rows, posterior)

    def learn(
        self, data: _Prepared, z: NDArray[np.int8], weights: NDArray[np.float64] | None, rng: np.random.Generator
    ) -> tuple[Encoder, NDArray[np.int8]]:
        """Regress one bit on the softened probabilities."""
        posterior = data.posterior
        found = posterior.ridge.solve(z[:, None].astype(np.float64), posterior.penalty)
        encoder = posterior.encoder(found.weights, found.bias)
        scores = posterior.seen @ encoder.book[0] + encoder.offset[0]
        return data.rows.lifted(encoder), np.where(scores > 0, 1, -1).astype(np.int8)
