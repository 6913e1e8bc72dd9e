"""Compare codes with float vectors, and write the table of README.md.

    python docs/comparison.py                        # handwritten digits, which come with scikit-learn
    python docs/comparison.py --root ../shared/data  # CIFAR-10 as well, if cifar10_gist512_u8.npz is in that folder

Float vectors are ranked by Euclidean distance. FastHash and ITQ have 64 bits, default settings and seed 0; the sign
threshold has one bit per feature, as in vector databases.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import load_dataset
from hashgrove import ITQ, FastHash, evaluate, evaluate_vectors
from hashgrove.baselines import SignThreshold
from hashgrove.hasher import Hasher

README = Path(__file__).resolve().parent.parent / "README.md"
RUNS = Path(__file__).resolve().parent / "comparison.json"
K = 10

METHODS: dict[str, Callable[[int], Hasher]] = {  # made for a number of features
    "sign threshold": SignThreshold,
    "ITQ": lambda n_features: ITQ(64, random_state=0),
    "FastHash": lambda n_features: FastHash(64, random_state=0),
}


class Task(NamedTuple):
    """Rows to learn from, rows to search in, and queries, each with their classes."""

    train: tuple[NDArray[Any], NDArray[Any]]
    database: tuple[NDArray[Any], NDArray[Any]]
    query: tuple[NDArray[Any], NDArray[Any]]


def digits_trained() -> Task:
    """Digits; the database is what was learned from, as in the paper."""
    data = load_dataset("digits")
    train = data.X_train, data.y_train
    return Task(train, train, (data.X_query, data.y_query))


def digits_held_out() -> Task:
    """Digits; one half of the training rows is learned from, the other half is the database."""
    return _halved(load_dataset("digits"), n_query=597)


def cifar10_held_out(root: Path) -> Task:
    """CIFAR-10 GIST; 25,000 rows to learn from, 25,000 others as the database, 1,000 queries."""
    return _halved(load_dataset("cifar10-gist", root=root), n_query=1_000)


def _halved(data: Any, *, n_query: int) -> Task:
    order = np.random.default_rng(0).permutation(len(data.y_train))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    train, database = ((data.X_train[rows], data.y_train[rows]) for rows in halves)
    return Task(train, database, (data.X_query[:n_query], data.y_query[:n_query]))


def measure_codes(hasher: Hasher, task: Task) -> dict[str, Any]:
    """Bytes per item, MAP and precision of a hasher's codes."""
    hasher.fit(*task.train)
    codes, queries = hasher.transform(task.database[0]), hasher.transform(task.query[0])
    report = evaluate(codes, queries, y_queries=task.query[1], y_database=task.database[1], k=K, knn=None)
    return {"bytes": codes.shape[1], "map": report.map, "precision": report.precision_at_k}


def measure_vectors(task: Task) -> dict[str, Any]:
    """Bytes per item, MAP and precision of the float32 vectors themselves."""
    (X, y), (queries, y_query) = task.database, task.query
    report = evaluate_vectors(X, queries, y_queries=y_query, y_database=y, metric="euclidean", k=K)
    return {"bytes": 4 * X.shape[1], "map": report.map, "precision": report.precision_at_k}


def measure(task: Task) -> dict[str, dict[str, Any]]:
    """All methods on one task."""
    return {
        "float32 vectors": measure_vectors(task),
        **{name: measure_codes(make(task.train[0].shape[1]), task) for name, make in METHODS.items()},
    }


def table(runs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The table in Markdown, one row per task and method."""
    lines = [f"| data | method | bytes per item | MAP | precision@{K} |", "|---|---|---:|---:|---:|"]
    for task, methods in runs.items():
        best = {key: max(run[key] for run in methods.values()) for key in ("map", "precision")}
        for number, (method, run) in enumerate(methods.items()):
            figures = (f"**{run[key]:.3f}**" if run[key] == best[key] else f"{run[key]:.3f}" for key in best)
            lines.append(f"| {'' if number else task} | {method} | {run['bytes']:,} | {' | '.join(figures)} |")
    return "\n".join(lines)


def write_table(page: Path, text: str) -> None:
    """Put the table between its two markers."""
    old = page.read_text()
    new = re.sub(r"(<!-- comparison -->\n).*?(<!-- /comparison -->)", rf"\1{text}\n\2", old, flags=re.DOTALL)
    page.write_text(new)


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure, keep the figures in docs/comparison.json, and write the table."""
    parser = argparse.ArgumentParser(description="Compare codes with float vectors, and write the table of README.md.")
    parser.add_argument("--root", type=Path, help="the folder with cifar10_gist512_u8.npz")
    options = parser.parse_args(None if arguments is None else list(arguments))
    tasks: dict[str, Callable[[], Task]] = {
        "digits, 1,200 items, which were also trained on": digits_trained,
        "digits, 600 items that were not trained on": digits_held_out,
    }
    if options.root is not None:
        tasks["CIFAR-10 GIST, 25,000 items that were not trained on"] = lambda: cifar10_held_out(options.root)
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    for name, make in tasks.items():
        runs[name] = measure(make())
        RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    write_table(README, table(runs))


if __name__ == "__main__":
    main()
