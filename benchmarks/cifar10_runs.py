"""What the runs on CIFAR-10 share: retrieval with FastHash, one process and one file a run, a table in docs/results.md.

The first 50,000 rows train and are the database, the other 10,000 are queries. Each run is a process of its own, so
that its peak memory is its own.
"""

from __future__ import annotations

import json
import platform
import resource
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contest import processor
from hashgrove import BoostedTrees, FastHash, FlatIndex, __version__, evaluate
from hashgrove.runtime.threads import available_threads
from hashgrove.storage.atomic import atomic_write

DOCS = Path(__file__).resolve().parent.parent / "docs"
BITS = (8, 16, 32, 48, 64)
N_TRAIN = 50_000


def retrieval(
    name: str, X: NDArray[Any], y: NDArray[Any], *, n_train: int, parameters: dict[str, Any]
) -> dict[str, Any]:
    """Train FastHash on ``n_train`` rows, encode and evaluate all; ``parameters`` are those other than the defaults."""
    chosen = X[:N_TRAIN], y[:N_TRAIN]
    if n_train < N_TRAIN:
        rows = np.sort(np.random.default_rng(0).permutation(N_TRAIN)[:n_train])
        chosen = X[rows], y[rows]
    FastHash(2, hash_function=BoostedTrees(n_trees=2)).fit(X[:1000], y[:1000])  # compilation is not training
    hasher = FastHash(max(BITS), random_state=0, verbose=1, **parameters)
    started = time.perf_counter()
    hasher.fit(*chosen)
    trained = time.perf_counter()
    peak = peak_memory_gb()
    codes = hasher.transform(X)
    encoded = time.perf_counter()
    reports = {
        bits: evaluate(
            FlatIndex(codes[:N_TRAIN, : bits // 8]), codes[N_TRAIN:, : bits // 8], y[N_TRAIN:], y[:N_TRAIN], k=100
        )
        for bits in BITS
    }
    return {
        "run": name,
        "training_points": n_train,
        "parameters": {
            name: value for name, value in hasher.get_params().items() if isinstance(value, str | int | float)
        },
        "map": {bits: round(report.map, 4) for bits, report in reports.items()},
        "precision_at_100": {bits: round(report.precision_at_k, 4) for bits, report in reports.items()},
        "pr_area": {bits: round(report.pr_area, 4) for bits, report in reports.items()},
        "ties": reports[64].ties,
        "seconds_fit": round(trained - started, 1),
        "seconds_step_1": round(sum(r.seconds_inference for r in hasher.history_), 1),
        "seconds_step_2": round(sum(r.seconds_learning for r in hasher.history_), 1),
        "seconds_encode_60000": round(encoded - trained, 1),
        "peak_memory_gb": round(peak, 2),
        "training_error": round(float(np.mean([r.training_error for r in hasher.history_])), 4),
        "machine": machine(),
        "hashgrove": __version__,
    }


RETRIEVAL_HEAD = (
    "| run | training points | MAP at 64 bits | P@100 | at 8 / 16 / 32 / 48 | fit (s) | step 1 (s) | peak (GB) |",
    "|---|---|---|---|---|---|---|---|",
)


def retrieval_row(r: dict[str, Any]) -> str:
    """The line of a result of `retrieval` in a table under `RETRIEVAL_HEAD`."""
    shorter = " / ".join(f"{r['map'][str(bits)]:.3f}" for bits in BITS[:-1])
    return (
        f"| {r['run']} | {r['training_points']:,} | **{r['map']['64']:.4f}** | {r['precision_at_100']['64']:.4f} "
        f"| {shorter} | {r['seconds_fit']:.0f} | {r['seconds_step_1']:.1f} | {r['peak_memory_gb']:.2f} |"
    )


def peak_memory_gb() -> float:
    """Of this process, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def machine() -> str:
    """Processor, threads in use, Python."""
    return f"{processor()}, {available_threads()} threads, Python {platform.python_version()}"


def machines(rows: Iterable[dict[str, Any]]) -> str:
    """The last line of a section: where its figures are from."""
    return f"Machine: {'; '.join(sorted({r['machine'] for r in rows}))}."


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write a result, atomically, and print it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write((json.dumps(result, indent=1) + "\n").encode())
    print(json.dumps(result))


def read_results(folder: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """The results that are there, in the order of ``names``."""
    return [json.loads(path.read_text()) for name in names if (path := folder / f"{name}.json").exists()]


def write_section(marker: str, lines: Sequence[str]) -> None:
    """Put ``lines`` between the two markers of docs/results.md."""
    page = DOCS / "results.md"
    before, found, rest = page.read_text().partition(f"<!-- {marker} -->\n")
    if not found:
        raise SystemExit(f"{page} has no marker <!-- {marker} -->")
    after = rest.partition(f"<!-- /{marker} -->\n")[2]
    with atomic_write(page) as file:
        file.write(f"{before}<!-- {marker} -->\n{chr(10).join(lines)}\n<!-- /{marker} -->\n{after}".encode())
