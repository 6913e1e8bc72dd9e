"""Codes that decode beside what the same eight bytes could hold otherwise: mean average precision on real data.

Each set is split at random: training rows, database rows that no model has seen, queries. For every row of the table
the whole database is ranked; "ceiling" keeps the floats of the class probabilities, "top4" eight bytes of them (the ids
of the four likeliest classes and one byte of probability each), all others 64 bits.

    python benchmarks/decodable.py ../shared/data                             # every set, three seeds
    python benchmarks/decodable.py ../shared/data --sets banking77-half --seeds 1
    python benchmarks/decodable.py ../shared/data --tune                      # settings, on rows of the training rows
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashgrove import FastHash, evaluate
from hashgrove.encoders import Encoder
from hashgrove.functions import DecodableBits, decodable
from hashgrove.metrics import evaluate_vectors

N_QUERIES, N_DATABASE, N_TRAIN = 600, 5_000, 3_000
FILES = {
    "banking77": "banking77_minilm.npz",
    "tiny": "tinyimagenet100_eff.npz",
    "cifar10": "cifar10_effnetlite0_1280_u8.npz",
}
SETS = {
    "banking77-half": None,
    "banking77-5": 5,
    "tiny-half": None,
    "tiny-5": 5,
    "cifar10-half": None,
}  # labels per class
GRID = (
    [{}]
    + [{"FIRST_STEP": beta} for beta in (0.1, 0.14, 0.28, 0.4)]
    + [{"PENALTY": c} for c in (0.05, 5.0)]
    + [{"n_rounds": n} for n in (1, 2, 5)]
)


class Split(NamedTuple):
    """Rows of three kinds with their labels."""

    train: tuple[NDArray[np.float32], NDArray[Any]]
    database: tuple[NDArray[np.float32], NDArray[Any]]
    queries: tuple[NDArray[np.float32], NDArray[Any]]


def split(folder: Path, name: str, seed: int) -> Split:
    """The rows of one set: training rows with at most as many labels per class as its name says."""
    set_name, rng = name.rsplit("-", 1)[0], np.random.default_rng([seed, 11])
    with np.load(folder / FILES[set_name]) as file:
        key = next(key for key in ("X_u8", "eff_u8", "X") if key in file)
        scale = next((name for name in ("scale", "eff_scale") if name in file), None)
        y, order = file["y"], rng.permutation(len(file["y"]))
        used = order[: N_QUERIES + N_DATABASE + len(order) // 2]
        X = file[key][used].astype(np.float32)
        if scale is not None:
            X = X * file[scale] + file[scale.replace("scale", "lo")]
        y = y[used]
    queries, database, rest = np.split(np.arange(len(X)), [N_QUERIES, N_QUERIES + N_DATABASE])
    per_class = SETS[name]
    if per_class is not None:
        rest = np.concatenate([rest[y[rest] == c][:per_class] for c in np.unique(y)])
    return Split(*((X[rows], y[rows]) for rows in (rest[:N_TRAIN], database, queries)))


def inner(parts: Split) -> Split:
    """A split of the training rows alone: three fifths to train on, the others as database and queries."""
    X, y = parts.train
    a, b = 3 * len(X) // 5, 4 * len(X) // 5
    return Split((X[:a], y[:a]), (X[a:], y[a:]), (X[b:], y[b:]))


def top4(p: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities after they were stored in eight bytes: those of the four likeliest classes, one byte each."""
    rank = np.argsort(np.argsort(-p, axis=1, kind="stable"), axis=1)
    return np.where(rank < 4, np.rint(p * 255), 0).astype(np.float32) / 255


def measures(parts: Split, encoder: Encoder) -> Iterator[tuple[str, float]]:
    """The rows of the table that need a model whose codes decode."""
    labels = {"y_queries": parts.queries[1], "y_database": parts.database[1]}
    codes, queries = encoder.encode(parts.database[0]), encoder.as_queries(parts.queries[0])
    p = encoder.as_queries(parts.database[0]).probabilities
    assert encoder.decoder is not None

    def ranked(items: NDArray[np.float32]) -> float:
        return evaluate_vectors(items, queries.probabilities, **labels, metric="dot").map

    yield "ceiling", ranked(p)
    yield "top4", ranked(top4(p))
    yield "decoded", ranked(encoder.decoder.decode(codes))
    yield "Hamming, query codes", evaluate(codes, queries.codes, **labels, knn=None).map
    yield "Hamming, item codes", evaluate(codes, encoder.encode(parts.queries[0]), **labels, knn=None).map


def rows(parts: Split, seed: int, *, with_default: bool) -> Iterator[tuple[str, float]]:
    """Every row of the table for one split."""
    hashers: dict[str, Callable[[], FastHash]] = {
        "posterior bits": lambda: FastHash(64, hash_function="posterior", random_state=seed)
    }
    if with_default:
        hashers["default"] = lambda: FastHash(64, random_state=seed)
    yield from measures(parts, FastHash(64, hash_function="decodable", random_state=seed).fit(*parts.train).encoder_)
    for name, make in hashers.items():
        hasher = make().fit(*parts.train)
        codes, queries = (hasher.transform(part[0]) for part in (parts.database, parts.queries))
        labels = {"y_queries": parts.queries[1], "y_database": parts.database[1]}
        yield name, evaluate(codes, queries, **labels, knn=None).map


def tune(folder: Path, sets: Iterable[str], seeds: int) -> None:
    """Print the measures of each setting in the grid, on training rows only, with the gain over the first setting."""
    standard = {name: getattr(decodable, name) for change in GRID for name in change if name.isupper()}
    for name in sets:
        first: dict[str, float] = {}
        parts = [inner(split(folder, name, seed)) for seed in range(seeds)]
        for change in GRID:
            for constant, value in standard.items():
                setattr(decodable, constant, change.get(constant, value))
            bits = DecodableBits(**{key: value for key, value in change.items() if key.islower()})
            found = []
            for seed, part in enumerate(parts):
                hasher = FastHash(64, hash_function=bits, random_state=seed).fit(*part.train)
                found.append(dict(measures(part, hasher.encoder_)))
            means = {row: float(np.mean([one[row] for one in found])) for row in found[0]}
            first = first or means
            shown = "  ".join(f"{row} {mean:.4f} ({mean - first[row]:+.4f})" for row, mean in means.items())
            print(f"{name:<16}{change!s:<24}{shown}", flush=True)


def main() -> None:
    """Measure, and print a table per set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-default", action="store_true", help="leave out the default, which takes longest")
    parser.add_argument("--tune", action="store_true", help="try settings, on rows split off from the training rows")
    given = parser.parse_args()
    if given.tune:
        tune(given.data, given.sets, given.seeds)
        return
    for name in given.sets:
        started = time.process_time()
        found = [
            dict(rows(split(given.data, name, seed), seed, with_default=not given.no_default))
            for seed in range(given.seeds)
        ]
        print(f"\n{name}, {given.seeds} seeds, {time.process_time() - started:.0f} s of processor time")
        for row in found[0]:
            values = [one[row] for one in found]
            print(f"  {row:<22}{np.mean(values):.4f}  ({', '.join(f'{value:.4f}' for value in values)})", flush=True)


if __name__ == "__main__":
    main()
