"""What re-ranking gains: precision@10, and how many of the exact float neighbours inside the class are found.

    python benchmarks/rerank_gain.py --data FOLDER     # CIFAR-10, GIST and network features, from FOLDER

A `FastHash` of 64 bits is trained on 5,000 rows of CIFAR-10. The database is either the rows that it was trained on,
whose codes collapse, or 45,000 others. For 1,000 test rows, the ten nearest items are found by Hamming distance, by the
margins of the query, and by re-ranking with features: as they are, and in one byte each. *Precision* is the share of
the ten that have the query's class. *Agreement* is the share of the ten nearest items of the query's class by exact
cosine distance of the features that are among the ten found.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove import FastHash, FlatIndex, Rerank
from hashgrove.index import Int8Rows
from hashgrove.metrics import count_distinct

FILES = {"network features": "cifar10_effnetlite0_1280_u8.npz", "GIST": "cifar10_gist512_u8.npz"}
N_TRAINING_SET, N_TRAIN, N_QUERIES, K = 50_000, 5_000, 1_000, 10


def nearest_in_class(X: NDArray[Any], y: NDArray[Any], Q: NDArray[Any], y_query: NDArray[Any]) -> NDArray[np.int64]:
    """The K items of the query's class that are nearest by cosine distance, for each query."""
    items, queries = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, Q))
    found = np.empty((len(Q), K), np.int64)
    for label in np.unique(y_query):
        of_class, asking = np.flatnonzero(y == label), np.flatnonzero(y_query == label)
        similar = queries[asking] @ items[of_class].T
        found[asking] = of_class[np.argpartition(-similar, K, axis=1)[:, :K]]
    return found


def compare(X: NDArray[Any], y: NDArray[Any], n_train: int, n_queries: int, n_bits: int) -> None:
    """Print one table for a matrix of features."""
    order = np.random.default_rng(0).permutation(N_TRAINING_SET)
    trained, others = order[:n_train], order[n_train:]
    hasher = FastHash(n_bits, random_state=0).fit(X[trained], y[trained])
    test = slice(N_TRAINING_SET, N_TRAINING_SET + n_queries)
    queries, Q, y_query = hasher.transform(X[test]), X[test].astype(np.float32), y[test]
    margins = np.abs(hasher.decision_function(X[test]))
    for name, rows in (("trained items", np.sort(trained)), ("other items", np.sort(others))):
        codes, features, labels = hasher.transform(X[rows]), X[rows].astype(np.float32), y[rows]
        index, exact = FlatIndex(codes), nearest_in_class(features, labels, Q, y_query)
        print(f"\n{name}: {len(rows):,} items, {count_distinct(codes):,} distinct codes\n")
        print("| ranked by | P@10 | agreement |\n|---|---|---|")
        ways = {
            "Hamming distance": lambda index=index: index.search(queries, K),
            "margins": lambda index=index: index.search(queries, K, weights=margins),
            "re-ranked, oversample 4": lambda i=index, f=features: i.search(queries, K, rerank=Rerank(f), features=Q),
            "re-ranked, oversample 4, int8": lambda i=index, f=features: i.search(
                queries, K, rerank=Rerank(Int8Rows.of(f)), features=Q
            ),
            "re-ranked, oversample 40": lambda i=index, f=features: i.search(
                queries, K, rerank=Rerank(f, oversample=40), features=Q
            ),
        }
        for way, search in ways.items():
            ids = search()[1]
            agreement = np.mean([len(set(a) & set(b)) / K for a, b in zip(ids.tolist(), exact.tolist(), strict=True)])
            print(f"| {way} | {(labels[ids] == y_query[:, None]).mean():.4f} | {agreement:.4f} |", flush=True)


def main() -> None:
    """Compare on each matrix of features in the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the features")
    parser.add_argument("--bits", type=int, default=64)
    arguments = parser.parse_args()
    for title, name in FILES.items():
        print(f"\n## CIFAR-10, {title}")
        with np.load(arguments.data / name) as file:
            compare(file["X"], file["y"], N_TRAIN, N_QUERIES, arguments.bits)


if __name__ == "__main__":
    main()
