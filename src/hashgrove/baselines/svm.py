"""Linear support vector machines for many bits of the same rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Linear

__all__ = ["linear_svms"]

BITS_AT_ONCE = 64
MAX_STEPS, MAX_CG_STEPS, MAX_HALVINGS = 50, 50, 20
FORCING = 0.1  # a Newton direction is solved to this share of the gradient


def linear_svms(X: NDArray[Any], bits: NDArray[np.bool_], *, C: float = 1.0, tol: float = 1e-3) -> Linear:
    """Hyperplanes for the columns of ``bits``: squared hinge loss, the problem of LIBLINEAR's ``-s 2 -B 1``.

    1/2 ||w||^2 + C sum_i max(0, 1 - z_i w x_i)^2 with a constant feature, on features scaled to [0, 1], by Newton's
    method with conjugate gradients. All bits go together, so that each step is two matrix products, O(n d n_bits);
    LIBLINEAR takes the bits one by one, without BLAS, in several times the time. The scaling is folded into the
    hyperplanes. A bit ends where its gradient has come down to ``tol`` of the first one.

    >>> X = np.array([[0.0], [1.0], [4.0], [5.0]])
    >>> linear_svms(X, np.array([[0], [0], [1], [1]], bool)).encode(X).ravel().tolist()
    [0, 0, 1, 1]
    """
    low = X.min(axis=0).astype(np.float64)
    span = X.max(axis=0).astype(np.float64) - low
    span[span == 0] = 1.0
    scaled = np.ones((len(X), X.shape[1] + 1))
    scaled[:, :-1] = (X - low) / span
    solutions = [
        _solve(scaled, np.where(bits[:, start : start + BITS_AT_ONCE], 1.0, -1.0), C, tol)
        for start in range(0, bits.shape[1], BITS_AT_ONCE)
    ]
    solution = np.concatenate(solutions, axis=1).T
    weights = solution[:, :-1] / span
    return Linear(weights=weights, bias=solution[:, -1] - weights @ low)


def _solve(X: NDArray[np.float64], Z: NDArray[np.float64], C: float, tol: float) -> NDArray[np.float64]:
    """Minimisers, one a column of Z (-1 and +1)."""
    W = np.zeros((X.shape[1], Z.shape[1]))
    margins = np.zeros_like(Z)  # z_i w x_i
    stop_at = None
    for _ in range(MAX_STEPS):
        slack = np.maximum(1.0 - margins, 0.0)
        gradient = W - 2.0 * C * (X.T @ (Z * slack))
        size = np.linalg.norm(gradient, axis=0)
        stop_at = tol * size if stop_at is None else stop_at
        open_bits = np.flatnonzero(size > stop_at)
        if not open_bits.size:
            break
        gradient, slack, signs = gradient[:, open_bits], slack[:, open_bits], Z[:, open_bits]
        step = _newton_direction(X, gradient, slack > 0, C)
        change = signs * (X @ step)
        length = _line_search(W[:, open_bits], step, margins[:, open_bits], change, gradient, C)
        W[:, open_bits] += length * step
        margins[:, open_bits] += length * change
    return W


def _newton_direction(
    X: NDArray[np.float64], gradient: NDArray[np.float64], active: NDArray[np.bool_], C: float
) -> NDArray[np.float64]:
    """-H^-1 gradient with H = I + 2 C X' diag(active) X, each column by itself, by conjugate gradients."""
    step = np.zeros_like(gradient)
    residual = -gradient
    direction = residual.copy()
    square = np.einsum("ij,ij->j", residual, residual)
    stop_at = FORCING**2 * square
    for _ in range(MAX_CG_STEPS):
        curved = direction + 2.0 * C * (X.T @ (active * (X @ direction)))
        length = square / np.maximum(np.einsum("ij,ij->j", direction, curved), 1e-300)
        length[square <= stop_at] = 0.0  # done: it waits for the others
        step += length * direction
        residual -= length * curved
        earlier, square = square, np.einsum("ij,ij->j", residual, residual)
        if (square <= stop_at).all():
            break
        direction = residual + square / np.maximum(earlier, 1e-300) * direction
    return step


def _line_search(
    W: NDArray[np.float64],
    step: NDArray[np.float64],
    margins: NDArray[np.float64],
    change: NDArray[np.float64],
    gradient: NDArray[np.float64],
    C: float,
) -> NDArray[np.float64]:
    """Lengths of the steps, halved from 1 until the objective falls by a share of what its slope promises."""

    def objective(length: NDArray[np.float64]) -> NDArray[np.float64]:
        slack = np.maximum(1.0 - margins - length * change, 0.0)
        moved = W + length * step
        return 0.5 * np.einsum("ij,ij->j", moved, moved) + C * np.einsum("ij,ij->j", slack, slack)

    length = np.ones(W.shape[1])
    start = objective(np.zeros_like(length))
    slope = np.einsum("ij,ij->j", gradient, step)
    for _ in range(MAX_HALVINGS):
        too_long = objective(length) > start + 1e-4 * length * slope
        if not too_long.any():
            break
        length[too_long] /= 2.0
    return length
