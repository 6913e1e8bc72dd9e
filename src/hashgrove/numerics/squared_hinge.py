"""Linear support vector machines with squared hinge loss: the problem of LIBLINEAR's ``-s 2 -B 1``.

The objective is 1/2 ||w||^2 + C sum_i max(0, 1 - z_i w x_i)^2, where each row x_i ends in a constant 1, so that the
intercept is a weight like the others. A row is called active if its slack 1 - z_i w x_i is positive. As long as the set
A of active rows stays the same, the objective is the quadratic 1/2 ||w||^2 + C ||z_A - X_A w||^2 (since z_i is -1 or
+1) with the Hessian H = I + 2 C X_A' X_A. So the Newton step -H^-1 gradient leads to the minimum of that quadratic: a
ridge regression on the active rows. If the same rows are active there, the gradient is 0, and since the objective is
convex, this is the minimum. In practice 3 to 20 steps are enough for any C. With thousands of features the steps are
not exact, but lead to the same minimum.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from hashgrove.numerics.wide_rows import ConjugateSteps, WideRows
from hashgrove.runtime.blas import single_threaded_blas

__all__ = ["SquaredHinge"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAX_HALVINGS = 20
ARMIJO = 1e-4  # the objective must decrease by at least this share of what its slope predicts
EPSILON = float(np.finfo(np.float64).eps)
BITS_AT_ONCE = 64
MAX_MATRIX = 5000  # rows or columns of the matrix of a Newton step: 200 MB
MAX_STEPS, MAX_CG_STEPS = 50, 50  # of `solve_all`: Newton steps, and conjugate gradient steps per Newton step
FORCING = 0.1  # conjugate gradients stop when the residual is this share of the gradient


class SquaredHinge:
    """Rows that several linear SVMs are learned from; what the SVMs share is computed once.

    Parameters
    ----------
    X : array or scipy sparse matrix of shape (n, d)
        Any real dtype.
    scale : bool
        Scale each feature to [0, 1] first; sparse features, which must keep their zeros, by their largest magnitude.
        The weights that are returned still apply to the features as given.
    n_jobs : int, optional
        Number of threads where there are more than MAX_MATRIX features and more rows than features.

    Notes
    -----
    `solve` learns one bit by exact Newton steps, for any C. If there are fewer features than rows, a step takes
    O(n d + m d^2 + d^3), where m rows enter or leave the active set; otherwise O(n d + m^3) for m active rows. Memory
    is O(n d + min(n, d)^2) in float64.

    Of dense rows with more than MAX_MATRIX features, and no fewer rows, the steps are found by conjugate gradients
    instead (`hashgrove.numerics.wide_rows`). They take O(n d + d^2) each, after O(n d^2 + d^3) for the first bit, and
    d^2 numbers of float32 besides ``X`` itself.

    `solve_all` learns many bits together by conjugate gradients; each of their steps takes O(n d n_bits). It is meant
    for a small C, which needs few of these steps, and is faster than `solve` if there are thousands of features. For
    sparse rows, `solve` takes this way, too, where the matrix of the Newton step would be larger than
    MAX_MATRIX x MAX_MATRIX.

    Examples
    --------
    >>> rows = SquaredHinge(np.array([[0.0], [1.0], [4.0], [5.0]]))
    >>> weights, intercept = rows.solve(np.array([-1, -1, 1, 1]), C=1000.0)
    >>> weights.round(3).tolist(), round(intercept, 3)
    ([0.666], -1.665)
    """

    def __init__(self, X: Any, *, scale: bool = False, n_jobs: int | None = None) -> None:
        self.X, self.n_jobs = X, n_jobs
        self.low, self.span = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if scale and sparse.issparse(X):
            self.span = abs(X).max(axis=0).toarray().ravel().astype(np.float64)
        elif scale:
            self.low = X.min(axis=0).astype(np.float64)
            self.span = X.max(axis=0).astype(np.float64) - self.low
        self.span[self.span == 0] = 1.0

    @cached_property
    def rows(self) -> Any:
        """The scaled rows in float64, each with a 1 at its end."""
        n, d = self.X.shape
        if sparse.issparse(self.X):
            scaled = self.X.astype(np.float64) @ sparse.diags_array(1.0 / self.span)
            return sparse.csr_array(sparse.hstack([scaled, np.ones((n, 1))]))
        rows = np.ones((n, d + 1))
        np.subtract(self.X, self.low, out=rows[:, :-1])
        rows[:, :-1] /= self.span
        return rows

    @single_threaded_blas()
    def solve(
        self, z: NDArray[Any], *, C: float = 1.0, max_iter: int = 1000, tol: float = 1e-4
    ) -> tuple[Floats, float]:
        """Weights (d,) and intercept for a bit ``z`` of -1 and +1, after at most ``max_iter`` Newton steps.

        It stops when the norm of the gradient is at most ``tol`` times its first value, when a full step does not
        change the active rows (this is the minimum), or when rounding keeps the objective from decreasing further.
        """
        z = z.astype(np.float64)
        if self._is_wide:
            solution = _newton(self._wide.rows, self._wide, z, C, max_iter, tol)[:, None]
        elif sparse.issparse(self.X) and min(self.rows.shape) > MAX_MATRIX:
            solution = _newton_cg(self.rows, z[:, None], C, tol)
        else:
            hessian = (_Primal if len(self._ridge.whole) == self.rows.shape[1] else _Dual)(self.rows, self._ridge)
            solution = _newton(self.rows, hessian, z, C, max_iter, tol)[:, None]
        weights, intercepts = self._unscaled(solution)
        return weights[0], float(intercepts[0])

    @single_threaded_blas()
    def solve_all(self, Z: NDArray[Any], *, C: float = 1.0, tol: float = 1e-3) -> tuple[Floats, Floats]:
        """Weights (n_bits, d) and intercepts (n_bits,) for the columns of ``Z``, each of -1 and +1.

        A bit is done when the norm of its gradient is at most ``tol`` times its first value.
        """
        parts = [Z[:, start : start + BITS_AT_ONCE] for start in range(0, Z.shape[1], BITS_AT_ONCE)]
        solutions = [_newton_cg(self.rows, part.astype(np.float64), C, tol) for part in parts]
        return self._unscaled(np.concatenate(solutions, axis=1))

    @property
    def _is_wide(self) -> bool:
        n, d = self.X.shape
        return not sparse.issparse(self.X) and MAX_MATRIX < d < n

    @cached_property
    def _wide(self) -> ConjugateSteps:
        return ConjugateSteps(WideRows(self.X, low=self.low, span=self.span, n_jobs=self.n_jobs))

    @cached_property
    def _ridge(self) -> _Ridge:
        n, columns = self.rows.shape
        return _Ridge(_gram(self.rows) if columns <= n else _gram(self.rows.T))

    def _unscaled(self, solution: Floats) -> tuple[Floats, Floats]:
        weights = solution[:-1].T / self.span
        return weights, solution[-1] - weights @ self.low


class _Ridge:
    """Solves (G + r I) x = b with r = 1 / 2C, where G is the Gram matrix ``whole`` or that of some rows or columns.

    With a huge C, and with features or rows that repeat, r is lost in the rounding error of G and the Cholesky
    factorisation fails. So r is kept at least as large as that error; the step is then no longer Newton's, but it still
    decreases the objective.
    """

    def __init__(self, whole: Floats) -> None:
        self.whole = whole
        self.rounding = 4.0 * EPSILON * float(np.trace(whole))
        self._kept: tuple[float, Any] | None = None

    def size(self, C: float) -> float:
        return max(0.5 / C, self.rounding)

    def is_exact(self, C: float) -> bool:
        return self.rounding <= 1e-6 * 0.5 / C

    def solve(self, gram: Floats, right: Floats, C: float) -> Floats:
        """Solve with the matrix ``gram``, which is overwritten."""
        return np.asarray(cho_solve(self._factor(gram, C), right, check_finite=False))

    def solve_whole(self, right: Floats, C: float) -> Floats:
        """Solve with the matrix ``whole``, with which each bit begins; its factor is kept for the next bit."""
        kept = self._kept
        if kept is None or kept[0] != C:
            self._kept = kept = C, self._factor(self.whole.copy(), C)
        return np.asarray(cho_solve(kept[1], right, check_finite=False))

    def _factor(self, gram: Floats, C: float) -> Any:
        gram.flat[:: len(gram) + 1] += self.size(C)
        return cho_factor(gram.T, lower=True, overwrite_a=True, check_finite=False)  # .T: LAPACK's order, no copy


class _Primal:
    """Solves (X_A' X_A + r I) x = b for a changing set A: rows are added to and subtracted from X_A' X_A."""

    def __init__(self, rows: Any, ridge: _Ridge) -> None:
        self.rows, self.ridge, self.is_exact = rows, ridge, ridge.is_exact
        self.active, self.gram = np.ones(rows.shape[0], bool), ridge.whole

    def solve(self, active: Mask, right: Floats, C: float) -> Floats:
        if active.all():
            return self.ridge.solve_whole(right, C)
        entering, leaving = active & ~self.active, self.active & ~active
        if np.count_nonzero(entering | leaving) < np.count_nonzero(active):
            self.gram = self.gram + self._gram_of(entering) - self._gram_of(leaving)
        else:
            self.gram = self._gram_of(active)
        self.active = active
        return self.ridge.solve(self.gram.copy(), right, C)

    def _gram_of(self, chosen: Mask) -> Floats:
        return _gram(self.rows[chosen])


class _Dual:
    """The same with K = X X', so that no matrix is d x d: x = (b - X_A' a) / r with (K_AA + r I) a = X_A b.

    (Multiplied out: X_A' (X_A b - K_AA a - r a) + r b = r b.) Digits that cancel in the difference are recovered by the
    next step, which starts from the exact gradient at w.
    """

    def __init__(self, rows: Any, ridge: _Ridge) -> None:
        self.rows, self.ridge, self.is_exact = rows, ridge, ridge.is_exact

    def solve(self, active: Mask, right: Floats, C: float) -> Floats:
        coefficients = self.rows @ right
        if active.all():
            coefficients = self.ridge.solve_whole(coefficients, C)
        else:
            kernel = self.ridge.whole[np.ix_(active, active)]
            coefficients[active] = self.ridge.solve(kernel, coefficients[active], C)
            coefficients[~active] = 0.0
        return (right - self.rows.T @ coefficients) / self.ridge.size(C)


def _newton(
    rows: Any, hessian: _Primal | _Dual | ConjugateSteps, z: Floats, C: float, max_iter: int, tol: float
) -> Floats:
    """The minimum (d + 1,) for one bit; the start is w = 0, where all rows are active."""
    w, margins = np.zeros(rows.shape[1]), np.zeros(len(z))  # margins: z_i w x_i
    active, stop_at = np.ones(len(z), bool), None
    for _ in range(max_iter):
        slack = np.maximum(1.0 - margins, 0.0)
        gradient = w - 2.0 * C * (rows.T @ (z * slack))
        size = np.linalg.norm(gradient)
        stop_at = tol * size if stop_at is None else stop_at
        if size <= stop_at:
            break
        step = hessian.solve(active, -gradient / (2.0 * C), C)
        if -(gradient @ step) <= EPSILON * (0.5 * (w @ w) + C * (slack @ slack)):
            break
        change = z * (rows @ step)
        length = _line_search(w, step, gradient, margins, change, C)
        w, margins = w + length * step, margins + length * change
        earlier, active = active, margins < 1.0
        if length == 0.0 or (length == 1.0 and hessian.is_exact(C) and np.array_equal(active, earlier)):
            break
    return w


def _newton_cg(X: Any, Z: Floats, C: float, tol: float) -> Floats:
    """The minima (d + 1, n_bits), one per column of Z."""
    W, margins = np.zeros((X.shape[1], Z.shape[1])), np.zeros_like(Z)
    stop_at = None
    for _ in range(MAX_STEPS):
        slack = np.maximum(1.0 - margins, 0.0)
        gradient = W - 2.0 * C * (X.T @ (Z * slack))
        size = np.linalg.norm(gradient, axis=0)
        stop_at = tol * size if stop_at is None else stop_at
        going = np.flatnonzero(size > stop_at)
        if not going.size:
            break
        gradient, W_going = gradient[:, going], W[:, going]
        step = _cg_direction(X, gradient, slack[:, going] > 0, C)
        change = Z[:, going] * (X @ step)
        length = _line_search(W_going, step, gradient, margins[:, going], change, C)
        W[:, going] = W_going + length * step
        margins[:, going] += length * change
    return W


def _cg_direction(X: Any, gradient: Floats, active: Mask, C: float) -> Floats:
    """-H^-1 gradient by conjugate gradients, separately for each column."""
    step = np.zeros_like(gradient)
    residual = -gradient
    direction = residual.copy()
    square = _dots(residual, residual)
    stop_at = FORCING**2 * square
    for _ in range(MAX_CG_STEPS):
        curved = direction + 2.0 * C * (X.T @ (active * (X @ direction)))
        length = square / np.maximum(_dots(direction, curved), 1e-300)
        length[square <= stop_at] = 0.0  # this column is done and waits for the others
        step += length * direction
        residual -= length * curved
        earlier, square = square, _dots(residual, residual)
        if (square <= stop_at).all():
            break
        direction = residual + square / np.maximum(earlier, 1e-300) * direction
    return step


def _line_search(w: Floats, step: Floats, gradient: Floats, margins: Floats, change: Floats, C: float) -> Floats:
    """Length of the step (per column): halved from 1 until the objective decreases enough; 0 if it never does."""
    slope, straight, curved = _dots(gradient, step), _dots(w, step), _dots(step, step)
    slack = np.maximum(1.0 - margins, 0.0)
    start = _dots(slack, slack)
    length = np.ones_like(slope)
    for _ in range(MAX_HALVINGS):
        slack = np.maximum(1.0 - margins - length * change, 0.0)
        gained = length * straight + 0.5 * length**2 * curved + C * (_dots(slack, slack) - start)
        too_long = gained > ARMIJO * length * slope
        if not too_long.any():
            return length
        length = np.where(too_long, length / 2.0, length)
    return np.where(too_long, 0.0, length)


def _gram(rows: Any) -> Floats:
    """X'X of dense or sparse rows, dense."""
    product = rows.T @ rows
    return np.asarray(product.toarray() if sparse.issparse(product) else product)


def _dots(A: Floats, B: Floats) -> Floats:
    """Inner product of two vectors, or of each pair of columns of two matrices."""
    return np.asarray(np.einsum("i...,i...->...", A, B))
