"""Logistic regression of many labels at once, with predictions for each row by a model that has not seen it.

A model fits the rows that it was trained on better than others, so whatever is learned next should see predictions of
models that have not seen the row. A logistic regression has no closed form for them: three models learn from two thirds
of the rows each. The first of them chooses the penalty, by the likelihood of the labels that it has not seen. Rows
without a label can join afterwards, with probabilities that are guessed from the labels that a model may see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from hashgrove.numerics.sampling import sample_rows
from hashgrove.runtime.threads import run_tasks

__all__ = ["Logits", "OutOfFold", "fit_logits", "fit_out_of_fold", "refit_out_of_fold", "split_folds"]

N_FOLDS = 3
PENALTIES = 0.01 / np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0])  # from strong to weak
MIDDLE = 3  # the place of the penalty that is tried first
CHOOSING_ROWS = 6000  # more are not needed to choose the penalty
MAX_ITER = 60
LEAST_CURVATURE = 1e-6
LEAST_VARIANCE = 1e-6  # of a direction, in units of the largest, if there are fewer rows than features
TOLERANCE = 1e-4  # relative change of the loss in one step


class Logits(NamedTuple):
    """Linear models of labels: the logits of rows X are ``X @ weights.T + bias``."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]

    def of(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of rows, in float32."""
        return X @ self.weights.T.astype(np.float32) + self.bias.astype(np.float32)


class OutOfFold(NamedTuple):
    """Linear models that learned from all rows, and the logits of each row by models that did not see it.

    Attributes
    ----------
    model : Logits
    left_out : float32 array of shape (n, n_labels)
    penalty : float
        The penalty that makes labels that a model has not seen most likely.
    of_folds : list of Logits
        For each fold the models that learned from the rows of the other folds.
    """

    model: Logits
    left_out: NDArray[np.float32]
    penalty: float
    of_folds: list[Logits]


def fit_logits(
    X: NDArray[np.float32],
    targets: NDArray[np.float64],
    *,
    penalty: float,
    exclusive: bool,
    sample_weight: NDArray[np.float64] | None = None,
    start: Logits | None = None,
) -> Logits:
    """The weights and the bias with the least cross-entropy summed over the rows + ``penalty`` / 2 x their squares.

    L-BFGS, in which each feature has a step of its own: the inverse of the curvature that it can be expected to have.
    The bias is not penalised.

    Parameters
    ----------
    X : float32 array of shape (n, d)
        Rows with means near zero; it converges quickly if their columns are uncorrelated.
    targets : array of shape (n, n_labels)
        0 or 1, or probabilities. With ``exclusive`` labels each row sums to 1, and the logits are those of a softmax;
        otherwise each label has a sigmoid of its own.
    penalty : float
    exclusive : bool
    sample_weight : array of shape (n,), optional
    start : Logits, optional
        Where to begin, such as the solution with another penalty.

    Examples
    --------
    >>> X = np.array([[-1.0], [1.0], [-1.0], [1.0]], np.float32)
    >>> y = np.array([[1.0, 0], [0, 1], [1, 0], [1, 0]])
    >>> found = fit_logits(X, y, penalty=1e-6, exclusive=True)
    >>> np.abs(np.diff(found.of(np.array([[1.0]], np.float32)))).round(1).tolist()  # one of two rows
    [[0.0]]
    """
    (n, d), n_labels = X.shape, targets.shape[1]
    targets = targets.astype(np.float32)
    weights = None if sample_weight is None else sample_weight.astype(np.float32)[:, None]
    total = float(n if sample_weight is None else sample_weight.sum())
    share = np.average(targets, axis=0, weights=sample_weight)
    curvature = max(float((share * (1 - share)).mean()), LEAST_CURVATURE)
    squares = np.einsum("ij,ij->j", X, X).astype(np.float64)
    step = 1 / np.sqrt(curvature * np.append(squares, total) + penalty)

    def loss(scaled: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The loss per unit of weight, and its gradient, in coordinates of about the same curvature."""
        found = scaled.reshape(n_labels, d + 1) * step
        logits = X @ found[:, :d].T.astype(np.float32) + found[:, d].astype(np.float32)
        if exclusive:
            logits -= logits.max(axis=1, keepdims=True)
            p = np.exp(logits)
            sums = p.sum(axis=1, keepdims=True)
            p /= sums
            losses = np.log(sums[:, 0]) - np.einsum("ij,ij->i", logits, targets)
        else:
            p = expit(logits)
            losses = (np.logaddexp(0, logits) - logits * targets).sum(axis=1)
        p -= targets
        if weights is not None:
            p *= weights
            losses *= weights[:, 0]
        slopes = np.hstack([(p.T @ X).astype(np.float64), p.sum(axis=0, dtype=np.float64)[:, None]])
        slopes[:, :d] += penalty * found[:, :d]
        value = losses.sum(dtype=np.float64) + penalty / 2 * np.square(found[:, :d]).sum()
        return float(value) / total, (slopes * step).ravel() / total

    first = np.zeros((n_labels, d + 1)) if start is None else np.hstack([start.weights, start.bias[:, None]]) / step
    options = {"maxiter": MAX_ITER, "ftol": TOLERANCE, "gtol": 1e-8, "maxcor": 10}
    found = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    best = found.x.reshape(n_labels, d + 1) * step
    return Logits(best[:, :d], best[:, d])


def split_folds(labels: NDArray[Any], *, exclusive: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """The number of the fold of each row, from 0 to 2. The rows of a class are divided evenly among the folds.

    >>> split_folds(np.eye(2).repeat(3, axis=0), exclusive=True, rng=np.random.default_rng(0))[:3].tolist()
    [1, 2, 0]
    """
    order = rng.permutation(len(labels))
    if exclusive:
        order = order[np.argsort(labels[order].argmax(axis=1), kind="stable")]
    folds = np.empty(len(labels), np.int64)
    folds[order] = np.arange(len(labels)) % N_FOLDS
    return folds


def fit_out_of_fold(
    X: NDArray[np.float32],
    labels: NDArray[np.float64],
    *,
    exclusive: bool,
    folds: NDArray[np.int64],
    rng: np.random.Generator,
    sample_weight: NDArray[np.float64] | None = None,
    n_jobs: int | None = None,
) -> OutOfFold:
    """Logistic regressions of labels with the penalty that makes labels that a model has not seen most likely.

    Parameters
    ----------
    X : float32 array of shape (n, d)
    labels : array of shape (n, n_labels)
        0 or 1.
    exclusive : bool
    folds : int64 array of shape (n,)
        See `split_folds`.
    rng : Generator
        Draws the rows that choose the penalty, if there are many.
    sample_weight : array of shape (n,), optional
    n_jobs : int or None
    """
    n = len(X)
    mean = _mean(X)
    rows, basis = _uncorrelated(X - mean)
    sample = np.zeros(n, bool)
    sample[sample_rows(n, CHOOSING_ROWS, rng)] = True

    def learn(among: NDArray[np.bool_], penalty: float, start: Logits | None) -> Logits:
        chosen = np.flatnonzero(among)
        weights = None if sample_weight is None else sample_weight[chosen]
        part = rows[chosen], labels[chosen]
        return fit_logits(*part, penalty=penalty, exclusive=exclusive, sample_weight=weights, start=start)

    unseen = np.flatnonzero((folds == 0) & sample)
    counts = np.ones(len(unseen)) if sample_weight is None else sample_weight[unseen]

    def judge(penalty: float, start: Logits | None) -> tuple[float, Logits]:
        model = learn(sample & (folds != 0), penalty, start)
        return _cross_entropy(model.of(rows[unseen]), labels[unseen], counts, exclusive=exclusive), model

    penalty, first = _descend(judge, PENALTIES.tolist(), MIDDLE)
    # the other models start anew: the first one has seen labels that they must not see
    models = run_tasks(learn, [(folds != k, penalty, None) for k in range(1, N_FOLDS)], n_jobs=n_jobs)
    models = [first if sample.all() else learn(folds != 0, penalty, first), *models]
    start = Logits(*(np.mean(parts, axis=0) for parts in zip(*models, strict=True)))
    whole = learn(np.ones(n, bool), penalty, start)
    left_out = _left_out(models, rows, folds)
    model, *models = (_of_features(found, mean, basis) for found in (whole, *models))
    return OutOfFold(model, left_out, penalty, models)


def refit_out_of_fold(
    earlier: OutOfFold,
    X: NDArray[np.float32],
    labels: NDArray[np.float64],
    others: NDArray[np.float32],
    guess: Callable[[NDArray[np.bool_], Logits], NDArray[Any]],
    *,
    exclusive: bool,
    folds: NDArray[np.int64],
    sample_weight: NDArray[np.float64] | None = None,
    n_jobs: int | None = None,
) -> OutOfFold:
    """The same regressions, which learn from further rows without labels too.

    The penalty per row is that of ``earlier``.

    Parameters
    ----------
    earlier : OutOfFold
        The result of `fit_out_of_fold` for the same rows.
    X, labels, exclusive, folds, sample_weight, n_jobs
        As for `fit_out_of_fold`.
    others : float32 array of shape (n_others, d)
        Rows without labels. Each counts like a row of mean weight.
    guess : function
        ``guess(visible, model)`` gives the probabilities of the labels of ``others``, of shape (n_others, n_labels),
        from the labels that a mask of shape (n,) selects, and from the regression that learned from these.
    """
    n = len(X)
    both = np.concatenate([X, others])
    mean = _mean(both)
    rows, basis = _uncorrelated(both - mean)
    known = np.ones(n) if sample_weight is None else sample_weight
    weights = np.append(known, np.full(len(others), known.mean()))

    def learn(visible: NDArray[np.bool_], model: Logits) -> Logits:
        targets = np.concatenate([labels, guess(visible, model)])
        chosen = np.flatnonzero(np.append(visible, np.ones(len(others), bool)))
        start = Logits(model.weights @ basis, model.bias + model.weights @ mean)
        return fit_logits(
            rows[chosen],
            targets[chosen],
            penalty=earlier.penalty * len(both) / n,
            exclusive=exclusive,
            sample_weight=weights[chosen],
            start=start,
        )

    visible = [np.ones(n, bool), *(folds != k for k in range(N_FOLDS))]
    tasks = list(zip(visible, [earlier.model, *earlier.of_folds], strict=True))
    model, *models = run_tasks(learn, tasks, n_jobs=n_jobs)
    left_out = _left_out(models, rows[:n], folds)
    model, *models = (_of_features(found, mean, basis) for found in (model, *models))
    return OutOfFold(model, left_out, earlier.penalty, models)


def _left_out(models: list[Logits], X: NDArray[np.float32], folds: NDArray[np.int64]) -> NDArray[np.float32]:
    """The logits of each row by the models that did not see its fold."""
    found = np.empty((len(X), len(models[0].bias)), np.float32)
    for k, model in enumerate(models):
        found[folds == k] = model.of(X[folds == k])
    return found


def _of_features(model: Logits, mean: NDArray[np.float32], basis: NDArray[np.float64]) -> Logits:
    """The models of features, from those of the rows in another basis, less their mean."""
    weights = model.weights @ basis.T
    return Logits(weights, model.bias - weights @ mean)


def _mean(X: NDArray[np.float32]) -> NDArray[np.float32]:
    return X.mean(axis=0, dtype=np.float64).astype(np.float32)


def _descend(
    judge: Callable[[float, Logits | None], tuple[float, Logits]], penalties: list[float], first: int
) -> tuple[float, Logits]:
    """The penalty that is judged best, and its model: from the first place weaker ones, or else stronger ones.

    The search goes on as long as a penalty is better than the last one. Each model starts from the one before.

    >>> _descend(lambda penalty, start: (abs(penalty - 8), penalty), [16, 8, 4, 2, 1], 3)
    (8, 8)
    """
    best, model = judge(penalties[first], None)
    place = first
    for step in (1, -1):
        while 0 <= place + step < len(penalties):
            found, following = judge(penalties[place + step], model)
            if found >= best:
                break
            best, model, place = found, following, place + step
        if place != first:
            break
    return penalties[place], model


def _uncorrelated(X: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """The rows in a basis in which their columns are uncorrelated, and the basis, one vector per column."""
    n, d = X.shape
    if n < d:  # the rows span n dimensions at most
        values, vectors = eigh((X @ X.T).astype(np.float64))
        kept = values > values[-1] * LEAST_VARIANCE
        basis = (X.T @ vectors[:, kept].astype(np.float32)).astype(np.float64) / np.sqrt(values[kept])
    else:
        basis = eigh((X.T @ X).astype(np.float64))[1]
    return X @ basis.astype(np.float32), basis


def _cross_entropy(
    logits: NDArray[np.float32], labels: NDArray[np.float64], counts: NDArray[np.float64], *, exclusive: bool
) -> float:
    total = logsumexp(logits, axis=1) if exclusive else np.logaddexp(0, logits).sum(axis=1, dtype=np.float64)
    return float(counts @ (total - (logits * labels).sum(axis=1)))
