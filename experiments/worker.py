"""Do runs in a process of their own: `python -m experiments.worker` reads orders from stdin and writes results.

Runs that share a fit have a process of their own, so that its peak memory is theirs, and so that a crash or a time
limit loses only them. An order, of runs that share a fit, is one line of JSON. Quick runs take less time than starting
a process, so several orders share one.
"""

from __future__ import annotations

import json
import platform
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.datasets import Dataset, load_dataset
from experiments.fits import Fit
from experiments.measures import MEASURES, Outcome, measured, peak_memory_gb, slow_among
from experiments.methods import QUANTISER, REAL_VALUED
from experiments.results import Store
from experiments.specs import Spec
from experiments.splits import split
from hashgrove import __version__
from hashgrove.index import FlatIndex
from hashgrove.metrics import Report, evaluate
from hashgrove.metrics.protocols import PAPER as PAPER_PROTOCOL
from hashgrove.runtime.threads import available_threads

__all__ = ["main", "measure"]

CURVE_DEPTH = 2000
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def main() -> None:
    """Do the runs that stdin orders, and write the record of each as soon as it ends."""
    for line in sys.stdin:
        _carry_out(json.loads(line))


def _carry_out(order: dict[str, Any]) -> None:
    """Do the runs of an order, which share one fit: those with the most bits first, since the fit is theirs."""
    seed, n_jobs, store = order["seed"], order["n_jobs"], Store(Path(order["results"]))
    specs = [Spec(**run["cell"]) for run in order["runs"]]
    first = specs[0]
    data = load_dataset(first.dataset, root=order["root"], **first.options)
    fit = None if first.method in REAL_VALUED else Fit(first, split(data, first, seed=seed), seed=seed, n_jobs=n_jobs)
    for spec, run in zip(specs, order["runs"], strict=True):
        record = {
            "cell": spec.to_dict(),
            "seed": seed,
            "fingerprint": order["fingerprint"],
            "status": "done",
            **measure(spec, split(data, spec, seed=seed), seed=seed, n_jobs=n_jobs, fit=fit, slow=run["slow"]),
            **({} if spec.bits == first.bits else {"fit_of": first.bits}),
            "versions": {"hashgrove": __version__, **{package: version(package) for package in PACKAGES}},
            "machine": machine(),
            "threads": available_threads(n_jobs),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        store.write(record, run["experiment"])


def measure(
    spec: Spec, data: Dataset, *, seed: int, n_jobs: int | None, fit: Fit | None = None, slow: list[str] | None = None
) -> dict[str, Any]:
    """Train unless there is a fit, encode and evaluate; return the sizes of the data, measures, curves and protocol.

    ``slow`` names the slow measures to compute; None means all.
    """
    sizes = {
        "n_train": len(data.train),
        "n_database": len(data.y_database),
        "n_query": len(data.query),
        "n_features": data.features.shape[1] if data.features is not None else 0,
    }
    if spec.method in REAL_VALUED:
        from experiments.real_valued import measure_quantiser, measure_vectors

        exclude_self = spec.database == "queries"
        if spec.method == QUANTISER:
            found = measure_quantiser(data, n_bytes=spec.bits // 8, seed=seed, exclude_self=exclude_self)
        else:
            found = measure_vectors(data, exclude_self=exclude_self)
        found["measures"]["peak_memory_gb"] = peak_memory_gb()
    else:
        fit = Fit(spec, data, seed=seed, n_jobs=n_jobs) if fit is None else fit
        outcome = _outcome(spec, data, fit, seed=seed, n_jobs=n_jobs)
        slow = slow_among(MEASURES) if slow is None else slow
        found = {"measures": measured(outcome, slow), "slow": slow, **_curves(outcome.report)}
    return {"data": sizes, **found}


def _outcome(spec: Spec, data: Dataset, fit: Fit, *, seed: int, n_jobs: int | None) -> Outcome:
    assert data.database is not None  # every data set has one
    codes, database_seconds = fit.codes(data, data.database, spec.bits)
    queries, query_seconds = fit.codes(data, data.query, spec.bits)
    margins = fit.margins(data, data.query, spec.bits)
    labels: dict[str, Any] = {
        "y_queries": data.y_query,
        "y_database": data.y_database,
        "k": 100,
        "exclude_self": spec.database == "queries",
        "n_jobs": n_jobs,
    }
    return Outcome(
        spec=spec,
        data=data,
        seed=seed,
        history=fit.history(spec.bits),
        codewords=fit.codewords(spec.bits, data.y_train),
        codes=codes,
        queries=queries,
        margins=margins,
        report=evaluate(FlatIndex(codes), queries, **labels),
        by_margins=cache(lambda: evaluate(FlatIndex(codes), queries, weights=margins, **labels)),
        by_paper=evaluate(FlatIndex(codes), queries, protocol=PAPER_PROTOCOL, knn=None, **labels),
        fit_seconds=fit.seconds(spec.bits),
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
