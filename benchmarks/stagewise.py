"""Compare trees whose bits are learned one after the other with trees whose bits are independent.

With ``stagewise=True`` the output of each hash function feeds the next bit, as in the paper. With ``stagewise=False``
the bits that step 1 inferred do, and bits are learned in parallel. Rows to search are split off from the training rows
of each data set; its test rows are not touched. Prints one line per data set, learner and seed, then the mean
differences.

    python benchmarks/stagewise.py ../shared/data               # every data set, three seeds
    python benchmarks/stagewise.py ../shared/data --rows 1000   # in small
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove import BoostedTrees, FastHash, evaluate

N_BITS = 32
N_SEARCHED = 2000
LEARNERS = {
    "trees": BoostedTrees(),
    "trees, linear start": BoostedTrees(start="linear"),
    "paper's trees, linear start": BoostedTrees.paper(start="linear", features_per_node=32),
}


def training_sets(folder: Path, most_rows: int | None) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Name, features and labels of the training rows of each data set."""
    gist = np.load(folder / "cifar10_gist512_u8.npz")
    for n in (25_000, 48_000):
        n = min(n + N_SEARCHED, most_rows or 50_000)
        yield f"CIFAR-10 GIST, {n - N_SEARCHED:,} rows", gist["X"][:n], gist["y"][:n]
    tiny = np.load(folder / "tinyimagenet100_eff.npz")
    rows = np.flatnonzero(~tiny["is_test"])[:most_rows]
    yield f"Tiny ImageNet-100, {len(rows) - N_SEARCHED:,} rows", tiny["eff_u8"][rows], tiny["y"][rows]
    flickr = np.load(folder / "mirflickr14.npz")
    rows = np.flatnonzero(~flickr["is_test"])[:most_rows]
    yield f"MIRFLICKR GIST, {len(rows) - N_SEARCHED:,} rows", flickr["gist"][rows].astype(np.float32), flickr["Y"][rows]


def measure(X: NDArray[Any], y: NDArray[Any], seed: int, **settings: Any) -> tuple[float, float]:
    """Mean average precision among rows that were not trained on, and the seconds of the fit."""
    order = np.random.default_rng(seed).permutation(len(X))
    searched, trained = order[:N_SEARCHED], order[N_SEARCHED:]
    started = time.perf_counter()
    hasher = FastHash(N_BITS, random_state=seed, **settings).fit(X[trained], y[trained])
    seconds = time.perf_counter() - started
    codes, labels = hasher.transform(X[searched]), y[searched]
    report = evaluate(codes, codes, y_queries=labels, y_database=labels, k=10, exclude_self=True, knn=None)
    return report.map, seconds


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data sets are")
    parser.add_argument("--rows", type=int, help="at most this many rows per data set besides those searched")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--learner", choices=LEARNERS, action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    most = None if arguments.rows is None else arguments.rows + N_SEARCHED
    differences = defaultdict(list)
    for name, X, y in training_sets(arguments.folder, most):
        for label in arguments.learner or LEARNERS:
            learner = LEARNERS[label]
            for seed in range(arguments.seeds):
                found = [measure(X, y, seed, hash_function=learner, stagewise=flag) for flag in (True, False)]
                (one_by_one, seconds), (independent, seconds_independent) = found
                differences[name, label].append(independent - one_by_one)
                print(
                    f"{name}; {label}; seed {seed}: stagewise {one_by_one:.4f} in {seconds:.1f} s, "
                    f"independent {independent:.4f} in {seconds_independent:.1f} s",
                    flush=True,
                )
    for (name, label), values in differences.items():
        print(f"{name}; {label}: independent is ahead by {np.mean(values):+.4f} (least {min(values):+.4f})")


if __name__ == "__main__":
    main()
