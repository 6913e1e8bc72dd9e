"""Product quantisation by faiss, the usual way to store an item in few bytes, measured like codes.

It has no Hamming distances: items are ranked by the Euclidean distance between the query itself and the decoded item,
and ties are broken by row. The measures are those of `hashgrove.evaluate` on that ranking; the precision-recall curve
runs over the number of retrieved items instead of over Hamming radii.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.datasets import Dataset
from hashgrove.metrics import expected_average_precision

__all__ = ["measure_quantiser"]

QUERIES_PER_CHUNK = 64
K = 100
DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
CURVE_POINTS = 100
MIN_SHARED = 2  # an item is relevant if it shares this many tags with the query, as in `evaluate`


def measure_quantiser(data: Dataset, *, n_bytes: int, seed: int) -> dict[str, Any]:
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
    measures, curves = _rank(data, quantiser.decode(codes))
    measures |= {"fit_seconds": fitted - started, "encode_seconds": encoded - fitted}
    return {"measures": measures, "curves": curves}


def _rank(data: Dataset, decoded: NDArray[np.float32]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Rank the decoded items for every query; return measures and curves."""
    squares = np.square(decoded).sum(axis=1)
    n = len(decoded)
    depths = np.array([depth for depth in DEPTHS if depth <= n])
    precisions, average = [], []
    hits_at, n_answered = np.zeros(n), 0  # relevant items among the first k of all queries; queries with any
    X_query, y_query, y_database = data.X_query, data.y_query, data.y_database
    for start in range(0, len(y_query), QUERIES_PER_CHUNK):
        part = slice(start, start + QUERIES_PER_CHUNK)
        queries = X_query[part].astype(np.float32)
        order = np.argsort(squares - 2 * queries @ decoded.T, axis=1, kind="stable")
        flags = np.take_along_axis(_relevant(y_query[part], y_database), order, axis=1)
        relevant = flags[flags.any(axis=1)].astype(np.int64)
        average.append(expected_average_precision(np.ones_like(relevant), relevant))
        hits = relevant.cumsum(axis=1)
        precisions.append(hits[:, depths - 1] / depths)
        hits_at += hits.sum(axis=0)
        n_answered += len(relevant)
    curve = np.concatenate(precisions).mean(axis=0)
    recall, precision = hits_at / hits_at[-1], hits_at / (n_answered * np.arange(1, n + 1))
    area = recall[0] * precision[0] + np.sum(np.diff(recall) * (precision[1:] + precision[:-1]) / 2)
    shown = np.unique(np.geomspace(1, n, CURVE_POINTS).astype(int)) - 1
    measures = {
        "map": float(np.concatenate(average).mean()),
        "precision": float(curve[np.searchsorted(depths, min(K, n))]),
        "pr_area": float(area),
    }
    curves = {
        "depths": depths.tolist(),
        "precision": curve.tolist(),
        "recall": recall[shown].tolist(),
        "recall_precision": precision[shown].tolist(),
    }
    return measures, curves


def _relevant(y_query: NDArray[Any], y_database: NDArray[Any]) -> NDArray[np.bool_]:
    if y_query.ndim == 1:
        return y_query[:, None] == y_database
    return (y_query != 0).astype(np.float32) @ (y_database != 0).astype(np.float32).T >= MIN_SHARED
