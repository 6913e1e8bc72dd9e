"""Do runs in a process of their own: `python -m hashgrove.bench.worker` reads orders from stdin and writes results.

Each run has its own process so that its peak memory is its own, and so that a crash or a time limit loses this run
only. An order is one line of JSON. Quick runs take less time than starting a process, so several share one.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from hashgrove import __version__
from hashgrove.bench.measures import Outcome, measured, peak_memory_gb
from hashgrove.bench.methods import QUANTISER, REAL_VALUED, build
from hashgrove.bench.quick import small_params
from hashgrove.bench.results import FORMAT, Store
from hashgrove.bench.specs import Spec
from hashgrove.bench.splits import split
from hashgrove.datasets import Dataset, load
from hashgrove.index import FlatIndex
from hashgrove.metrics import Report, evaluate
from hashgrove.metrics.protocols import PAPER as PAPER_PROTOCOL
from hashgrove.runtime.threads import available_threads

__all__ = ["main", "measure"]

ROWS_PER_CHUNK = 4096  # rows encoded at a time, so that features on disk are never in memory as a whole
WARM_ROWS, WARM_COLUMNS, WARM_BITS = 300, 64, 8
CURVE_DEPTH = 2000
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def main() -> None:
    """Do the runs that stdin orders, and write the record of each as soon as it ends."""
    for line in sys.stdin:
        _carry_out(json.loads(line))


def _carry_out(order: dict[str, Any]) -> None:
    spec, seed, n_jobs = Spec(**order["cell"]), order["seed"], order["n_jobs"]
    data = split(load(spec.dataset, root=order["root"], **spec.options), spec, seed=seed)
    record = {
        "format": FORMAT,
        "key": order["key"],
        "status": "done",
        "cell": spec.to_dict(),
        "seed": seed,
        "fingerprint": order["fingerprint"],
        **measure(spec, data, seed=seed, n_jobs=n_jobs),
        "versions": {"hashgrove": __version__, **{package: version(package) for package in PACKAGES}},
        "machine": machine(),
        "threads": available_threads(n_jobs),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    Store(Path(order["results"])).write(record, spec)


def measure(spec: Spec, data: Dataset, *, seed: int, n_jobs: int | None) -> dict[str, Any]:
    """Train, encode and evaluate; return the sizes of the data, measures, curves and protocol."""
    sizes = {
        "n_train": len(data.train),
        "n_database": len(data.y_database),
        "n_query": len(data.query),
        "n_features": data.features.shape[1] if data.features is not None else 0,
    }
    if spec.method in REAL_VALUED:
        from hashgrove.bench.real_valued import measure_quantiser, measure_vectors

        exclude_self = spec.database == "queries"
        if spec.method == QUANTISER:
            found = measure_quantiser(data, n_bytes=spec.bits // 8, seed=seed, exclude_self=exclude_self)
        else:
            found = measure_vectors(data, exclude_self=exclude_self)
        found["measures"]["peak_memory_gb"] = peak_memory_gb()
    else:
        outcome = _run_hasher(spec, data, seed=seed, n_jobs=n_jobs)
        found = {"measures": measured(outcome), **_curves(outcome.report)}
    return {"data": sizes, **found}


def _run_hasher(spec: Spec, data: Dataset, *, seed: int, n_jobs: int | None) -> Outcome:
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
    assert data.database is not None  # every data set has one
    codes, database_seconds = _encode(hasher, pca, data, data.database)
    queries, query_seconds = _encode(hasher, pca, data, data.query)
    truth: dict[str, Any] = {
        "y_query": data.y_query,
        "y_database": data.y_database,
        "k": 100,
        "exclude_self": spec.database == "queries",
        "n_jobs": n_jobs,
    }
    margins = _margins(hasher, pca, data)
    return Outcome(
        spec=spec,
        data=data,
        seed=seed,
        hasher=hasher,
        codes=codes,
        queries=queries,
        margins=margins,
        report=evaluate(FlatIndex(codes), queries, **truth),
        by_margins=evaluate(FlatIndex(codes), queries, weights=margins, **truth),
        by_paper=evaluate(FlatIndex(codes), queries, protocol=PAPER_PROTOCOL, knn=None, **truth),
        fit_seconds=fit_seconds,
        encode_seconds=database_seconds + query_seconds,
    )


def _curves(report: Report) -> dict[str, Any]:
    """Return the curves of a report, and the protocol that gave it."""
    shown = report.precision_depths <= CURVE_DEPTH
    curves = {
        "depths": report.precision_depths[shown].tolist(),
        "precision": report.precision_curve[shown].tolist(),
        "recall": report.recall.tolist(),
        "recall_precision": report.precision.tolist(),
    }
    protocol = {name: getattr(report, name) for name in ("k", "knn", "ties", "n_without_relevant", "min_shared")}
    return {"curves": curves, "protocol": protocol}


def _warm_up(spec: Spec, data: Dataset, *, n_jobs: int | None) -> None:
    """Run a small version of the method on the same types of data, so that compiling is not timed as training."""
    rows = data.train[:WARM_ROWS]
    assert data.features is not None  # the experiments only name data sets with features
    X = np.ascontiguousarray(data.features[rows, :WARM_COLUMNS])
    if spec.pca is not None:
        X = X.astype(np.float32)
    number = np.arange(len(rows))
    y = (number[:, None] % np.array([2, 3, 4, 5]) == 0).astype(data.labels.dtype) if data.has_tags else number % 3
    hasher = build(spec.method, WARM_BITS, small_params(spec.method, spec.params), seed=0, n_jobs=n_jobs)
    hasher.fit(X, y)
    hasher.transform(X)


def _margins(hasher: Any, pca: PCA | None, data: Dataset) -> NDArray[Any]:
    """Return how sure the hasher is of each bit of each query."""
    assert data.features is not None
    X = data.features[data.query]
    return np.abs(hasher.decision_function(X if pca is None else pca.transform(X.astype(np.float32))))


def _encode(hasher: Any, pca: PCA | None, data: Dataset, rows: NDArray[Any]) -> tuple[NDArray[np.uint8], float]:
    """Encode some rows; return the codes and the seconds without the time of reading the rows."""
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


def machine() -> str:
    """Return the name of the processor and the version of Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line)
        model = next(lines, model)
    return f"{model}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
