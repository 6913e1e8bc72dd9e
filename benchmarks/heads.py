"""Heads of deep hashing methods on fixed features: one linear layer whose signs are the code.

Each head minimises the loss of its paper over all rows by L-BFGS, with a penalty on the weights. The penalty and the
number of steps (batch normalisation undoes penalties) are chosen on rows split off from the training rows.
`benchmarks/rivals.py` measures them.

- OrthoHash (Hoe et al., NeurIPS 2021): the cosine of v, the batch-normalised output, to an orthogonal code word of
  each class, with a margin: cross-entropy of s (cos(v, o_c) - m [c = y]), s = 8, m = .2.
- CSQ (Yuan et al., CVPR 2020): cross-entropy between each output and the bit of the class's Hadamard word, and a
  penalty .0001 on |v| - 1.
- Supervised contrastive (Khosla et al., NeurIPS 2020): outputs of length 1; the rows of a class are more similar to
  each other than to all others, at a temperature of .1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from scipy.optimize import minimize
from scipy.special import expit, softmax

__all__ = ["HEADS", "SETTINGS", "fit_head"]

N_BITS = 64
SETTINGS = ((1e-5, 60), (1e-4, 60), (1e-4, 20), (1e-4, 10))  # penalty of the squared weights, steps
SCALE, MARGIN = 8.0, 0.2  # of OrthoHash
QUANTISATION = 1e-4  # of CSQ
TEMPERATURE = 0.1  # of the contrastive loss

Array = NDArray[np.float64]
Loss = Callable[[Array], tuple[float, Array]]


def class_words(n_classes: int, rng: np.random.Generator) -> Array:
    """Rows of a Hadamard matrix, then their complements, then random words; the constant row comes last."""
    rows = np.roll(hadamard(N_BITS), -1, axis=0)
    words = np.concatenate([rows, -rows, rng.choice([-1, 1], size=(max(n_classes - 2 * N_BITS, 0), N_BITS))])
    return words[:n_classes].astype(np.float64)


def orthohash(y: NDArray[np.int64], words: Array, v: Array) -> tuple[float, Array]:
    """The loss of OrthoHash and its gradient by the outputs."""
    n, rows = len(y), np.arange(len(y))
    spread = v.std(axis=0) + 1e-9
    u = (v - v.mean(axis=0)) / spread
    length = np.linalg.norm(u, axis=1, keepdims=True) + 1e-9
    o = words / np.sqrt(N_BITS)
    cosine = u / length @ o.T
    logits = SCALE * cosine
    logits[rows, y] -= SCALE * MARGIN
    p = softmax(logits, axis=1)
    loss = -np.log(np.maximum(p[rows, y], 1e-30)).mean()
    p[rows, y] -= 1
    slope = SCALE * p / n
    by_u = (slope @ o - (slope * cosine).sum(axis=1, keepdims=True) * u / length) / length
    by_v = (by_u - by_u.mean(axis=0) - u * (by_u * u).mean(axis=0)) / spread
    return float(loss), by_v


def csq(y: NDArray[np.int64], words: Array, v: Array) -> tuple[float, Array]:
    """The loss of central similarity quantisation and its gradient by the outputs."""
    target = words[y]
    centre = np.logaddexp(0, -2 * v * target).mean()
    gap = np.abs(v) - 1
    loss = centre + QUANTISATION * np.square(gap).mean()
    slope = -2 * target * expit(-2 * v * target) + 2 * QUANTISATION * gap * np.sign(v)
    return float(loss), slope / v.size


def contrastive(y: NDArray[np.int64], words: Array, v: Array) -> tuple[float, Array]:
    """The supervised contrastive loss and its gradient by the outputs."""
    del words
    length = np.linalg.norm(v, axis=1, keepdims=True) + 1e-9
    z = (v / length).astype(np.float32)
    logits = z @ z.T / np.float32(TEMPERATURE)
    np.fill_diagonal(logits, -np.inf)
    p = softmax(logits, axis=1)
    same = (y[:, None] == y).astype(np.float32)
    np.fill_diagonal(same, 0)
    share = same / np.maximum(same.sum(axis=1, keepdims=True), 1)
    has_other = share.any(axis=1)
    np.fill_diagonal(logits, 0)
    log_sum = np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)) + logits.max(axis=1)
    loss = (log_sum - (share * logits).sum(axis=1))[has_other].mean()
    slope = (p - share) * has_other[:, None] / max(int(has_other.sum()), 1) / TEMPERATURE
    by_z = ((slope + slope.T) @ z).astype(np.float64)
    return float(loss), (by_z - (by_z * z).sum(axis=1, keepdims=True) * z) / length


HEADS = {"OrthoHash": orthohash, "CSQ": csq, "supervised contrastive": contrastive}


def fit_head(
    name: str, X: NDArray[np.float32], y: NDArray[np.int64], *, penalty: float, n_steps: int, seed: int
) -> tuple[Array, Array]:
    """Weights of shape (64, n_features) and thresholds whose signs are the code."""
    rng = np.random.default_rng(seed)
    _, classes = np.unique(y, return_inverse=True)
    loss = partial(HEADS[name], classes, class_words(int(classes.max()) + 1, rng))
    d = X.shape[1]

    def objective(values: Array) -> tuple[float, Array]:
        W, b = values[: N_BITS * d].reshape(N_BITS, d), values[N_BITS * d :]
        value, by_v = loss((X @ W.T.astype(np.float32)).astype(np.float64) + b)
        by_W = (by_v.T.astype(np.float32) @ X).astype(np.float64) + 2 * penalty * W
        return value + penalty * float(np.square(W).sum()), np.append(by_W.ravel(), by_v.sum(axis=0))

    start = np.append(rng.normal(size=N_BITS * d) / np.sqrt(d), np.zeros(N_BITS))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": n_steps}).x
    W, b = found[: N_BITS * d].reshape(N_BITS, d), found[N_BITS * d :]
    if name == "OrthoHash":  # batch normalisation puts the thresholds at the means
        b = -(X.mean(axis=0) @ W.T)
    return W, b
