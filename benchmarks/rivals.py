"""What else eight bytes could hold: mean average precision of rivals on real data, none of which is in the library.

The splits are those of `decodable.py`, beside whose table this one is to be read. Penalties are chosen on rows split
off from the training rows.

- 64 directions in which classes differ (LDA): "float" ranks by the 64 numbers themselves; "product quantisation" keeps
  eight of 256 centres each, and compares with the numbers of the query; "signs" keep a bit per direction after ITQ's
  rotation, and are compared with the bits of the query or with its numbers; RaBitQ (Gao & Long, SIGMOD 2024) keeps the
  signs after a random rotation, and one further number per item that makes the estimated cosine unbiased (12 bytes).
- Heads of deep hashing methods on the features: signs of a linear layer (see `heads.py`).

    python benchmarks/rivals.py ../shared/data                             # every set, three seeds
    python benchmarks/rivals.py ../shared/data --sets banking77-5 --seeds 1
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.cluster import KMeans

import heads
from decodable import SETS, Split, inner, split
from hashgrove import ITQ, evaluate
from hashgrove.codes import pack
from hashgrove.metrics import evaluate_vectors

N_DIRECTIONS, N_PARTS, N_CENTRES = 64, 8, 256
PENALTIES = (0.01, 0.1, 1.0, 10.0)  # added to the variation inside classes, in units of its mean


def directions(X: NDArray[np.float32], y: NDArray[np.int64], penalty: float) -> NDArray[np.float32]:
    """The 64 directions that vary most in total, relative to the variation inside classes; one per column."""
    _, classes = np.unique(y, return_inverse=True)
    means = np.stack([X[classes == c].mean(axis=0) for c in range(classes.max() + 1)])
    residual = (X - means[classes]).astype(np.float64)
    within = residual.T @ residual / len(X)
    within[np.diag_indices(len(within))] += penalty * np.trace(within) / len(within)
    return eigh(np.cov(X.T), within)[1][:, -N_DIRECTIONS:].astype(np.float32)


def projected(parts: Split, penalty: float) -> tuple[NDArray[np.float32], ...]:
    """Training, database and query rows in these directions, scaled to length 1."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows, _ in parts]
    mean = unit[0].mean(axis=0)
    V = directions(unit[0] - mean, parts.train[1], penalty)
    found = [(rows - mean) @ V for rows in unit]
    return tuple(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in found)


def quantised(train: NDArray[np.float32], rows: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """The rows as product quantisation keeps them: the nearest of 256 centres for each eight columns."""
    out = []
    for part in np.split(np.arange(N_DIRECTIONS), N_PARTS):
        found = KMeans(min(N_CENTRES, len(train)), n_init=1, random_state=seed).fit(train[:, part])
        out.append(found.cluster_centers_[found.predict(rows[:, part])])
    return np.hstack(out).astype(np.float32)


def ranked(parts: Split, items: NDArray[np.float32], queries: NDArray[np.float32]) -> float:
    """Mean average precision by dot products."""
    labels = {"y_queries": parts.queries[1], "y_database": parts.database[1]}
    return evaluate_vectors(items, queries, **labels, metric="dot").map


def of_head(parts: Split, name: str, setting: tuple[float, int], seed: int) -> float:
    """Mean average precision of the codes of a head."""
    unit = [X / np.linalg.norm(X, axis=1, keepdims=True) for X, _ in parts]
    mean = unit[0].mean(axis=0)
    train, *others = ((rows - mean) * 10 for rows in unit)  # of about unit variance, as a trained network gives them
    W, b = heads.fit_head(name, train, parts.train[1], penalty=setting[0], n_steps=setting[1], seed=seed)
    database, queries = (pack(rows @ W.T + b > 0) for rows in others)
    labels = {"y_queries": parts.queries[1], "y_database": parts.database[1]}
    return evaluate(database, queries, **labels, knn=None).map


def of_heads(parts: Split, seed: int) -> Iterator[tuple[str, float]]:
    """The heads of deep hashing methods, each with the setting that is best on rows of the training rows."""
    inside = inner(parts)
    for name in heads.HEADS:
        best = max(heads.SETTINGS, key=lambda setting, name=name: of_head(inside, name, setting, seed))
        yield name, of_head(parts, name, best, seed)


def of_directions(parts: Split, seed: int) -> Iterator[tuple[str, float]]:
    """Codes of 64 directions in which classes differ."""
    inside = inner(parts)
    penalty = max(PENALTIES, key=lambda penalty: ranked(inside, *projected(inside, penalty)[1:]))
    train, database, queries = projected(parts, penalty)
    yield "float, 64 directions", ranked(parts, database, queries)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(N_DIRECTIONS, N_DIRECTIONS)))[0].astype(np.float32)
    train, database, queries = (rows @ rotation for rows in (train, database, queries))  # no part has more than others
    bits = np.where(database > 0, np.float32(1), np.float32(-1))
    yield "RaBitQ, 12 bytes", ranked(parts, bits / (bits * database).sum(axis=1, keepdims=True), queries)
    yield "product quantisation, 8 x 8 bits", ranked(parts, quantised(train, database, seed), queries)
    itq = ITQ(N_DIRECTIONS, random_state=seed).fit(train)
    labels = {"y_queries": parts.queries[1], "y_database": parts.database[1]}
    codes = itq.transform(database)
    yield "signs", evaluate(codes, itq.transform(queries), **labels, knn=None).map
    signs = np.where(itq.encoder_.scores(database) > 0, np.float32(1), np.float32(-1))
    yield "signs, compared with numbers", ranked(parts, signs, itq.encoder_.scores(queries))


def main() -> None:
    """Measure, and print a table per set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for name in given.sets:
        print(f"\n{name}, {given.seeds} seeds", flush=True)
        parts = [split(given.data, name, seed) for seed in range(given.seeds)]
        for method in (of_directions, of_heads):
            for same in zip(*(method(part, seed) for seed, part in enumerate(parts)), strict=True):
                values = [value for _, value in same]
                seeds = ", ".join(f"{value:.4f}" for value in values)
                print(f"  {same[0][0]:<36}{np.mean(values):.4f}  ({seeds})", flush=True)


if __name__ == "__main__":
    main()
