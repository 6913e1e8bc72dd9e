"""Codes of a trained model by the million, for benches of search: there are not that many real features here.

A `FastHash` is trained on 5,000 of the 50,000 CIFAR-10 training rows, features of EfficientNet-Lite0. The items of the
database are made from the 45,000 rows that it was not trained on: an item lies between a row and one of the row's ten
nearest neighbours, at a random place of the first half of the way, plus Gaussian noise of a tenth of each feature's
standard deviation. So items are neither copies nor uniform: they fill the space between real features. The queries
are real rows, of the 10,000 test images, which the model was not trained on and no item was made from.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hashgrove import FastHash

FILE = "cifar10_effnetlite0_1280_u8.npz"
N_TRAIN, N_TRAINING_SET = 5_000, 50_000
NEIGHBOURS = 10
NOISE = 0.1
ROWS = 2**16


def learned_codes(
    data: Path, n: int, n_bits: int, *, n_queries: int = 1_000
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return codes of ``n`` items and of ``n_queries`` queries; ``data`` is the folder of the features."""
    with np.load(data / FILE) as file:
        X, y = file["X"], file["y"]
    rng = np.random.default_rng(0)
    order = rng.permutation(N_TRAINING_SET)
    trained, others = order[:N_TRAIN], order[N_TRAIN:]
    hasher = FastHash(n_bits, random_state=0).fit(X[trained], y[trained])
    queries = hasher.transform(X[N_TRAINING_SET : N_TRAINING_SET + n_queries])
    rows = X[others].astype(np.float32)
    nearest, noise = _neighbours(rows), NOISE * rows.std(axis=0)
    parts = []
    for start in range(0, n, ROWS):
        count = min(ROWS, n - start)
        first = rng.integers(len(rows), size=count)
        second = nearest[first, rng.integers(NEIGHBOURS, size=count)]
        way = rng.random((count, 1), dtype=np.float32) / 2
        made = rows[first] + way * (rows[second] - rows[first])
        made += noise * rng.standard_normal(made.shape, dtype=np.float32)
        parts.append(hasher.transform(made))
    return np.concatenate(parts), queries


def _neighbours(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """The nearest other rows of each row by Euclidean distance, shape (n, NEIGHBOURS)."""
    squares = (rows**2).sum(axis=1)
    found = np.empty((len(rows), NEIGHBOURS), np.int64)
    for start in range(0, len(rows), 1024):
        part = rows[start : start + 1024]
        distances = squares - 2 * part @ rows.T
        distances[np.arange(len(part)), start + np.arange(len(part))] = np.inf
        found[start : start + len(part)] = np.argpartition(distances, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return found
