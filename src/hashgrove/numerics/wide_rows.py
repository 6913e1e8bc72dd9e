"""Many rows with thousands of features: products with them, and a solver for the Newton steps of a linear SVM.

The matrix of such a step has as many rows and columns as there are features, and it is another one in each step.
`WideRows` multiplies by it without computing it, and `ConjugateSteps` solves with these products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import ssyrk
from scipy.sparse.linalg import LinearOperator

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["ConjugateSteps", "WideRows"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROWS_PER_CHUNK = 2048
EPSILON = float(np.finfo(np.float32).eps)
ENOUGH = 0.1  # a solution is good enough when its error, measured by the preconditioner, has fallen to this share
MAX_STEPS = 100


class WideRows(LinearOperator):  # type: ignore[misc, unused-ignore]
    """The rows (x - low) / span of a matrix, each with a 1 at its end, as an operator: ``rows @ w`` and ``rows.T @ r``.

    The matrix is not copied, and a product reads it once, so one of uint8 is multiplied eight times as fast as one of
    float64. Sums are those of fixed chunks of rows, so results do not depend on the number of threads.

    Parameters
    ----------
    X : array of shape (n, d)
    low, span : float64 arrays of shape (d,)

    Examples
    --------
    >>> rows = WideRows(np.array([[1.0, 3.0], [2.0, 5.0]]), low=np.array([1.0, 3.0]), span=np.array([1.0, 2.0]))
    >>> (rows @ np.array([1.0, 10.0, 100.0])).tolist()
    [100.0, 111.0]
    """

    def __init__(self, X: NDArray[Any], *, low: Floats, span: Floats, n_jobs: int | None = None) -> None:
        super().__init__(np.float64, (len(X), X.shape[1] + 1))
        self.X = np.ascontiguousarray(X)
        self.low, self.span, self.n_jobs = low, span, n_jobs

    def _matvec(self, w: Floats) -> Floats:
        tasks = [(self.X, *self._unscaled(w), *part) for part in chunks(len(self.X), ROWS_PER_CHUNK)]
        return np.concatenate(run_tasks(_dots, tasks, n_jobs=self.n_jobs))

    def _rmatvec(self, factors: Floats) -> Floats:
        tasks = [(self.X, np.ravel(factors), *part) for part in chunks(len(self.X), ROWS_PER_CHUNK)]
        return self._scaled(run_tasks(_weighted_sum, tasks, n_jobs=self.n_jobs))

    def curved(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """X_A' X_A w for the chosen rows A, in one pass over them. O(|A| d)."""
        tasks = [(self.X, chosen, *self._unscaled(w), *part) for part in chunks(len(chosen), ROWS_PER_CHUNK)]
        return self._scaled(run_tasks(_curved, tasks, n_jobs=self.n_jobs))

    def centred_gram(self) -> tuple[NDArray[np.float32], Floats]:
        """The products of the centred columns in the lower triangle (d, d), and the means (d,). O(n d^2)."""
        n, d = self.X.shape
        centre = self.X.mean(axis=0, dtype=np.float64)
        exact = np.result_type(self.X, np.float32)  # has room for all digits of X
        gram = np.zeros((d, d), np.float32, order="F")
        for start, stop in chunks(n, ROWS_PER_CHUNK):
            block = (self.X[start:stop] - centre.astype(exact)) / self.span.astype(exact)
            gram = ssyrk(1.0, block.T.astype(np.float32, copy=False), beta=1.0, c=gram, lower=True, overwrite_c=True)
        return gram, (centre - self.low) / self.span

    def _unscaled(self, w: Floats) -> tuple[Floats, float]:
        """Weights of the features as they are in X, and the constant."""
        weights = np.ravel(w)[:-1] / self.span
        return weights, float(np.ravel(w)[-1] - self.low @ weights)

    def _scaled(self, sums: list[Floats]) -> Floats:
        """A sum of multiples of rows, from the parts of that of rows as they are in X, each with a 1 at its end."""
        total = np.sum(sums, axis=0) if sums else np.zeros(self.shape[1])
        total[:-1] = (total[:-1] - self.low * total[-1]) / self.span
        return np.asarray(total)


class ConjugateSteps:
    """Solves (X_A' X_A + r I) x = b with r = 1 / 2C for any set A of rows, by conjugate gradients.

    They are preconditioned with the same matrix of all rows: each step then takes a product with the rows of A, and a
    solution with a Cholesky factor, which is computed once. About ten steps are enough if A has half of the rows.

    The factor has float32 numbers, because it need not be exact: they take half of the memory and of the time. With
    X = X_c + 1 m', where m are the means, X'X = X_c' X_c + n m m'. Only the first term is factorised, since the second
    one is so large that the digits of the first would be lost beside it; it is added by the formula of Sherman and
    Morrison. So that rounding leaves the matrix positive definite, each entry of its diagonal is raised by a rounding
    error.
    """

    def __init__(self, rows: WideRows) -> None:
        self.rows = rows
        self._kept: tuple[float, _Preconditioner] | None = None

    def is_exact(self, C: float) -> bool:
        """Solutions are approximate."""
        return False

    def solve(self, active: Mask, right: Floats, C: float) -> Floats:
        """An approximation of x for the rows with ``active``."""
        if self._kept is None or self._kept[0] != C:
            self._kept = C, _Preconditioner(self.rows, 0.5 / C)
        precondition, chosen = self._kept[1], np.flatnonzero(active)
        x, residual = np.zeros_like(right), right.copy()
        direction = preconditioned = precondition(residual)
        first = error = residual @ preconditioned
        for _ in range(MAX_STEPS):
            if error <= ENOUGH**2 * first:
                break
            curved = self.rows.curved(chosen, direction) + 0.5 / C * direction
            length = error / (direction @ curved)
            x += length * direction
            residual -= length * curved
            preconditioned = precondition(residual)
            earlier, error = error, residual @ preconditioned
            direction = preconditioned + error / earlier * direction
        return x


class _Preconditioner:
    """Solves with X'X + r I, approximately: see `ConjugateSteps`."""

    def __init__(self, rows: WideRows, ridge: float) -> None:
        gram, mean = rows.centred_gram()
        diagonal = gram.diagonal().astype(np.float64)
        gram.flat[:: len(gram) + 1] += ridge + EPSILON * len(gram) * diagonal
        self.of_constant = ridge + EPSILON * rows.shape[0]
        self.factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
        self.mean = np.append(mean, 1.0)
        self.solved_mean = self._solve_centred(self.mean)
        self.share = self.solved_mean / (1.0 / rows.shape[0] + self.mean @ self.solved_mean)

    def __call__(self, right: Floats) -> Floats:
        solved = self._solve_centred(right)
        return np.asarray(solved - self.share * (self.mean @ solved))

    def _solve_centred(self, right: Floats) -> Floats:
        """Solve with X_c' X_c + r I; the constant, the last column of X, is 0 in X_c."""
        solved = cho_solve(self.factor, right[:-1].astype(np.float32), check_finite=False)
        return np.append(solved.astype(np.float64), right[-1] / self.of_constant)


@kernel(reorder_sums=True)
def _dots(X, weights, offset, first, last):
    """Inner products of the rows [first, last) with the weights, plus the offset."""
    found = np.empty(last - first)
    for i in range(first, last):
        row, total = X[i], 0.0
        for j in range(len(weights)):
            total += row[j] * weights[j]
        found[i - first] = total + offset
    return found


@kernel(reorder_sums=True)
def _weighted_sum(X, factors, first, last):
    """Sum of the rows [first, last), each with a 1 at its end and times its factor; rows with the factor 0 are free."""
    n_columns = X.shape[1]
    total = np.zeros(n_columns + 1)
    for i in range(first, last):
        factor = factors[i]
        if factor != 0.0:
            row = X[i]
            for j in range(n_columns):
                total[j] += row[j] * factor
            total[n_columns] += factor
    return total


@kernel(reorder_sums=True)
def _curved(X, chosen, weights, offset, first, last):
    """Sum of the rows chosen[first:last], each with a 1 at its end and times its inner product with the weights.

    A row is read from memory once, because it is still in the cache when it is added.
    """
    n_columns = X.shape[1]
    total = np.zeros(n_columns + 1)
    for k in range(first, last):
        row, factor = X[chosen[k]], 0.0
        for j in range(n_columns):
            factor += row[j] * weights[j]
        factor += offset
        for j in range(n_columns):
            total[j] += row[j] * factor
        total[n_columns] += factor
    return total
