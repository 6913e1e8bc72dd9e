"""A linear SVM of all classes on a matrix that may be larger than memory: squared hinge, one against all, L-BFGS.

Features are standardised in the weights, not in the matrix, and the matrix is read in chunks, so that a .npy file of
uint8 on disk is never held as floats. Pooled features are strongly correlated, and L-BFGS alone would take a thousand
passes; it works on weights that are rescaled along the main directions of a sample of rows instead, and takes tens. It
is here to measure features, not for hashing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.threads import chunks, run_tasks

CHUNK_VALUES = 2**21
SAMPLE = 2000  # rows that tell the main directions


def _chunks(X: NDArray[Any], n: int) -> list[tuple[int, int]]:
    return chunks(n, max(CHUNK_VALUES // X.shape[1], 1))


def moments(X: NDArray[Any], n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and 1 / standard deviation of the columns over the first ``n`` rows; 0 for a constant column."""

    def sums(start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        part = X[start:stop].astype(np.float64)
        return part.sum(axis=0), np.square(part).sum(axis=0)

    total, squares = (sum(parts) for parts in zip(*run_tasks(sums, _chunks(X, n)), strict=True))
    mean = total / n
    variance = np.maximum(squares / n - mean**2, 0)
    return mean, np.where(variance > 1e-12, 1 / np.sqrt(np.maximum(variance, 1e-12)), 0)


def scores(X: NDArray[Any], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores (n, classes) for ``weights`` (features + 1, classes), the last row of which is the bias."""

    def of_chunk(start: int, stop: int) -> NDArray[np.float32]:
        return X[start:stop].astype(np.float32) @ weights[:-1] + weights[-1]

    with single_threaded_blas():
        return np.concatenate(run_tasks(of_chunk, _chunks(X, len(X))))


class Rescaling:
    """w = u + V (r - 1) V'u: directions V of large variance s are shrunk to the smallest one's, r = (s_min / s)^(1/2).

    As many directions are kept as have at least a thousandth of the largest variance, or as the sample tells.
    """

    def __init__(self, X: NDArray[Any], n: int, mean: NDArray[Any], inverse: NDArray[Any]) -> None:
        rows = np.sort(np.random.default_rng(0).permutation(n)[:SAMPLE])
        Z = ((X[rows] - mean) * inverse).astype(np.float32)
        variances, vectors = np.linalg.eigh((Z @ Z.T).astype(np.float64) / len(rows))
        kept = variances > variances[-1] / 1000
        self.ratio = np.sqrt(variances[kept][0] / variances[kept])[:, None]
        self.directions = Z.T @ (vectors[:, kept] / np.sqrt(variances[kept] * len(rows))).astype(np.float32)

    def _along(self, w: NDArray[Any], factor: NDArray[Any]) -> NDArray[Any]:
        return w + self.directions @ ((factor - 1) * (self.directions.T @ w.astype(np.float32))).astype(np.float32)

    def apply(self, u: NDArray[Any]) -> NDArray[Any]:
        """Weights from rescaled ones; for gradients, the other way round (it is symmetric)."""
        return self._along(u, self.ratio)

    def undo(self, w: NDArray[Any]) -> NDArray[Any]:
        """Rescaled weights from weights."""
        return self._along(w, 1 / self.ratio)


def train(X: NDArray[Any], y: NDArray[Any], n: int, *, penalty: float, n_iter: int, start: Any = None) -> Any:
    """Weights for raw rows, and those for standardised ones (to start another from), of the first ``n`` rows."""
    mean, inverse = moments(X, n)
    with single_threaded_blas():
        rescaling = Rescaling(X, n, mean, inverse)
    classes = np.unique(y)
    target = np.where(y[:n, None] == classes, 1, -1).astype(np.float32)
    shape = X.shape[1] + 1, len(classes)

    def standardised(solution: NDArray[Any]) -> NDArray[Any]:
        u = solution.reshape(shape)
        return np.concatenate([rescaling.apply(u[:-1]), u[-1:]])

    def raw(w: NDArray[Any]) -> NDArray[np.float32]:
        scaled = w[:-1] * inverse[:, None]
        return np.concatenate([scaled, w[-1:] - mean @ scaled]).astype(np.float32)

    def objective(solution: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        all_weights = standardised(solution)
        weights, w = raw(all_weights), all_weights[:-1]

        def of_chunk(first: int, last: int) -> tuple[float, NDArray[Any], NDArray[Any]]:
            part = X[first:last].astype(np.float32)
            slack = np.maximum(1 - target[first:last] * (part @ weights[:-1] + weights[-1]), 0)
            step = -2 / n * target[first:last] * slack
            return float(np.square(slack).sum()) / n, part.T @ step, step.sum(axis=0)

        losses, gradients, biases = zip(*run_tasks(of_chunk, _chunks(X, n)), strict=True)
        bias = np.sum(biases, axis=0, dtype=np.float64)
        gradient = np.zeros(w.shape)
        for part in gradients:
            gradient += part
        gradient = (gradient - np.outer(mean, bias)) * inverse[:, None] + 2 * penalty * w
        value = sum(losses) + penalty * float(np.square(w).sum())
        return value, np.concatenate([rescaling.apply(gradient), bias[None]]).ravel()

    begin = np.zeros(shape) if start is None else np.concatenate([rescaling.undo(start[:-1]), start[-1:]])
    with single_threaded_blas():
        found = minimize(objective, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": n_iter})
        solution = standardised(found.x)
    return raw(solution), solution


def accuracy(X: NDArray[Any], y: NDArray[Any], *, n_train: int, penalties: list[float], n_iter: int) -> dict[str, Any]:
    """Accuracy on the rows after ``n_train``; the penalty is the one that is best on the last fifth of those before."""
    n_part = n_train * 4 // 5
    held_out: dict[float, float] = {}
    solution = None
    for penalty in sorted(penalties, reverse=True):
        weights, solution = train(X, y, n_part, penalty=penalty, n_iter=n_iter, start=solution)
        right = scores(X[n_part:n_train], weights).argmax(axis=1) == y[n_part:n_train]
        held_out[penalty] = round(float(right.mean()), 4)
        print(f"penalty {penalty}: held-out accuracy {right.mean():.4f}", flush=True)
    best = max(held_out, key=lambda penalty: held_out[penalty])
    weights, _ = train(X, y, n_train, penalty=best, n_iter=2 * n_iter, start=solution)
    right = scores(X[n_train:], weights).argmax(axis=1) == y[n_train:]
    return {"accuracy": round(float(right.mean()), 4), "penalty": best, "held_out_accuracy": held_out}
