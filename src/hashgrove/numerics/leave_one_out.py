"""Ridge regression with leave-one-out predictions: those of a model that has not seen the row.

A model fits the rows that it was trained on better than others. Whatever is learned next from its outputs should see
what new rows will get, so it sees leave-one-out predictions. For ridge regression these have a closed form,
f_-i = (f_i - h_i y_i) / (1 - h_i), where h_i is the leverage of row i. One eigendecomposition serves all penalties.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from hashgrove.numerics.rows import ROWS_PER_CHUNK, ExactSums, Numbers, Rows, integer_counts, stratified_rows
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["LeaveOneOutRidge", "Regression"]

PENALTIES = 10.0 ** np.arange(-4, 2.01, 0.5)  # in units of the mean eigenvalue
PENALTY_ROWS = 20_000  # whose leave-one-out errors choose the penalty
PENALTY_VALUES = 2**25  # in all, in these rows; wider rows are fewer
LEAST_REMAINDER = 1e-6  # of 1 - h, so that a row that only it can explain does not divide by zero


class Regression(NamedTuple):
    """Linear models of some targets: the prediction for rows X is ``X @ weights.T + bias``."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    penalty: float


class _Sample(NamedTuple):
    """Numbers of some rows, their products with the eigenvectors, and their leverages with each of the penalties."""

    numbers: NDArray[np.intp]
    projections: NDArray[Any]
    leverages: NDArray[np.float64]


class LeaveOneOutRidge:
    """Regressions of any targets on the same rows, with an intercept and a penalty on the weights.

    Parameters
    ----------
    rows : Rows of float32 or float64
    sample_weight : float64 array of shape (n,), optional
        How much each row counts; see `integer_counts`.
    learned : array of row numbers, optional
        The rows to learn from; all if it is None. The predictions for the others are leave-one-out ones anyway.
    largest : float, default=1.0
        The largest absolute value in the rows; see `ExactSums`.

    Notes
    -----
    Targets are small integers, such as -1 and 1, in a dense array or a sparse matrix of shape (n, n_targets).

    O(n d min(n, d)) to build, and O(n d) per target to solve. Memory: a square matrix of min(n, d), a chunk of rows per
    thread, and one number per row; all rows only if there are no more than columns.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[0], [1], [2], [3]])
    >>> ridge = LeaveOneOutRidge(Rows(X), largest=3.0)
    >>> found = ridge.solve(y, ridge.best_penalty(y))
    >>> ridge.left_out(found, y).round(2).ravel().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """

    def __init__(
        self,
        rows: Rows,
        sample_weight: NDArray[np.float64] | None = None,
        *,
        learned: NDArray[np.intp] | None = None,
        largest: float = 1.0,
    ) -> None:
        n, d = rows.shape
        self._rows = rows
        counts = integer_counts(sample_weight)
        share = np.ones(n) if counts is None else counts.astype(np.float64)
        if learned is not None:
            learned_share, share = share[learned], np.zeros(n)
            share[learned] = learned_share
        self._learned = np.arange(n) if learned is None else learned
        self._n = len(self._learned)
        self._total = float(share.sum())
        self._share = share / self._total
        self._all = rows.take(slice(None)) if self._n <= d and learned is None else None
        if self._all is not None:  # the eigenvectors of the n x n matrix of products between rows
            self._mean = self._share @ self._all
            self._root = np.sqrt(self._share * n)
            scaled = (self._all - self._mean) * self._root[:, None]
            square = scaled @ scaled.T
        else:
            self._sums = ExactSums(rows, counts, chosen=learned, largest=largest)
            total, square = self._sums.moments()
            self._mean = total / self._total
            square -= np.outer(total, self._mean)
            square *= self._n / self._total
        values, self._vectors = eigh(square, overwrite_a=True, check_finite=False, driver="evd")
        self._values = np.maximum(values, 0.0)
        self._kept: NDArray[Any] | None = None  # `_projections` of all rows, once they were needed
        self._leverages_with: dict[float, NDArray[np.float64]] = {}  # of all rows, by penalty
        self._last_targets: tuple[Any, NDArray[np.float64], NDArray[np.float64]] | None = None

    def best_penalty(self, targets: Any) -> float:
        """The penalty with the least squared error of the leave-one-out predictions, summed over all targets.

        The errors are those of at most 20,000 rows.
        """
        return self._best_penalty(*self._projected(targets), targets)

    def best_penalties(self, targets: NDArray[Any]) -> list[float]:
        """The best penalty of each target, the same as if it was alone."""
        mean, moment = self._moments(targets)
        return [
            self._best_penalty(mean[one], moment[one] @ self._vectors, targets[:, one]) for one in _ones(len(moment))
        ]

    def _best_penalty(self, mean: NDArray[np.float64], projected: NDArray[np.float64], targets: Any) -> float:
        sample = self._sample
        directions = projected.T.astype(sample.projections.dtype)

        def errors(start: int, stop: int) -> list[float]:
            numbers = sample.numbers[start:stop]
            known, share, found = targets[numbers], self._share[numbers], []
            for penalty, leverage in zip(self._penalties, sample.leverages[start:stop].T, strict=True):
                factors = (1 / (self._values + penalty)).astype(directions.dtype)
                predictions = (sample.projections[start:stop] * factors) @ directions
                predictions += mean.astype(directions.dtype)
                error = _leave_out(predictions, leverage, known)
                error -= known.toarray() if sparse.issparse(known) else known
                found.append(float(share @ np.square(error, out=error).sum(axis=1)))
            return found

        tasks = chunks(len(sample.numbers), ROWS_PER_CHUNK)
        best = int(np.argmin(np.sum(run_tasks(errors, tasks, n_jobs=self._rows.n_jobs), axis=0)))
        return float(self._penalties[best])

    @property
    def _penalties(self) -> NDArray[np.float64]:
        unit = self._values.mean()
        return PENALTIES * (unit if unit > 0 else 1.0)

    @cached_property
    def _sample(self) -> _Sample:
        """The rows whose errors choose the penalty."""
        size = min(PENALTY_ROWS, max(PENALTY_VALUES // self._rows.shape[1], 1))
        numbers = self._learned[stratified_rows(self._n, size)]
        tasks = [(numbers[start:stop],) for start, stop in chunks(len(numbers), ROWS_PER_CHUNK)]
        projections = np.concatenate(run_tasks(self._projections, tasks, n_jobs=self._rows.n_jobs))
        if len(numbers) == len(self._rows):
            self._kept = projections
        return _Sample(numbers, projections, self._leverages(self._penalties, numbers, projections))

    def solve(self, targets: Any, penalty: float) -> Regression:
        """Regressions of targets of shape (n, n_targets)."""
        return self._model(*self._projected(targets), penalty)

    def solve_each(self, targets: NDArray[Any], penalties: Sequence[float]) -> list[Regression]:
        """One regression per target, with a penalty of its own, each the same as if it was alone."""
        mean, moment = self._moments(targets)
        return [
            self._model(mean[one], moment[one] @ self._vectors, penalty)
            for one, penalty in zip(_ones(len(moment)), penalties, strict=True)
        ]

    def left_out(self, model: Regression, targets: Any) -> NDArray[np.float64]:
        """The predictions for all rows, each by the model that had not seen the row."""
        leverage = self.leverage(model.penalty)
        return np.asarray(self._rows.apply(partial(_predict_left_out, model), leverage, targets))

    def left_out_rows(self, model: Regression, targets: Any) -> Rows:
        """The same as rows that are made when they are needed."""
        function = partial(_predict_left_out, model)
        return self._rows.then(
            function, self.leverage(model.penalty), targets, n_columns=len(model.bias), is_kept=False
        )

    def left_out_each(self, models: Sequence[Regression], targets: NDArray[Any]) -> NDArray[Any]:
        """The same as `left_out` of regressions of one target each, side by side; in one pass over the rows."""
        penalties = sorted({model.penalty for model in models})
        places = [penalties.index(model.penalty) for model in models]
        function = partial(_predict_each_left_out, models, places)
        return np.asarray(self._rows.apply(function, targets, *map(self.leverage, penalties)))

    def leverage(self, penalty: float) -> NDArray[np.float64]:
        """The leverage h of each row with a penalty. It is kept, because all bits of a fit share a few penalties.

        Several threads that ask for it at the same time get the same, to the last bit.
        """
        found = self._leverages_with.get(penalty)
        if found is None:
            how: dict[str, Any] = {"values": self._values, "penalties": np.array([penalty]), "n": self._n}
            kept, parts = self._kept, self._rows.chunks()
            if self._all is not None:
                found = np.concatenate([self._own_leverages(how["penalties"], numbers) for numbers in parts])
            elif kept is not None:
                tasks = [(kept[numbers], self._share[numbers]) for numbers in parts]
                found = np.concatenate(run_tasks(partial(_leverages, **how), tasks, n_jobs=self._rows.n_jobs))
            else:
                function = partial(_project_leverages, mean=self._mean, vectors=self._vectors, **how)
                found = self._rows.apply(function, self._share)
            found = self._leverages_with[penalty] = found[:, 0]
        return found

    def _projections(self, numbers: NDArray[np.intp]) -> NDArray[Any]:
        """The products of some rows, minus the mean, with the eigenvectors."""
        if self._all is None:
            return _project(self._rows.take(numbers), mean=self._mean, vectors=self._vectors)
        root = self._root[numbers, None]
        return np.asarray(self._vectors[numbers] * self._values / np.where(root > 0, root, 1.0))

    def _leverages(
        self, penalties: NDArray[np.float64], numbers: Numbers, projections: NDArray[Any]
    ) -> NDArray[np.float64]:
        """The leverages of some rows, shape (n_rows, n_penalties); the intercept has a part in them."""
        if self._all is not None:
            return self._own_leverages(penalties, numbers)
        return _leverages(projections, self._share[numbers], values=self._values, penalties=penalties, n=self._n)

    def _own_leverages(self, penalties: NDArray[np.float64], numbers: Numbers) -> NDArray[np.float64]:
        """The same if all rows are in memory."""
        factors = self._values[:, None] / (self._values[:, None] + penalties)
        return np.square(self._vectors[numbers]) @ factors + self._share[numbers, None]

    def _projected(self, targets: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The means of the targets, and the products with each eigenvector, shape (n_targets, n_eigenvectors)."""
        mean, moment = self._moments(targets)
        return mean, moment @ self._vectors

    def _moments(self, targets: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The means of the targets, and the products with the centred columns (rows, if all are in memory).

        Those of the last targets are kept, because a penalty is mostly chosen before the same targets are solved.
        """
        last = self._last_targets
        if last is None or last[0] is not targets:
            last = self._last_targets = (targets, *self._new_moments(targets))
        return last[1:]

    def _new_moments(self, targets: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self._all is not None:
            dense = targets.toarray() if sparse.issparse(targets) else targets
            mean = np.array([self._share @ target for target in dense.T])  # each as if it was alone
            return mean, ((dense - mean) * self._root[:, None]).T
        sums, moment = self._sums.with_targets(targets)
        moment -= np.outer(sums, self._mean)
        return sums / self._total, moment * (self._n / self._total)

    def _model(self, mean: NDArray[np.float64], projected: NDArray[np.float64], penalty: float) -> Regression:
        weights = (projected / (self._values + penalty)) @ self._vectors.T
        if self._all is not None:
            weights *= self._root
            weights = weights @ self._all - np.outer(weights.sum(axis=1), self._mean)
        return Regression(weights, mean - weights @ self._mean, penalty)


def _ones(n: int) -> list[slice]:
    """Slices that each take one of n targets."""
    return [slice(k, k + 1) for k in range(n)]


def _leave_out(predictions: NDArray[Any], leverage: NDArray[np.float64], known: Any) -> NDArray[Any]:
    """Predictions by models that had not seen the row, from those of a model that had; in their place."""
    h = leverage.astype(predictions.dtype)[:, None]
    if sparse.issparse(known):
        row = np.repeat(np.arange(len(h)), np.diff(known.indptr))
        predictions[row, known.indices] -= h[row, 0] * known.data.astype(predictions.dtype)
    else:
        predictions -= h * known
    predictions /= np.maximum(1 - h, LEAST_REMAINDER)
    return predictions


def _predict_left_out(model: Regression, rows: NDArray[Any], leverage: NDArray[np.float64], known: Any) -> NDArray[Any]:
    """The predictions for some rows, each by the model that had not seen the row."""
    predictions = rows @ model.weights.T.astype(rows.dtype)
    predictions += model.bias.astype(rows.dtype)
    return _leave_out(predictions, leverage, known)


def _predict_each_left_out(
    models: Sequence[Regression], places: Sequence[int], rows: NDArray[Any], known: NDArray[Any], *leverages: Any
) -> NDArray[Any]:
    """The same of models of one target each; each has the leverages at its place."""
    each = zip(models, places, _ones(len(models)), strict=True)
    return np.hstack([_predict_left_out(model, rows, leverages[place], known[:, one]) for model, place, one in each])


def _project(rows: NDArray[Any], *, mean: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[Any]:
    return np.asarray((rows - mean.astype(rows.dtype)) @ vectors.astype(rows.dtype))


def _leverages(
    projections: NDArray[Any],
    share: NDArray[np.float64],
    *,
    values: NDArray[np.float64],
    penalties: NDArray[np.float64],
    n: int,
) -> NDArray[np.float64]:
    found = np.square(projections) @ (1 / (values[:, None] + penalties)).astype(projections.dtype)
    return np.asarray((found * n + 1) * share[:, None])


def _project_leverages(
    rows: NDArray[Any], share: NDArray[np.float64], *, mean: Any, vectors: Any, **more: Any
) -> NDArray[np.float64]:
    return _leverages(_project(rows, mean=mean, vectors=vectors), share, **more)
