"""Ridge regression with leave-one-out predictions: those of a model that has not seen the row.

A model fits the rows that it was trained on better than others. Whatever is learned next from its outputs should see
what new rows will get, so it sees leave-one-out predictions. For ridge regression these have a closed form,
f_-i = (f_i - h_i y_i) / (1 - h_i), where h_i is the leverage of row i. One eigendecomposition serves all penalties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hashgrove.runtime.threads import chunks, in_order, run_tasks

__all__ = ["LeaveOneOutRidge", "Regression"]

ROWS_PER_CHUNK = 4096
PENALTIES = 10.0 ** np.arange(-4, 2.01, 0.5)  # in units of the mean eigenvalue
LEAST_REMAINDER = 1e-6  # of 1 - h, so that a row that only it can explain does not divide by zero


class Regression(NamedTuple):
    """Linear models of some targets, and the predictions for each training row by models that did not see it.

    The prediction for rows X is ``X @ weights.T + bias``.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    left_out: NDArray[np.float64]


class LeaveOneOutRidge:
    """Regressions of any targets on the same rows, with an intercept and a penalty on the weights.

    Parameters
    ----------
    X : float32 or float64 array of shape (n, d)
    sample_weight : float64 array of shape (n,), optional
        How much each row counts.
    n_jobs : int, optional
        Number of threads that chunks of rows are divided among.

    Notes
    -----
    O(n d min(n, d)) to build, and O(n d) per target to solve. Memory: the rows and a square matrix of min(n, d).

    Examples
    --------
    >>> ridge = LeaveOneOutRidge(np.array([[0.0], [1.0], [2.0], [3.0]]))
    >>> y = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> found = ridge.solve(y, ridge.best_penalty(y))
    >>> found.left_out.round(2).ravel().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """

    def __init__(
        self,
        X: NDArray[np.float32 | np.float64],
        sample_weight: NDArray[np.float64] | None = None,
        *,
        n_jobs: int | None = 1,
    ) -> None:
        self._rows, self._n_jobs = X, n_jobs
        n, d = X.shape
        self._share = np.full(n, 1 / n) if sample_weight is None else sample_weight / sample_weight.sum()
        self._mean = self._share @ X
        self._is_wide = n <= d
        self._root = np.sqrt(self._share * n)
        self._chunks = chunks(n, ROWS_PER_CHUNK)
        if self._is_wide:  # the eigenvectors of the n x n matrix of products between rows
            scaled = (X - self._mean) * self._root[:, None]
            square = scaled @ scaled.T
        else:
            square = np.zeros((d, d))
            for products in in_order(self._products, self._chunks, n_jobs=n_jobs):
                square += products
        values, self._vectors = eigh(square, overwrite_a=True, check_finite=False, driver="evd")
        self._values = np.maximum(values, 0.0)
        self._last: tuple[float, NDArray[np.float64]] | None = None  # a penalty, and the leverages with it
        self._of_all: NDArray[np.float64] | None = None  # the leverages with all PENALTIES

    def best_penalty(self, targets: NDArray[np.float64]) -> float:
        """The penalty with the least squared error of the leave-one-out predictions, summed over all targets."""
        unit = self._values.mean()
        penalties = PENALTIES * (unit if unit > 0 else 1.0)
        if self._of_all is None:
            self._of_all = self._leverages(penalties)
        mean, projected = self._projected(targets)
        errors = []
        for penalty, leverage in zip(penalties, self._of_all.T, strict=True):
            weights = self._weights(projected, penalty)
            given = targets, weights, mean - weights @ self._mean, leverage
            tasks = [(*given, *rows) for rows in self._chunks]
            errors.append(sum(run_tasks(self._squared_error, tasks, n_jobs=self._n_jobs)))
        best = int(np.argmin(errors))
        self._last = float(penalties[best]), self._of_all[:, best]
        return self._last[0]

    def solve(self, targets: NDArray[np.float64], penalty: float) -> Regression:
        """Regressions of targets of shape (n, n_targets)."""
        last = self._last  # read once: another thread may solve with another penalty
        if last is None or last[0] != penalty:  # one penalty serves all bits of a fit
            last = self._last = penalty, self._leverages(np.array([penalty]))[:, 0]
        mean, projected = self._projected(targets)
        weights = self._weights(projected, penalty)
        bias = mean - weights @ self._mean
        tasks = [(targets, weights, bias, last[1], *rows) for rows in self._chunks]
        return Regression(weights, bias, np.concatenate(run_tasks(self._left_out, tasks, n_jobs=self._n_jobs)))

    def fitted(self, targets: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
        """The predictions for the training rows by the model that saw them all."""
        found = self.solve(targets, penalty)
        return self._rows @ found.weights.T + found.bias

    def _scaled(self, start: int, stop: int) -> NDArray[Any]:
        """The rows [start, stop) minus the mean, times the roots of their weights."""
        rows = self._rows[start:stop]
        return np.asarray(((rows - self._mean) * self._root[start:stop, None]).astype(rows.dtype, copy=False))

    def _products(self, rows: tuple[int, int]) -> NDArray[Any]:
        """The sums of products between columns, over a chunk of rows."""
        part = self._scaled(*rows)
        return part.T @ part

    def _leverages(self, penalties: NDArray[np.float64]) -> NDArray[np.float64]:
        """The leverage h of each row, shape (n, n_penalties); the intercept has a part in it."""
        if self._is_wide:
            factors = self._values[:, None] / (self._values[:, None] + penalties)
            return np.square(self._vectors) @ factors + self._share[:, None]
        factors, vectors = 1 / (self._values[:, None] + penalties), self._vectors.astype(self._rows.dtype)

        def leverages(start: int, stop: int) -> NDArray[np.float64]:
            return np.square(self._scaled(start, stop) @ vectors) @ factors + self._share[start:stop, None]

        return np.concatenate(run_tasks(leverages, self._chunks, n_jobs=self._n_jobs))

    def _projected(self, targets: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The means of the targets, and the products with each eigenvector, shape (n_targets, n_eigenvectors)."""
        mean = self._share @ targets
        scaled = (targets - mean) * self._root[:, None]
        if self._is_wide:
            return mean, scaled.T @ self._vectors
        scaled *= self._root[:, None]
        moment = scaled.T.astype(self._rows.dtype) @ self._rows - np.outer(scaled.sum(axis=0), self._mean)
        return mean, moment @ self._vectors

    def _weights(self, projected: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
        """The weights of the columns, shape (n_targets, d)."""
        found = (projected / (self._values + penalty)) @ self._vectors.T
        if not self._is_wide:
            return found
        found *= self._root
        return found @ self._rows - np.outer(found.sum(axis=1), self._mean)

    def _left_out(
        self,
        targets: NDArray[np.float64],
        weights: NDArray[np.float64],
        bias: NDArray[np.float64],
        leverage: NDArray[np.float64],
        start: int,
        stop: int,
    ) -> NDArray[np.float64]:
        """The leave-one-out predictions for the rows [start, stop)."""
        h = leverage[start:stop, None]
        found = self._rows[start:stop] @ weights.T.astype(self._rows.dtype) + bias
        found -= h * targets[start:stop]
        found /= np.maximum(1 - h, LEAST_REMAINDER)
        return found

    def _squared_error(self, targets: NDArray[np.float64], *given: Any) -> float:
        """The sum of the squared errors of these predictions; the arguments are those of `_left_out`."""
        error = self._left_out(targets, *given)
        start, stop = given[-2:]
        error -= targets[start:stop]
        return float(self._share[start:stop] @ np.square(error, out=error).sum(axis=1))
