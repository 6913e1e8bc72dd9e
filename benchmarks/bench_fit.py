"""A whole fit on CIFAR-10 GIST (--data), against the same loop built from LightGBM and ortools, at equal MAP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench_inference import Cut, ortools_solver, sweep_blocks
from contest import OURS, Contest, Entry, Setting, Target, installed, main, timed
from hashgrove import BlockGraphCut, BoostedTrees, FastHash, FlatIndex, evaluate
from hashgrove.functions import FittedClassifiers

LOSS = "ksh"
# settings from fast to slow: the first that reaches the peer's MAP counts
LADDER = [
    BoostedTrees.paper(n_trees=n_trees, features_per_node=features, subset=subset, max_depth=depth)
    for n_trees, features, subset, depth in [
        (60, 24, "tree", 6),
        (80, 24, "tree", 6),
        (100, 24, "tree", 6),
        (120, 24, "tree", 6),
        (160, 24, "tree", 6),
        (200, 24, "tree", 6),
        (200, 51, "tree", 6),
        (200, 51, "node", 6),
    ]
]
PEER = "LightGBM + ortools"


class Data(NamedTuple):
    """Training rows, which are also the database, and queries."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    X_query: NDArray[np.float32]
    y_query: NDArray[Any]


def cifar(path: Path) -> Data:
    """Load CIFAR-10; the first 50,000 rows are for training."""
    with np.load(path) as file:
        X, y = (file["X"] * file["scale"] + file["lo"]).astype(np.float32), file["y"]
    return Data(X[:50_000], y[:50_000], X[50_000:], y[50_000:])


def digits() -> Data:
    """Load a small data set for the tiny contest."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return Data(X[:400].astype(np.float32), y[:400], X[400:500].astype(np.float32), y[400:500])


@dataclass(frozen=True)
class LightGBMLearner:
    """Step 2 with LightGBM: its data set is built once per fit, and each bit sets new labels and weights in it."""

    n_trees: int
    threads: int
    depth: int = 4

    def prepare(self, X: NDArray[Any], rng: np.random.Generator, **_: Any) -> Any:
        """Build the data set."""
        import lightgbm

        return X, lightgbm.Dataset(X, np.zeros(len(X)), params=self.parameters, free_raw_data=False).construct()

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of LightGBM."""
        return {
            "objective": "binary",
            "learning_rate": 0.2,
            "max_depth": self.depth,
            "num_leaves": 2**self.depth,
            "feature_fraction": 0.1,
            "num_threads": self.threads,
            "force_col_wise": True,
            "verbose": -1,
        }

    def learn(self, data: Any, z: NDArray[np.int8], weights: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """Learn one bit; return its encoder and the bit that it really gives."""
        import lightgbm

        X, dataset = data
        dataset.set_label(z > 0)
        dataset.set_weight(weights)
        scores = BoosterScores(lightgbm.train(self.parameters, dataset, self.n_trees), self.threads)
        bit = np.where(scores.decision_function(X) > 0, 1, -1).astype(np.int8)
        return FittedClassifiers(parts=(scores,), width=X.shape[1]), bit


@dataclass(frozen=True)
class BoosterScores:
    """A booster with the interface of a scikit-learn classifier."""

    booster: Any
    threads: int

    def decision_function(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return raw scores."""
        return self.booster.predict(X, raw_score=True, num_threads=self.threads)


class OrtoolsBlocks(BlockGraphCut):
    """Step 1 with cuts computed by ortools."""

    def solve(self, state: Any, problem: Any, rng: np.random.Generator) -> NDArray[np.int8]:
        """Sweep over the blocks twice."""
        return sweep_blocks(problem, state, rng, self.minimum)

    @staticmethod
    def minimum(cut: Cut) -> NDArray[np.int8]:
        """Return the minimum cut: +1 for nodes on the side of the source."""
        n = len(cut.field)
        z = np.full(n + 1, -1, np.int8)
        z[ortools_solver(cut).get_source_side_min_cut()] = 1
        return z[:n]


def fit(name: str, data: Data, n_bits: int, threads: int, **parameters: Any) -> Entry:
    """Train, encode and evaluate; only training is timed."""
    hasher = FastHash(n_bits, loss=LOSS, random_state=0, n_jobs=threads, **parameters)
    _, seconds = timed(lambda: hasher.fit(data.X, data.y))
    index = FlatIndex(hasher.transform(data.X))
    report = evaluate(index, hasher.transform(data.X_query), y_queries=data.y_query, y_database=data.y, knn=None)
    inference, learning = (
        sum(getattr(record, f"seconds_{step}") for record in hasher.history_) for step in ("inference", "learning")
    )
    entry = Entry(name, threads, seconds, 1, 0.0, f"step 1 {inference:.1f} s, step 2 {learning:.1f} s", None)
    entry.agreement = f"MAP {report.map:.4f}"
    entry.answer = report.map, learning
    return entry


def climb(data: Data, n_bits: int, threads: int, wanted: float) -> Iterator[Entry]:
    """Fit with one setting of ours after the other, until one reaches the MAP."""
    for learner in LADDER:
        entry = fit("hashgrove, below that MAP", data, n_bits, threads, hash_function=learner)
        drawn = f"{learner.features_per_node} features per {learner.subset}"
        entry.note = f"{learner.n_trees} trees of depth {learner.max_depth}, {drawn}; {entry.note}"
        yield entry
        if entry.answer[0] >= wanted:
            entry.name = OURS
            return


def at_equal_map(ours: list[Entry], peer: Entry) -> Entry | None:
    """Return our first entry that reaches the peer's MAP."""
    return next((entry for entry in ours if entry.answer[0] >= peer.answer[0]), None)


def with_lightgbm(name: str, data: Data, n_bits: int, learner: LightGBMLearner, **parts: Any) -> Entry:
    """Fit with LightGBM as step 2."""
    entry = fit(name, data, n_bits, learner.threads, hash_function=learner, **parts)
    entry.note = f"{learner.n_trees} trees of depth {learner.depth}, a tenth of the features per tree; {entry.note}"
    return entry


def whole_fit(make: Callable[[], Data], n_bits: int, threads: int, n_trees: int) -> Contest:
    """Run the peer, then ours with as few trees as reach the peer's MAP."""
    target = "whole fit at least 10x LightGBM + ortools at equal MAP"
    data = make()
    if not (installed("lightgbm") and installed("ortools")):
        return Contest(list(climb(data, n_bits, threads, 0.0)), [Target(target, 10, None)])
    peer = with_lightgbm(PEER, data, n_bits, LightGBMLearner(n_trees, threads), inference=OrtoolsBlocks())
    ours = list(climb(data, n_bits, threads, peer.answer[0]))
    equal = at_equal_map(ours, peer)
    return Contest([*ours, peer], [Target(target, 10, equal and peer.seconds / equal.seconds)])


def step_2(make: Callable[[], Data], n_bits: int, threads: int, n_trees: int) -> Contest:
    """Compare step 2 alone, both with our step 1: LightGBM with two depths, and our fastest setting that is as good."""
    target = "step 2 at least 5x LightGBM to equal MAP"
    data = make()
    if not installed("lightgbm"):
        return Contest(list(climb(data, n_bits, threads, 0.0)), [Target(target, 5, None)])
    learners = [
        LightGBMLearner(n_trees, threads),
        LightGBMLearner(n_trees // 2, threads, depth=6),
    ]
    peers = [with_lightgbm("LightGBM", data, n_bits, learner) for learner in learners]
    ours = list(climb(data, n_bits, threads, max(peer.answer[0] for peer in peers)))
    targets = []
    for peer, learner in zip(peers, learners, strict=True):
        equal = at_equal_map(ours, peer)
        trees = f"{learner.n_trees} trees of depth {learner.depth}"
        targets.append(Target(f"{target} ({trees})", 5, equal and peer.answer[1] / equal.answer[1]))
    return Contest([*ours, *peers], targets)


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return contests for few bits, which all cost the same; none without the data."""
    if setting.tiny:
        return {
            "digits, 8 bits, 1 thread": partial(whole_fit, digits, 8, 1, 5),
            "step 2: digits, 8 bits, 1 thread": partial(step_2, digits, 8, 1, 6),
        }
    if setting.data is None:
        print("The whole fit is measured on CIFAR-10 GIST. Pass its file with --data.")
        return {}
    make = partial(cifar, setting.data)
    return {
        "CIFAR-10 GIST, 50,000 x 512, 4 bits, 1 thread": partial(whole_fit, make, 4, 1, 200),
        "step 2: CIFAR-10 GIST, 50,000 x 512, 8 bits, 1 thread": partial(step_2, make, 8, 1, 200),
    }


if __name__ == "__main__":
    main("fit", contests)
