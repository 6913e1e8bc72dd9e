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
import subprocess
import sys
from typing import Any

import numpy as np

from cifar10_runs import (
    DOCS,
    RETRIEVAL_HEAD,
    machines,
    read_results,
    retrieval,
    retrieval_row,
    write_json,
    write_section,
)
from hashgrove import BoostedTrees, KernelSVM

RESULTS = DOCS / "results" / "cifar10-gist"

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
    return retrieval(name, X, y, n_train=n_train, parameters=parameters)


def report() -> None:
    """Write the section of docs/results.md between its two markers from the result files."""
    rows = read_results(RESULTS, RUNS)
    write_section("cifar10-gist", [*RETRIEVAL_HEAD, *map(retrieval_row, rows), "", machines(rows)])


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
        write_json(RESULTS / f"{arguments.run[0]}.json", run(arguments.run[0], arguments.data))
        return
    for name in [] if arguments.report else arguments.run or RUNS:
        subprocess.run([sys.executable, __file__, arguments.data, "--run", name], check=True)
    report()


if __name__ == "__main__":
    main()
