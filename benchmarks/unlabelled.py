"""Search among classes with labels and without, by the number of generic bits: rows of unlabelled classes take part.

    python benchmarks/unlabelled.py ../shared/data

Half of the classes have labels. Prints MAP of 64 bits with 600 queries and 5,000 database rows that were not in
training: of labelled classes, of the others, and of all together. Every figure is the mean of two seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from hashgrove import ITQ, FastHash, evaluate

N_BITS, SEEDS, N_QUERIES, N_DATABASE, N_TRAIN = 64, (0, 1), 600, 5000, 6000
DATA = {
    "banking77": ("banking77_minilm.npz", "X_u8", "scale", "lo"),
    "tinyimagenet100": ("tinyimagenet100_eff.npz", "eff_u8", "eff_scale", "eff_lo"),
    "cifar10-effnet": ("cifar10_effnetlite0_1280_u8.npz", "X", "scale", "lo"),
}


def load(folder: Path, name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """At most 25,000 random rows and their classes."""
    file, rows, scale, low = DATA[name]
    with np.load(folder / file) as arrays:
        chosen = np.random.default_rng(seed).permutation(len(arrays["y"]))[:25_000]
        X = (arrays[rows][chosen] * arrays[scale] + arrays[low]).astype(np.float32)
        return X, arrays["y"][chosen].astype(int)


def measure(hasher: ITQ | FastHash, X: np.ndarray, y: np.ndarray, labelled: np.ndarray) -> list[float]:
    """MAP among the labelled classes, among the others, and among all."""
    codes, figures = hasher.transform(X[: N_QUERIES + N_DATABASE]), []
    for among in (labelled, ~labelled, labelled | True):
        q = np.flatnonzero(among[:N_QUERIES])
        d = N_QUERIES + np.flatnonzero(among[N_QUERIES : N_QUERIES + N_DATABASE])
        figures.append(evaluate(codes[d], codes[q], y_queries=y[q], y_database=y[d], knn=None).map)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name in DATA:
        found: dict[str, list[list[float]]] = {}
        for seed in SEEDS:
            X, y = load(folder, name, seed)
            labelled = np.isin(y, np.random.default_rng(seed).permutation(y.max() + 1)[: (y.max() + 1) // 2])
            train = np.arange(N_QUERIES + N_DATABASE, len(X))[:N_TRAIN]
            known = train[labelled[train]]

            found.setdefault("ITQ, all rows", []).append(
                measure(ITQ(N_BITS, random_state=seed).fit(X[train]), X, y, labelled)
            )
            settings = {"hash_function": "posterior", "random_state": seed}
            alone = FastHash(N_BITS, generic_bits=16, **settings).fit(X[known], y[known])
            found.setdefault("16 generic bits, labelled rows only", []).append(measure(alone, X, y, labelled))
            for n_generic in (16, 24, 32, 48, 64):
                hasher = FastHash(N_BITS, generic_bits=n_generic, **settings)
                hasher.fit(X[train], np.where(labelled, y, -1)[train], unlabelled=-1)
                found.setdefault(f"{n_generic} generic bits, all rows", []).append(measure(hasher, X, y, labelled))
        for method, rows in found.items():
            print(f"{name:<16} {method:<36}", *(f"{value:.3f}" for value in np.mean(rows, axis=0)), flush=True)


if __name__ == "__main__":
    main()
