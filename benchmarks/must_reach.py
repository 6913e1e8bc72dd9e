"""Search among trained classes with few labels, beside many rows without: what rows without a label add to each code.

Each set is split at random: rows with a label, other training rows, database rows that no model has seen, queries. The
same splits without the other rows stand beside them. "ceiling" keeps the floats of the class probabilities, "top4"
eight bytes of them, all others 64 bits.

    python benchmarks/must_reach.py ../shared/data                     # every set, three seeds
    python benchmarks/must_reach.py ../shared/data --sets banking77/5 --seeds 1
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodable import FILES, N_DATABASE, N_QUERIES, Split, measures
from hashgrove import FastHash, evaluate

SETS = {"banking77/half": None, "banking77/5": 5, "tiny/3000": 3000, "cifar10/5000": 5000}
MOST_OTHERS = 20_000


def split(folder: Path, name: str, seed: int) -> tuple[Split, NDArray[np.float32]]:
    """The rows with labels, and the other training rows; numbers of labels below 100 are per class."""
    with np.load(folder / FILES[name.split("/")[0]]) as file:
        key = next(key for key in ("X_u8", "eff_u8", "X") if key in file)
        scale = next((name for name in ("scale", "eff_scale") if name in file), None)
        order = np.random.default_rng([seed, 12]).permutation(len(file["y"]))[: 30_000 + N_QUERIES + N_DATABASE]
        X, y = file[key][order].astype(np.float32), file["y"][order]
        if scale is not None:
            X = X * file[scale] + file[scale.replace("scale", "lo")]
    queries, database, rest = np.split(np.arange(len(X)), [N_QUERIES, N_QUERIES + N_DATABASE])
    n_labels, others = SETS[name], rest[:0]
    trained = rest[: len(rest) // 2]
    if n_labels is not None:
        by_class = [rest[y[rest] == c][:n_labels] for c in np.unique(y)]
        trained = np.concatenate(by_class) if n_labels < 100 else rest[:n_labels]
        others = np.setdiff1d(rest, trained)[:MOST_OTHERS]
    return Split(*((X[rows], y[rows]) for rows in (trained, database, queries))), X[others]


def rows(parts: Split, others: NDArray[np.float32], seed: int) -> Iterator[tuple[str, float]]:
    """The rows of the table for one split."""
    X, y = parts.train
    together = np.concatenate([X, others]), np.append(y, np.full(len(others), -1))
    for given, name in ((parts.train, ""), (together, ", others too")) if len(others) else ((parts.train, ""),):
        for function in ("decodable", "auto"):
            started = time.process_time()
            hasher = FastHash(64, hash_function=function, random_state=seed, n_jobs=1)
            hasher.fit(*given, unlabelled=-1)
            seconds = time.process_time() - started
            if function == "decodable":
                for row, value in measures(parts, hasher.encoder_):
                    yield row + name, value
            else:
                codes: list[Any] = [hasher.transform(part[0]) for part in (parts.database, parts.queries)]
                labels = {"y_queries": parts.queries[1], "y_database": parts.database[1]}
                yield "default" + name, evaluate(*codes, **labels, knn=None).map
            yield f"processor seconds, {function}{name}", seconds


def main() -> None:
    """Measure, and print a table per set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for name in given.sets:
        found = [dict(rows(*split(given.data, name, seed), seed)) for seed in range(given.seeds)]
        print(f"\n{name}, {given.seeds} seeds")
        for row in found[0]:
            values = [one[row] for one in found]
            print(f"  {row:<42}{np.mean(values):.4f}  ({', '.join(f'{value:.4f}' for value in values)})", flush=True)


if __name__ == "__main__":
    main()
