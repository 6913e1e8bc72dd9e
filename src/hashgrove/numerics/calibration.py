"""Calibration of real-valued scores to probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp

__all__ = ["fit_logistic", "fit_sigmoids", "fit_temperature"]

LOG_TEMPERATURES = -3.0, 8.0  # limits of the logarithm
N_STEPS = 50
TOLERANCE = 1e-9
LEAST_CURVATURE = 1e-12


def fit_temperature(
    scores: NDArray[np.float64], labels: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> float:
    """The factor T for which softmax(T scores) has the least cross-entropy with the 0/1 ``labels``, one 1 per row.

    ``weights`` say how much each row counts.

    >>> scores, labels = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0], [0, 1], [0, 1]])
    >>> round(fit_temperature(scores, labels), 3)  # two of three rows are right, and exp(T) = 2
    0.693
    """

    def cross_entropy(log_factor: float) -> float:
        logits = np.exp(log_factor) * scores
        return float(np.average(logsumexp(logits, axis=1) - (logits * labels).sum(axis=1), weights=weights))

    found = minimize_scalar(cross_entropy, bounds=LOG_TEMPERATURES, method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x))


def fit_sigmoids(
    scores: NDArray[np.float64], labels: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slope a and shift b of each column for which sigmoid(a score + b) is most likely to give the 0/1 ``labels``.

    As in Platt's method the targets are a little inside of 0 and 1, so that columns with few positive rows, which some
    threshold separates, get a finite slope. ``weights`` say how many rows each row counts as.

    >>> scores = np.array([[0.0], [1.0], [0.0], [1.0]])
    >>> slope, shift = fit_sigmoids(scores, scores)
    >>> (1 / (1 + np.exp(-(slope * scores + shift)))).round(2).ravel().tolist()
    [0.25, 0.75, 0.25, 0.75]
    """
    count = np.ones(len(labels)) if weights is None else weights
    positive = count @ labels
    high, low = (positive + 1) / (positive + 2), 1 / (count.sum() - positive + 2)
    targets = np.where(labels > 0, high, low)
    columns = [
        fit_logistic(np.stack([scores[:, j], np.ones(len(scores))], axis=1), targets[:, j], weights)
        for j in range(scores.shape[1])
    ]
    slopes, shifts = np.array(columns).T
    return slopes, shifts


def fit_logistic(
    columns: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Coefficients c for which sigmoid(columns @ c) is most likely to give ``targets``, numbers between 0 and 1.

    Newton's method, in which a step that does not help is halved. Columns on very different scales do no harm. A
    tiny penalty makes the result unique if columns depend on each other.

    >>> columns = np.array([[1.0], [-1.0]])
    >>> fit_logistic(columns, np.array([0.75, 0.25])).round(3).tolist()
    [1.099]
    """
    scale = np.sqrt(np.square(columns).mean(axis=0))
    scaled = columns / np.where(scale > 0, scale, 1.0)
    share = np.full(len(targets), 1 / len(targets)) if weights is None else weights / weights.sum()
    c = np.zeros(columns.shape[1])

    def loss(c: NDArray[np.float64]) -> float:
        margin = scaled @ c
        return float(share @ (np.logaddexp(0, margin) - targets * margin)) + TOLERANCE * float(c @ c)

    current = loss(c)
    for _ in range(N_STEPS):
        p = expit(scaled @ c)
        gradient = scaled.T @ (share * (p - targets)) + 2 * TOLERANCE * c
        hessian = (scaled.T * (share * p * (1 - p))) @ scaled
        hessian[np.diag_indices(len(c))] += 2 * TOLERANCE + LEAST_CURVATURE
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while (after := loss(c - size * step)) > current and size > 1e-6:
            size /= 2
        if after >= current - TOLERANCE * abs(current):
            break
        c, current = c - size * step, after
    return c / np.where(scale > 0, scale, 1.0)
