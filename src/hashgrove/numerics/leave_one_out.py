"""Ridge regression with leave-one-out predictions: those of a model that has not seen the row.

A model fits the rows that it was trained on better than others. Whatever is learned next from its outputs should see
what new rows will get, so it sees leave-one-out predictions. For ridge regression these have a closed form,
f_-i = (f_i - h_i y_i) / (1 - h_i), where h_i is the leverage of row i. One eigendecomposition serves all penalties.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hashgrove.runtime.threads import chunks

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

    def __init__(self, X: NDArray[np.float32 | np.float64], sample_weight: NDArray[np.float64] | None = None) -> None:
        self._rows = X
        n, d = X.shape
        self._share = np.full(n, 1 / n) if sample_weight is None else sample_weight / sample_weight.sum()
        self._mean = self._share @ X
        self._is_wide = n <= d
        root = np.sqrt(self._share * n)
        self._root = root
        if self._is_wide:  # the eigenvectors of the n x n matrix of products between rows
            scaled = (X - self._mean) * root[:, None]
            square = scaled @ scaled.T
        else:
            square = np.zeros((d, d))
            for start, stop in chunks(n, ROWS_PER_CHUNK):
                part = ((X[start:stop] - self._mean) * root[start:stop, None]).astype(X.dtype, copy=False)
                square += part.T @ part
        values, self._vectors = eigh(square, overwrite_a=True, check_finite=False)
        self._values = np.maximum(values, 0.0)
        self._last: tuple[float, NDArray[np.float64]] | None = None  # a penalty, and the leverages with it

    def best_penalty(self, targets: NDArray[np.float64]) -> float:
        """The penalty with the least squared error of the leave-one-out predictions, summed over all targets."""
        unit = self._values.mean()
        penalties = PENALTIES * (unit if unit > 0 else 1.0)
        leverages = self._leverages(penalties)
        errors = [
            float(
                self._share @ np.square(self._solve(targets, penalty, leverages[:, k]).left_out - targets).sum(axis=1)
            )
            for k, penalty in enumerate(penalties)
        ]
        return float(penalties[int(np.argmin(errors))])

    def solve(self, targets: NDArray[np.float64], penalty: float) -> Regression:
        """Regressions of targets of shape (n, n_targets)."""
        last = self._last  # read once: another thread may solve with another penalty
        if last is None or last[0] != penalty:  # one penalty serves all bits of a fit
            last = self._last = penalty, self._leverages(np.array([penalty]))[:, 0]
        return self._solve(targets, penalty, last[1])

    def fitted(self, targets: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
        """The predictions for the training rows by the model that saw them all."""
        found = self.solve(targets, penalty)
        return self._rows @ found.weights.T + found.bias

    def _leverages(self, penalties: NDArray[np.float64]) -> NDArray[np.float64]:
        """The leverage h of each row, shape (n, n_penalties); the intercept has a part in it."""
        n = len(self._rows)
        if self._is_wide:
            factors = self._values[:, None] / (self._values[:, None] + penalties)
            return np.square(self._vectors) @ factors + self._share[:, None]
        factors, out = 1 / (self._values[:, None] + penalties), np.empty((n, len(penalties)))
        vectors = self._vectors.astype(self._rows.dtype)
        for start, stop in chunks(n, ROWS_PER_CHUNK):
            part = ((self._rows[start:stop] - self._mean) * self._root[start:stop, None]).astype(self._rows.dtype)
            out[start:stop] = np.square(part @ vectors) @ factors
        return out + self._share[:, None]

    def _solve(self, targets: NDArray[np.float64], penalty: float, leverage: NDArray[np.float64]) -> Regression:
        rows, dtype = self._rows, self._rows.dtype
        mean = self._share @ targets
        scaled = (targets - mean) * self._root[:, None]
        if self._is_wide:
            dual = self._vectors @ ((self._vectors.T @ scaled) / (self._values + penalty)[:, None])
            dual *= self._root[:, None]
            weights = dual.T @ rows - np.outer(dual.sum(axis=0), self._mean)
        else:
            scaled *= self._root[:, None]
            moment = scaled.T.astype(dtype) @ rows - np.outer(scaled.sum(axis=0), self._mean)
            weights = ((moment @ self._vectors) / (self._values + penalty)) @ self._vectors.T
        bias = mean - weights @ self._mean
        fitted = rows @ weights.T.astype(dtype) + bias
        left_out = (fitted - leverage[:, None] * targets) / np.maximum(1 - leverage, LEAST_REMAINDER)[:, None]
        return Regression(weights, bias, left_out)
