"""How the time of a fit grows with points, bits, features and depth; there are no peers, the result is exponents.

Deep trees are compared with others for both kinds of leaves, with equal numbers of trees and of features per node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from contest import Contender, Contest, Setting, main, race
from hashgrove import BoostedTrees, FastHash

N_CLASSES = 10
BASE = {"points": 5000, "bits": 16, "features": 512, "depth": 4}
TREES = 10
SHARE_OF_FEATURES = 0.1
SHALLOW, DEEP = 6, 16  # depths whose times are compared
# leaves -> the trees of one bit whose times at both depths are compared, on (points, features). All trees of the bit:
# the first ones, which have to tell all points apart, are larger than those that follow.
DEEP_TREES = {"sign": BoostedTrees.paper(), "Newton": BoostedTrees()}
DEEP_SIZES = ((20_000, 1280), (100_000, 256))

# axis -> (values, differences from BASE that keep the largest fit short)
AXES: dict[str, tuple[Sequence[int], dict[str, int]]] = {
    "points": ((5000, 10_000, 20_000, 50_000, 100_000), {}),
    "bits": ((16, 32, 64, 128, 256, 512), {"points": 2000}),
    "features": ((512, 1024, 2048, 4096, 8192, 22_400), {"points": 2000, "bits": 8}),
    "depth": ((4, 6, 8, 10, 12, 14, 16), {"points": 20_000, "bits": 8}),
}
TINY = {"points": (200, 400), "bits": (4, 8), "features": (16, 32), "depth": (2, 3)}


def fit(points: int, bits: int, features: int, depth: int) -> Contender:
    """Return a contender that fits noisy classes once; each node draws a tenth of the features."""

    def prepare() -> tuple[Any, Any]:
        rng = np.random.default_rng(0)
        y = rng.integers(N_CLASSES, size=points)
        X = rng.standard_normal((points, features), np.float32)
        X += rng.standard_normal((N_CLASSES, features), np.float32)[y] * np.float32(0.5)
        return X, y

    learner = BoostedTrees.paper(
        n_trees=TREES,
        max_depth=depth,
        features_per_node=max(1, round(SHARE_OF_FEATURES * features)),
        early_stopping=False,
    )
    hasher = FastHash(bits, hash_function=learner, random_state=0, n_jobs=1)
    return Contender(name="fit", run=lambda data: hasher.fit(*data), prepare=prepare)


def growth(axis: str, values: Sequence[int], fixed: dict[str, int]) -> Contest:
    """Measure fit times along one axis, and the slope of their logarithms."""
    entries = []
    for value in values:
        (entry,) = race([fit(**(BASE | fixed | {axis: value}))], rounds=2, patience=5)
        entry.note = f"{axis} = {value:,}"
        entries.append(entry)
    seconds = [entry.seconds for entry in entries]
    slope, _ = np.polyfit(np.log(values), np.log(seconds), 1)
    tail, _ = np.polyfit(np.log(values[-2:]), np.log(seconds[-2:]), 1)
    facts = {
        "fitted exponent": round(float(slope), 3),
        "exponent of the last step": round(float(tail), 3),
    }
    if {SHALLOW, DEEP} <= set(values) and axis == "depth":
        ratio = seconds[values.index(DEEP)] / seconds[values.index(SHALLOW)]
        facts[f"depth {DEEP} takes, times depth {SHALLOW}"] = round(ratio, 2)
    return Contest(entries, facts=facts)


def one_bit(learner: BoostedTrees, depth: int, points: int, features: int) -> Contender:
    """Return a contender that learns one bit of many noisy classes, on features that are binned before."""
    learner = clone(learner).set_params(max_depth=depth)

    def prepare() -> tuple[Any, Any]:
        rng = np.random.default_rng(0)
        y = rng.integers(100, size=points)
        X = rng.standard_normal((points, features), np.float32)
        X += rng.standard_normal((100, features), np.float32)[y] * np.float32(0.5)
        return learner.prepare(X, rng, n_jobs=1), np.where(y % 2, 1, -1).astype(np.int8)

    def run(data: tuple[Any, Any]) -> Any:
        return learner.learn(*data, None, np.random.default_rng(0))

    return Contender(name=f"depth {depth}", run=run, prepare=prepare)


def deep(learner: BoostedTrees, points: int, features: int) -> Contest:
    """Compare the times of deep trees and of others, with equal numbers of trees and of features per node."""
    entries = race([one_bit(learner, depth, points, features) for depth in (SHALLOW, DEEP)], rounds=2, patience=20)
    ratio = entries[1].seconds / entries[0].seconds
    return Contest(entries, facts={f"depth {DEEP} takes, times depth {SHALLOW}": round(ratio, 2)})


def plot(records: Mapping[str, Any], path: Path) -> None:
    """Draw one log-log panel per axis, from the records of this bench."""
    from matplotlib.figure import Figure

    from experiments.plots import save_svg

    figure = Figure(figsize=(10, 7), layout="constrained")
    along_axes = [(axis, record) for axis, record in records.items() if "fitted exponent" in record["facts"]]
    for axes, (axis, record) in zip(figure.subplots(2, 2).ravel(), along_axes, strict=False):
        labels = [entry["note"].split(" = ")[1] for entry in record["entries"]]  # such as "points = 5,000"
        values = [int(label.replace(",", "")) for label in labels]
        axes.loglog(values, [entry["seconds"] for entry in record["entries"]], "o-")
        axes.set_xticks(values, labels, rotation=30)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_title(f"time grows like {axis.split(' ')[0]} to the power {record['facts']['fitted exponent']:.2f}")
        axes.set(xlabel=axis, ylabel="seconds per fit, one thread")
        axes.grid(alpha=0.3)
    save_svg(figure, path)


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return one contest per axis."""
    found: dict[str, Callable[[], Contest]] = {}
    for axis, (values, fixed) in AXES.items():
        if setting.tiny:
            values, fixed = TINY[axis], BASE | {"points": 200, "bits": 2, "features": 16}
        rest = BASE | fixed
        named = ", ".join(f"{value:,} {name}" for name, value in rest.items() if name != axis and name != "depth")
        depth = "" if axis == "depth" else f", depth {rest['depth']}"
        found[f"{axis} (with {named}{depth}, {TREES} trees)"] = partial(growth, axis, values, fixed)
    for points, features in ((300, 16),) if setting.tiny else DEEP_SIZES:
        for leaves, learner in DEEP_TREES.items():
            size = f"{points:,} points, {features:,} features, {learner.n_trees} trees"
            found[f"deep trees, {leaves} leaves (1 bit, {size})"] = partial(deep, learner, points, features)
    return found


if __name__ == "__main__":
    main("growth", contests)
