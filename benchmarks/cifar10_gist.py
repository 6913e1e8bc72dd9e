"""FastHash on CIFAR-10 GIST, the paper's first experiment: retrieval quality, training time and memory.

    python benchmarks/cifar10_gist.py ../shared/data/cifar10_gist512_u8.npz            # all runs, then the table
    python benchmarks/cifar10_gist.py ../shared/data/cifar10_gist512_u8.npz --run ksh  # one run
    python benchmarks/cifar10_gist.py --report                                         # the table from the files

The file holds `X` (60,000 x 512 uint8, value = X * scale + lo) and `y`; the first 50,000 rows train and are the
database, the others are queries. Each run is a process of its own (peak memory) and writes its figures to
docs/results/cifar10-gist/NAME.json; the table in docs/results.md is made from these files.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from hashgrove import BoostedTrees, FastHash, FlatIndex, KernelSVM, __version__, evaluate
from hashgrove.files import atomic_write
from hashgrove.jit import available_threads

DOCS = Path(__file__).resolve().parent.parent / "docs"
RESULTS = DOCS / "results" / "cifar10-gist"
BITS = (8, 16, 32, 48, 64)

# name -> (training points, parameters of FastHash other than the defaults)
RUNS: dict[str, tuple[int, dict[str, Any]]] = {
    "ksh": (50_000, {"loss": "ksh"}),
    "hinge": (50_000, {"loss": "hinge"}),
    "ksh-unweighted": (50_000, {"loss": "ksh", "weighted": False}),
    "hinge-unweighted": (50_000, {"loss": "hinge", "weighted": False}),
    "ksh-subset-tree": (50_000, {"loss": "ksh", "hash_function": BoostedTrees(subset="tree")}),
    "hinge-subset-tree": (50_000, {"loss": "hinge", "hash_function": BoostedTrees(subset="tree")}),
    "ksh-5000": (5_000, {"loss": "ksh"}),
    "hinge-5000": (5_000, {"loss": "hinge"}),
    "ksh-5000-early-stopping": (5_000, {"loss": "ksh", "hash_function": BoostedTrees(early_stopping=True)}),
    "hinge-5000-early-stopping": (5_000, {"loss": "hinge", "hash_function": BoostedTrees(early_stopping=True)}),
    "ksh-5000-1000-trees": (5_000, {"loss": "ksh", "hash_function": BoostedTrees(n_trees=1000)}),
    "ksh-5000-kernel-svm": (5_000, {"loss": "ksh", "hash_function": KernelSVM()}),
    "ksh-5000-unweighted": (5_000, {"loss": "ksh", "weighted": False}),
    "hinge-5000-unweighted": (5_000, {"loss": "hinge", "weighted": False}),
    "ksh-5000-subset-tree": (5_000, {"loss": "ksh", "hash_function": BoostedTrees(subset="tree")}),
    "ksh-5000-not-stagewise": (5_000, {"loss": "ksh", "stagewise": False}),
    "ksh-5000-icm": (5_000, {"loss": "ksh", "inference": "icm"}),
    "ksh-5000-spectral": (5_000, {"loss": "ksh", "inference": "spectral"}),
}


def run(name: str, data: str) -> dict[str, Any]:
    """Train, encode and evaluate one setting."""
    n_train, parameters = RUNS[name]
    with np.load(data) as file:
        X, y = (file["X"] * file["scale"] + file["lo"]).astype(np.float32), file["y"]
    rows = np.sort(np.random.default_rng(0).permutation(50_000)[:n_train])
    FastHash(2, hash_function=BoostedTrees(n_trees=2)).fit(X[:1000], y[:1000])  # compilation is not training
    hasher = FastHash(max(BITS), random_state=0, verbose=1, **parameters)
    started = time.perf_counter()
    hasher.fit(X[rows], y[rows])
    trained = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    codes = hasher.transform(X)
    encoded = time.perf_counter()
    reports = {
        bits: evaluate(
            FlatIndex(codes[:50_000, : bits // 8]), codes[50_000:, : bits // 8], y[50_000:], y[:50_000], k=100
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


def machine() -> str:
    """Processor, threads in use, Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next(
            (s.split(":")[1].strip() for s in cpuinfo.read_text().splitlines() if s.startswith("model name")),
            model,
        )
    return f"{model}, {available_threads()} threads, Python {platform.python_version()}"


def report() -> None:
    """Write the section of docs/results.md between its two markers from the result files."""
    rows = [json.loads(path.read_text()) for name in RUNS if (path := RESULTS / f"{name}.json").exists()]
    lines = [
        "| run | training points | MAP at 64 bits | P@100 | at 8 / 16 / 32 / 48 | fit (s) | step 1 (s) | peak (GB) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        shorter = " / ".join(f"{r['map'][str(bits)]:.3f}" for bits in BITS[:-1])
        lines.append(
            f"| {r['run']} | {r['training_points']:,} | **{r['map']['64']:.4f}** | {r['precision_at_100']['64']:.4f} "
            f"| {shorter} | {r['seconds_fit']:.0f} | {r['seconds_step_1']:.1f} | {r['peak_memory_gb']:.2f} |"
        )
    lines += ["", f"Machine: {'; '.join(sorted({r['machine'] for r in rows}))}."]
    page = DOCS / "results.md"
    before, _, rest = page.read_text().partition("<!-- cifar10-gist -->\n")
    after = rest.partition("<!-- /cifar10-gist -->\n")[2]
    with atomic_write(page) as file:
        file.write(f"{before}<!-- cifar10-gist -->\n{chr(10).join(lines)}\n<!-- /cifar10-gist -->\n{after}".encode())


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="cifar10_gist512_u8.npz")
    parser.add_argument("--run", choices=RUNS, action="append", help="only this run (may be repeated)")
    parser.add_argument("--report", action="store_true", help="only write the table")
    arguments = parser.parse_args()
    if not arguments.report and arguments.data is None:
        parser.error("name the data file, or --report")
    if arguments.data and arguments.run and len(arguments.run) == 1:
        result = run(arguments.run[0], arguments.data)
        RESULTS.mkdir(parents=True, exist_ok=True)
        with atomic_write(RESULTS / f"{arguments.run[0]}.json") as file:
            file.write((json.dumps(result, indent=1) + "\n").encode())
        print(json.dumps(result))
        return
    for name in [] if arguments.report else arguments.run or RUNS:
        subprocess.run([sys.executable, __file__, arguments.data, "--run", name], check=True)
    report()


if __name__ == "__main__":
    main()
