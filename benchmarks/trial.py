"""Measure how far the choice of ``hash_function="auto"`` is from the best candidate.

For each data set, number of labels and seed, rows to search and queries are split off from the training rows (the test
rows of the data sets are not touched). Each candidate learns from all labelled rows and is measured with a database
that is large enough to say which is best. Prints a line per case: what the trial chose, its MAP, and how far that is
from the best candidate; then the mean per data set. To compare two versions of the trial, run it in both trees: the
splits are the same.

    python benchmarks/trial.py ../shared/data                        # every case, three seeds
    python benchmarks/trial.py ../shared/data --case banking77/5 --seeds 2 --bits 32
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove import FastHash, evaluate
from hashgrove.choosing import candidates
from hashgrove.runtime.estimators import describe

N_QUERIES, N_SEARCHED, MOST_LABELLED = 600, 3000, 3000
# file, features, labels, first rows that are for training (None: those without is_test)
FILES = {
    "banking77": ("banking77_minilm.npz", "X_u8", "y", None),
    "tiny": ("tinyimagenet100_eff.npz", "eff_u8", "y", None),
    "cifar": ("cifar10_effnetlite0_1280_u8.npz", "X", "y", 50_000),
    "gist": ("cifar10_gist512_u8.npz", "X", "y", 50_000),
    "corel": ("corel5k.npz", "gist", "Y", None),
    "mirflickr": ("mirflickr14.npz", "gist", "Y", None),
}
CASES = (
    *(f"{name}/{labelled}" for name in ("banking77", "tiny", "cifar") for labelled in ("5", "half")),
    *("banking77/10", "gist/half", "corel/half", "mirflickr/half"),
)


def load(folder: Path, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features and labels of the training rows."""
    file, features, labels, n_train = FILES[name]
    data = np.load(folder / file)
    X = data[features].astype(np.float32)
    for prefix in ("", "eff_"):
        if features.endswith("u8") and f"{prefix}scale" in data:
            X = X * data[f"{prefix}scale"] + data[f"{prefix}lo"]
    rows = np.arange(n_train) if n_train else np.flatnonzero(~data["is_test"].astype(bool))
    return X[rows].astype(np.float32), data[labels][rows]


def split(y: NDArray[Any], labelled: str, seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Rows to learn from, to search, and queries."""
    order = np.random.default_rng([seed, 24]).permutation(len(y))
    queries, rest = order[:N_QUERIES], order[N_QUERIES:]
    if labelled == "half":
        n = min(len(rest) // 2, MOST_LABELLED)
        return rest[:n], rest[n:][:N_SEARCHED], queries
    chosen = np.concatenate([rest[y[rest] == label][: int(labelled)] for label in np.unique(y)])
    return chosen, np.setdiff1d(rest, chosen)[:N_SEARCHED], queries


def measure(
    X: NDArray[Any], y: NDArray[Any], rows: tuple[NDArray[Any], ...], seed: int, n_bits: int, function: Any = "auto"
) -> tuple[float, float, FastHash]:
    """MAP on the rows to search, the processor seconds of the fit, and the hasher."""
    trained, searched, queries = rows
    started = time.process_time()
    hasher = FastHash(n_bits, hash_function=function, random_state=seed).fit(X[trained], y[trained])
    seconds = time.process_time() - started
    codes = [hasher.transform(X[part]) for part in (searched, queries)]
    report = evaluate(*codes, y_queries=y[queries], y_database=y[searched], k=10, knn=None)
    return report.map, seconds, hasher


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data sets are")
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--auto-only", action="store_true", help="measure the choice, and not all candidates")
    parser.add_argument("--bits", type=int, default=64, help="length of the codes (default: 64)")
    arguments = parser.parse_args()
    regrets = defaultdict(list)
    for case in arguments.case or CASES:
        name, labelled = case.split("/")
        X, y = load(arguments.folder, name)
        for seed in range(arguments.seeds):
            rows = split(y, labelled, seed)
            real = {
                describe(c.hash_function): measure(X, y, rows, seed, arguments.bits, c.hash_function)[0]
                for c in (() if arguments.auto_only else candidates())
            }
            found, seconds, hasher = measure(X, y, rows, seed, arguments.bits)
            real = real or {describe(hasher.hash_function_): found}
            best = max(real, key=lambda name: real[name])
            regrets[case].append(real[best] - found)
            print(
                f"{case} seed {seed}: {describe(hasher.hash_function_)} {found:.4f} in {seconds:.1f} CPU s; "
                f"best {best} {real[best]:.4f}; behind by {real[best] - found:.4f}",
                flush=True,
            )
            print(f"    trial: {[vars(trial) for trial in hasher.choice_.trials]}", flush=True)
            print(f"    real: { ({name: round(value, 4) for name, value in real.items()}) }", flush=True)
    for case, values in regrets.items():
        print(f"{case}: behind the best by {np.mean(values):.4f} on average, {max(values):.4f} at most")


if __name__ == "__main__":
    main()
