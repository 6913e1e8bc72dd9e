"""Search among classes with labels and without, by the number of generic bits: rows of unlabelled classes take part.

    python benchmarks/unlabelled.py ../shared/data
    python benchmarks/unlabelled.py ../shared/data --new-classes       # by how much new classes matter

Half of the classes have labels. Prints MAP of 64 bits with 600 queries and 5,000 database rows that were not in
training: of labelled classes, of the others, and of all together. Every figure is the mean of the seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from hashgrove import ITQ, FastHash, evaluate
from hashgrove.metrics import evaluate_vectors

N_BITS, N_QUERIES, N_DATABASE = 64, 600, 5000
DATA = {
    "banking77": ("banking77_minilm.npz", "X_u8", "scale", "lo"),
    "tinyimagenet100": ("tinyimagenet100_eff.npz", "eff_u8", "eff_scale", "eff_lo"),
    "cifar10-effnet": ("cifar10_effnetlite0_1280_u8.npz", "X", "scale", "lo"),
    "cifar10-gist": ("cifar10_gist512_u8.npz", "X", "", ""),
}
WEIGHTS = (0.0, None, 0.05, 0.1, 0.25, 0.5, 1.0)  # of the search among new classes


def load(folder: Path, name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """At most 25,000 random rows and their classes."""
    file, rows, scale, low = DATA[name]
    with np.load(folder / file) as arrays:
        chosen = np.random.default_rng(seed).permutation(len(arrays["y"]))[:25_000]
        X = arrays[rows][chosen].astype(np.float32)
        if scale in arrays:
            X = (X * arrays[scale] + arrays[low]).astype(np.float32)
        return X, arrays["y"][chosen].astype(int)


def measure(hasher: ITQ | FastHash, X: np.ndarray, y: np.ndarray, labelled: np.ndarray) -> list[float]:
    """MAP among the labelled classes, among the others, and among all."""
    codes, figures = hasher.transform(X[: N_QUERIES + N_DATABASE]), []
    for among in (labelled, ~labelled, labelled | True):
        q = np.flatnonzero(among[:N_QUERIES])
        d = N_QUERIES + np.flatnonzero(among[N_QUERIES : N_QUERIES + N_DATABASE])
        figures.append(evaluate(codes[d], codes[q], y_queries=y[q], y_database=y[d], knn=None).map)
    return figures


def cosine(X: np.ndarray, y: np.ndarray, train: np.ndarray, labelled: np.ndarray) -> list[float]:
    """The same of the vectors themselves, less the mean of the training rows."""
    rows, figures = X[: N_QUERIES + N_DATABASE] - X[train].mean(axis=0), []
    for among in (labelled, ~labelled, labelled | True):
        q = np.flatnonzero(among[:N_QUERIES])
        d = N_QUERIES + np.flatnonzero(among[N_QUERIES : N_QUERIES + N_DATABASE])
        figures.append(evaluate_vectors(rows[d], rows[q], y_queries=y[q], y_database=y[d], metric="cosine").map)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--new-classes", action="store_true", help="let the trial choose the number of generic bits")
    parser.add_argument("--sets", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=6000, help="training rows, half of them labelled (default: 6000)")
    given = parser.parse_args()
    for name in given.sets:
        found: dict[str, list[list[float]]] = {}
        for seed in range(given.seeds):
            X, y = load(given.folder, name, seed)
            labelled = np.isin(y, np.random.default_rng(seed).permutation(y.max() + 1)[: (y.max() + 1) // 2])
            train = np.arange(N_QUERIES + N_DATABASE, len(X))[: given.rows]
            known = train[labelled[train]]

            def record(method: str, figures: list[float], found: dict[str, list[list[float]]] = found) -> None:
                found.setdefault(method, []).append(figures)

            record("ITQ, all rows", measure(ITQ(N_BITS, random_state=seed).fit(X[train]), X, y, labelled))
            record("float cosine", cosine(X, y, train, labelled))
            settings = {"hash_function": "posterior", "random_state": seed}
            partly = np.where(labelled, y, -1)[train]
            if given.new_classes:
                for weight in WEIGHTS:
                    hasher = FastHash(N_BITS, new_classes=weight, **settings).fit(X[train], partly, unlabelled=-1)
                    record(f"new_classes={weight}", [*measure(hasher, X, y, labelled), hasher.generic_bits_])
                continue
            settings["new_classes"] = 0
            alone = FastHash(N_BITS, generic_bits=16, **settings).fit(X[known], y[known])
            record("16 generic bits, labelled rows only", measure(alone, X, y, labelled))
            for n_generic in (16, 24, 32, 48, 64):
                hasher = FastHash(N_BITS, generic_bits=n_generic, **settings).fit(X[train], partly, unlabelled=-1)
                record(f"{n_generic} generic bits, all rows", measure(hasher, X, y, labelled))
        for method, rows in found.items():
            means = np.mean(rows, axis=0)
            count = f"  {means[3]:.0f} generic bits" if len(means) > 3 else ""
            print(f"{name:<16} {method:<36}", *(f"{value:.3f}" for value in means[:3]), count, flush=True)


if __name__ == "__main__":
    main()
