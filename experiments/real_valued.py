"""Rankings by real distances, measured like codes: product quantisation by faiss, and the vectors themselves.

Product quantisation is the usual way to store an item in few bytes: items are ranked by the Euclidean distance between
the query itself and the decoded item. The vectors themselves are ranked by cosine similarity.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import Dataset
from hashgrove.metrics import evaluate_vectors

__all__ = ["measure_quantiser", "measure_vectors"]

K = 100
DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
CURVE_POINTS = 100


def measure_quantiser(data: Dataset, *, n_bytes: int, seed: int, exclude_self: bool = False) -> dict[str, Any]:
    """Train the quantiser, encode and rank; return the measures and curves of the run."""
    faiss: Any = import_module("faiss")  # its type stubs describe C++ signatures
    X = np.ascontiguousarray(data.X_train, dtype=np.float32)
    if X.shape[1] % n_bytes:
        raise ValueError(
            f"The number of features must be a multiple of the {n_bytes} bytes of a code. Got {X.shape[1]} instead."
        )
    quantiser = faiss.ProductQuantizer(X.shape[1], n_bytes, 8)
    quantiser.cp.seed = seed
    quantiser.cp.min_points_per_centroid = 1  # no warning about few training rows: the record says how many
    started = time.perf_counter()
    quantiser.train(X)
    fitted = time.perf_counter()
    codes = quantiser.compute_codes(np.ascontiguousarray(data.X_database, dtype=np.float32))
    encoded = time.perf_counter()
    measures, curves = _rank(data, quantiser.decode(codes), metric="euclidean", exclude_self=exclude_self)
    measures |= {"fit_seconds": fitted - started, "encode_seconds": encoded - fitted}
    return {"measures": measures, "curves": curves}


def measure_vectors(data: Dataset, *, exclude_self: bool = False) -> dict[str, Any]:
    """Rank the vectors themselves; return the measures and curves of the run."""
    items = np.ascontiguousarray(data.X_database, dtype=np.float32)
    measures, curves = _rank(data, items, metric="cosine", exclude_self=exclude_self)
    return {"measures": measures, "curves": curves}


def _rank(
    data: Dataset, items: NDArray[np.float32], *, metric: str, exclude_self: bool
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Rank the items for every query; return measures and curves."""
    report = evaluate_vectors(
        items,
        data.X_query,
        y_queries=data.y_query,
        y_database=data.y_database,
        metric=metric,
        k=K,
        exclude_self=exclude_self,
    )
    n = len(report.precision)
    depths = np.array([depth for depth in DEPTHS if depth <= n])
    shown = np.unique(np.geomspace(1, n, CURVE_POINTS).astype(int)) - 1
    measures = {
        "map": report.map,
        "precision": report.precision_at_k,
        "precision_at_10": float(report.precision[min(10, n) - 1]),
        "pr_area": report.pr_area,
    }
    curves = {
        "depths": depths.tolist(),
        "precision": report.precision[depths - 1].tolist(),
        "recall": report.recall[shown].tolist(),
        "recall_precision": report.precision[shown].tolist(),
    }
    return measures, curves
