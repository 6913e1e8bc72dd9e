"""Where the time goes in the kernels that miss a target of docs/results/speed.md.

python benchmarks/profiles.py            # print the profiles, and write docs/results/profiles.json
python benchmarks/profiles.py --tiny     # tiny sizes; writes nothing
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from bench_encoding import Quantiser, model
from bench_search import random_codes, read
from bench_training import noisy_labels
from contest import DOCS, machine, timed
from hashgrove import BoostedTrees, FlatIndex, evaluate
from hashgrove.codes import hamming
from hashgrove.storage.atomic import atomic_write
from hashgrove.trees import adaboost, grower

ROUNDS = 3


def best(function: Callable[[], Any]) -> float:
    """Return the best time of a few calls."""
    return min(timed(function)[1] for _ in range(ROUNDS))


def training(n: int, n_features: int, n_trees: int, k: int) -> dict[str, float]:
    """Return the seconds of each part of boosting on one thread, and the ns of one addition to a histogram."""
    X, z = noisy_labels(n, n_features)
    learner = BoostedTrees.paper(n_trees=n_trees, features_per_node=k)
    data = learner.prepare(X[:n], np.random.default_rng(0), n_jobs=1)
    spent: dict[str, float] = defaultdict(float)
    additions = 0
    parts = {
        "choice of the heavy examples": (adaboost, "_trim"),
        "histograms and split search": (grower, "best_stumps"),
        "features of the nodes": (grower, "draw_features"),
        "splitting the examples": (grower, "_split"),
        "weights": (adaboost, "_reweight"),
    }
    originals = {name: getattr(*place) for name, place in parts.items()}

    def watched(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            nonlocal additions
            started = time.perf_counter()
            result = originals[name](*arguments, **settings)
            spent[name] += time.perf_counter() - started
            if name == "histograms and split search":
                level, features = arguments[2], arguments[3]
                additions += int(level.starts[-1]) * features.shape[1]
            return result

        return call

    learner.learn(data, z[:n], None, np.random.default_rng(0))  # compiles
    _, total = timed(lambda: learner.learn(data, z[:n], None, np.random.default_rng(0)))
    loops = {name: getattr(adaboost, name) for name in ("_boost", "grow")}
    for name, compiled in loops.items():  # these are interpreted here, so that the kernels they call can be timed
        setattr(adaboost, name, compiled.py_func)
    for name, (module, attribute) in parts.items():
        setattr(module, attribute, watched(name))
    try:
        learner.learn(data, z[:n], None, np.random.default_rng(0))
    finally:
        for name, compiled in loops.items():
            setattr(adaboost, name, compiled)
        for name, (module, attribute) in parts.items():
            setattr(module, attribute, originals[name])
    rest = total - sum(spent.values())
    addition = spent["histograms and split search"] / additions * 1e9
    found = {**spent, "the tree on all rows, and the rest": rest, "all": total, "ns per addition": addition}
    return {name: round(seconds, 3) for name, seconds in found.items()}


def encoding(n: int, n_features: int, n_bits: int, n_trees: int) -> dict[str, float]:
    """Return the microseconds per row of each part of encoding, on one thread."""
    encoder = model(n_features, n_bits, n_trees)
    quantiser = Quantiser(**encoder.arrays())
    X = np.random.default_rng(2).standard_normal((n, n_features), np.float32)
    encoder.encode(X[:64]), quantiser.encode(X[:64])
    all_of_it, levels = best(lambda: encoder.encode(X, n_jobs=1)), best(lambda: quantiser.encode(X, n_jobs=1))
    reading = best(lambda: read(X.reshape(-1).view(np.uint64)))
    parts = {"reading the rows": reading, "reading and quantising": levels, "trees": all_of_it - levels}
    return {name: round(seconds / n * 1e6, 2) for name, seconds in (parts | {"all": all_of_it}).items()}


def search(n: int, n_queries: int) -> dict[str, float]:
    """Return the milliseconds per query of 64 bits on one thread, by the number of neighbours."""
    codes, queries = random_codes(n, 64, n_queries)
    index = FlatIndex(codes)
    index.search(queries[:1], 1)
    return {
        f"the {k} nearest": round(best(lambda k=k: index.search(queries, k, n_jobs=1)) / n_queries * 1e3, 4)
        for k in (1, 10, 100)
    }


def evaluation(n_queries: int, n: int) -> dict[str, float]:
    """Return the seconds of an evaluation on one thread."""
    codes, queries = random_codes(n, 64, n_queries)
    y, y_query = np.arange(n) % 10, np.arange(n_queries) % 10
    index = FlatIndex(codes)
    settings: dict[str, Any] = {"knn": None, "n_jobs": 1}
    for ties in ("expected", "id"):
        evaluate(index, queries[:2], y_queries=y_query[:2], y_database=y, ties=ties, **settings)
    found = {
        f"ties: {ties}": best(
            lambda t=ties: evaluate(index, queries, y_queries=y_query, y_database=y, ties=t, **settings)
        )
        for ties in ("expected", "id")
    }
    some = min(500, n_queries)
    found["distances alone"] = best(lambda: hamming(queries[:some], codes)) * n_queries / some
    return {name: round(seconds, 3) for name, seconds in found.items()}


def main() -> None:
    """Print the profiles, and store them unless they are tiny."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small sizes, not recorded")
    tiny = parser.parse_args().tiny
    n, d, trees = (300, 20, 3) if tiny else (50_000, 512, 200)
    found: dict[str, Any] = {
        f"training, {n:,} x {d}, {k} features per node (s)": training(n, d, trees, k) for k in (51, 200)
    }
    rows, wide = (100, 40) if tiny else (10_000, 11_200)
    found[f"encoding, {rows:,} x {wide:,} -> 64 bits (us per row)"] = encoding(rows, wide, 8 if tiny else 64, trees)
    found["search, 64 bits (ms per query)"] = search(*((3000, 20) if tiny else (1_000_000, 320)))
    found["evaluation (s)"] = evaluation(*((20, 3000) if tiny else (2_000, 60_000)))
    text = json.dumps(found | {"machine": machine()}, indent=1)
    print(text)
    if not tiny:
        with atomic_write(DOCS / "profiles.json") as file:
            file.write(f"{text}\n".encode())


if __name__ == "__main__":
    main()
