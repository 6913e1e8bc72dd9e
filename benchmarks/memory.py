"""How much memory and processor time learning takes per row; each job runs in a process of its own.

`python benchmarks/memory.py --jobs posterior --rows 1000000` measures one size; several numbers of rows give the
exponents of the growth, too. The rows are classes with Gaussian noise. What a job needs besides its rows is the
largest resident size of the process minus that before the job; docs/scale.md calls it memory per row.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from environment import machine
from hashgrove import BoostedTrees, FastHash, PosteriorBits
from hashgrove.inference import BlockGraphCut
from hashgrove.losses import hinge
from hashgrove.step_one import StepOne
from hashgrove.supervision import ClassLabels

KIB = 1024  # Linux states sizes in these


def data(n: int, n_features: int, n_classes: int) -> tuple[Any, Any]:
    """Return rows of float32, made chunk by chunk so that nothing else takes memory, and their classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    means = rng.standard_normal((n_classes, n_features), np.float32)
    X = np.empty((n, n_features), np.float32)
    for start in range(0, n, 8192):
        part = X[start : start + 8192]
        rng.standard_normal(out=part, dtype=np.float32)
        part += means[y[start : start + 8192]]
    return X, y


def fit(hash_function: Any, **more: Any) -> Callable[..., object]:
    """Return a job that fits FastHash with this hash function."""
    return lambda X, y, n_bits, n_jobs: FastHash(
        n_bits, hash_function=hash_function, random_state=0, n_jobs=n_jobs, **more
    ).fit(X, y)


def draw_pairs(X: Any, y: Any, n_bits: int, n_jobs: int) -> Any:
    """Draw the pairs that step 1 uses."""
    return ClassLabels(y).affinity(n_similar=100, n_dissimilar=100, random_state=0, n_jobs=n_jobs)


def infer(X: Any, y: Any, n_bits: int, n_jobs: int) -> None:
    """Draw pairs and infer bits."""
    pairs = draw_pairs(X, y, n_bits, n_jobs)
    step_one = StepOne(pairs, loss=hinge, solver=BlockGraphCut(), n_bits=n_bits, weighted=False, n_jobs=n_jobs)
    for _ in range(n_bits):
        step_one.add(step_one.infer().z)


JOBS: dict[str, Callable[..., object]] = {
    "pairs": draw_pairs,
    "step 1": infer,
    "paper": lambda X, y, n_bits, n_jobs: FastHash.paper(n_bits, random_state=0, n_jobs=n_jobs).fit(X, y),
    "trees": fit(BoostedTrees()),
    "posterior": fit(PosteriorBits()),
    "linear start": fit(BoostedTrees(start="linear")),
    "kernel start": fit(BoostedTrees(start="kernel")),
    "generic": fit("auto", generic_bits=64),
    "auto": fit("auto"),
}


def largest_size() -> int:
    """Return the largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def run(name: str, n: int, n_features: int, n_classes: int, n_bits: int, n_jobs: int) -> dict[str, Any]:
    """Carry out a job in this process, after a small one that compiles what it needs."""
    JOBS[name](*data(2000, n_features, 10), n_bits, n_jobs)
    X, y = data(n, n_features, n_classes)
    before, cpu, clock = largest_size(), time.process_time(), time.perf_counter()
    JOBS[name](X, y, n_bits, n_jobs)
    return {
        "job": name,
        "rows": n,
        "bytes_of_rows": X.nbytes,
        "bytes": largest_size() - before,
        "cpu_seconds": time.process_time() - cpu,
        "seconds": time.perf_counter() - clock,
    }


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run each job with each number of rows in a process of its own, and print what it took."""
    results = []
    for name in options.jobs:
        for n in options.rows:
            sizes = {"rows": n, "features": options.features, "classes": options.classes, "bits": options.bits}
            given = [f"--{key}={value}" for key, value in (sizes | {"threads": options.threads}).items()]
            child = subprocess.run(
                [sys.executable, __file__, f"--run={name}", *given], capture_output=True, text=True, check=False
            )
            if child.returncode:
                print(f"{name:>13}  {n:>10,} rows: ended with {child.returncode}\n{child.stderr[-500:]}")
                continue
            found = json.loads(child.stdout)
            results.append(found)
            size, own, seconds = found["bytes_of_rows"] / 1e9, found["bytes"], found["seconds"]
            print(
                f"{name:>13} {n:>11,} rows of {size:.2f} GB; {own / 1e9:.2f} GB more, {own / n:.0f} bytes per row; "
                f"{found['cpu_seconds']:.1f} s of CPU, {seconds:.1f} s"
            )
        growth(name, [found for found in results if found["job"] == name])
    return results


def growth(name: str, results: Sequence[dict[str, Any]]) -> None:
    """Print the exponents with which processor time and memory grow with the rows."""
    if len(results) > 1:
        logs = [np.log([found[key] for found in results]) for key in ("rows", "cpu_seconds", "bytes")]
        time_exponent, memory_exponent = (np.polyfit(logs[0], values, 1)[0] for values in logs[1:])
        print(
            f"{name:>13}  grows with the rows to the power {time_exponent:.2f} (time), {memory_exponent:.2f} (memory)"
        )


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--run", choices=JOBS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run is None:
        print(machine())
        return measure(options)
    sizes = options.rows[0], options.features, options.classes, options.bits
    print(json.dumps(run(options.run, *sizes, options.threads)))
    return []


if __name__ == "__main__":
    main()
