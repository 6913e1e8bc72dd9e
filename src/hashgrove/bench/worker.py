"""One run in a process of its own: `python -m hashgrove.bench.worker` reads its orders from stdin and keeps the result.

A process of its own, so that peak memory is that of the run, and a crash or a time limit loses this run only. Orders
are lines of JSON; quick runs, which take less time than a process to start, come several in one.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.svm import LinearSVC

from hashgrove import __version__
from hashgrove.bench.methods import QUANTISER, build
from hashgrove.bench.protocol import split
from hashgrove.bench.quick import small_params
from hashgrove.bench.results import FORMAT, Store
from hashgrove.bench.tables import Spec
from hashgrove.codes import unpack
from hashgrove.datasets import Dataset, load
from hashgrove.index import FlatIndex
from hashgrove.metrics import evaluate
from hashgrove.runtime.threads import available_threads

__all__ = ["main", "measure"]

ROWS_PER_CHUNK = 4096  # encoded at a time, so that features on disk are never in memory whole
WARM_ROWS, WARM_COLUMNS, WARM_BITS = 300, 64, 8
CURVE_DEPTH = 2000
SVM_PENALTY = 0.01
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def main() -> None:
    """Do the runs that stdin describes, and write the record of each when it ends."""
    for line in sys.stdin:
        _obey(json.loads(line))


def _obey(orders: dict[str, Any]) -> None:
    spec, seed, n_jobs = Spec(**orders["cell"]), orders["seed"], orders["n_jobs"]
    data = split(load(spec.dataset, root=orders["root"], **spec.options), spec, seed=seed)
    record = {
        "format": FORMAT,
        "key": orders["key"],
        "status": "done",
        "cell": spec.to_dict(),
        "seed": seed,
        "fingerprint": orders["fingerprint"],
        **measure(spec, data, seed=seed, n_jobs=n_jobs),
        "versions": {"hashgrove": __version__, **{package: version(package) for package in PACKAGES}},
        "machine": machine(),
        "threads": available_threads(n_jobs),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    Store(Path(orders["results"])).write(record, spec)


def measure(spec: Spec, data: Dataset, *, seed: int, n_jobs: int | None) -> dict[str, Any]:
    """Train, encode and evaluate: sizes of the data, measures, curves and protocol."""
    sizes = {
        "n_train": len(data.train),
        "n_database": len(data.y_database),
        "n_query": len(data.query),
        "n_features": data.features.shape[1] if data.features is not None else 0,
    }
    if spec.method == QUANTISER:
        from hashgrove.bench.quantiser import measure_quantiser

        found = measure_quantiser(data, n_bytes=spec.bits // 8, seed=seed)
    else:
        found = _measure_hasher(spec, data, seed=seed, n_jobs=n_jobs)
    found["measures"]["peak_memory_gb"] = peak_memory_gb()
    return {"data": sizes, **found}


def _measure_hasher(spec: Spec, data: Dataset, *, seed: int, n_jobs: int | None) -> dict[str, Any]:
    hasher = build(spec.method, spec.bits, spec.params, seed=seed, n_jobs=n_jobs)
    _warm_up(spec, data, n_jobs=n_jobs)
    X, y = data.X_train, data.y_train
    started = time.perf_counter()
    pca = None
    if spec.pca is not None:
        pca = PCA(min(spec.pca, *X.shape), svd_solver="randomized", random_state=seed)
        X = pca.fit_transform(X.astype(np.float32))
    hasher.fit(X, y)
    fit_seconds = time.perf_counter() - started
    del X
    assert data.database is not None  # a data set always has one
    codes, database_seconds = _encode(hasher, pca, data, data.database)
    queries, query_seconds = _encode(hasher, pca, data, data.query)
    truth: dict[str, Any] = {"y_query": data.y_query, "y_database": data.y_database, "k": 100, "n_jobs": n_jobs}
    report = evaluate(FlatIndex(codes), queries, **truth)
    by_margins = evaluate(FlatIndex(codes), queries, weights=_margins(hasher, pca, data), **truth)
    measures = {
        "map": report.map,
        "precision": report.precision_at_k,
        "pr_area": report.pr_area,
        "map_by_margins": by_margins.map,
        "precision_by_margins": by_margins.precision_at_k,
        "knn_error": report.knn_error,
        "fit_seconds": fit_seconds,
        "encode_seconds": database_seconds + query_seconds,
    }
    if hasattr(hasher, "history_"):
        history = hasher.history_
        measures |= {
            "objective": history[-1].objective,
            "training_error": float(np.mean([bit.training_error for bit in history])),
            "inference_seconds": sum(bit.seconds_inference for bit in history),
            "learning_seconds": sum(bit.seconds_learning for bit in history),
        }
    if spec.classify:
        measures["svm_error"] = _svm_error(codes, data.y_database, queries, data.y_query, spec.bits, seed=seed)
    shown = report.precision_depths <= CURVE_DEPTH
    curves = {
        "depths": report.precision_depths[shown].tolist(),
        "precision": report.precision_curve[shown].tolist(),
        "recall": report.recall.tolist(),
        "recall_precision": report.precision.tolist(),
    }
    protocol = {name: getattr(report, name) for name in ("k", "knn", "ties", "n_without_relevant", "min_shared")}
    return {"measures": measures, "curves": curves, "protocol": protocol}


def _warm_up(spec: Spec, data: Dataset, *, n_jobs: int | None) -> None:
    """Run the method in small on these types of features and labels: compilation is not training."""
    rows = data.train[:WARM_ROWS]
    assert data.features is not None  # the experiments name data sets with features
    X = np.ascontiguousarray(data.features[rows, :WARM_COLUMNS])
    if spec.pca is not None:
        X = X.astype(np.float32)
    number = np.arange(len(rows))
    y = (number[:, None] % np.array([2, 3, 4, 5]) == 0).astype(data.labels.dtype) if data.has_tags else number % 3
    hasher = build(spec.method, WARM_BITS, small_params(spec.method, spec.params), seed=0, n_jobs=n_jobs)
    hasher.fit(X, y)
    hasher.transform(X)


def _margins(hasher: Any, pca: PCA | None, data: Dataset) -> NDArray[Any]:
    """How sure the hasher is of each bit of each query."""
    assert data.features is not None
    X = data.features[data.query]
    return np.abs(hasher.decision_function(X if pca is None else pca.transform(X.astype(np.float32))))


def _encode(hasher: Any, pca: PCA | None, data: Dataset, rows: NDArray[Any]) -> tuple[NDArray[np.uint8], float]:
    """Codes of some rows, and the time without that of reading them."""
    assert data.features is not None
    parts, seconds = [], 0.0
    for start in range(0, len(rows), ROWS_PER_CHUNK):
        X = data.features[rows[start : start + ROWS_PER_CHUNK]]
        started = time.perf_counter()
        if pca is not None:
            X = pca.transform(X.astype(np.float32))
        parts.append(hasher.transform(X))
        seconds += time.perf_counter() - started
    return np.concatenate(parts), seconds


def _svm_error(codes: Any, y: Any, queries: Any, y_query: Any, bits: int, *, seed: int) -> float:
    """Error on the queries of one-vs-all linear SVMs on bits of -1 and +1, learned from the database."""
    X, X_query = (np.where(unpack(part, n_bits=bits), 1.0, -1.0) for part in (codes, queries))
    machines = LinearSVC(C=SVM_PENALTY, dual=False, random_state=seed).fit(X, y)
    return float(np.mean(machines.predict(X_query) != y_query))


def peak_memory_gb() -> float:
    """Most memory that this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)  # bytes there, kilobytes elsewhere


def machine() -> str:
    """Processor and Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line)
        model = next(lines, model)
    return f"{model}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
