"""Training in step 2: 200 trees of depth 4 for one bit, against LightGBM, XGBoost and scikit-learn, same settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contest import OURS, Contender, Contest, Setting, Target, counted, faster_than, main, race, with_held
from hashgrove import BoostedTrees

DEPTH = 4
N_TEST = 2000
ADABOOST_ROUNDS = 2
WIDE = 4096  # features


@lru_cache(maxsize=1)
def noisy_labels(n: int, n_features: int) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Make correlated features from 0 to 255, like those of images, and a label that is hard to learn.

    The last `N_TEST` rows are for testing.
    """
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((n + N_TEST, 64), np.float32)
    X = np.empty((n + N_TEST, n_features), np.float32)
    for start in range(0, n_features, 512):
        part = X[:, start : start + 512]
        loadings = rng.standard_normal((64, part.shape[1]), np.float32) * (rng.random((64, part.shape[1])) < 0.05)
        part[:] = factors @ loadings.astype(np.float32) * 20
        part += rng.standard_normal(part.shape, np.float32) * 20
    X += 128
    np.clip(np.rint(X, out=X), 0, 255, out=X)
    score = factors[:, :12].sum(axis=1) + 2 * np.abs(factors[:, 12:16]).sum(axis=1) - 8 * np.sqrt(2 / np.pi)
    z = np.where(score + rng.normal(size=len(X)) > 0, 1, -1).astype(np.int8)
    return X, z


def our_learner(X: Any, z: Any, *, n_trees: int, k: int, subset: str, threads: int) -> Contender:
    """Return boosted trees of hashgrove; `prepare` bins the features."""
    learner = BoostedTrees.paper(n_trees=n_trees, max_depth=DEPTH, features_per_node=k, subset=subset)
    rng = np.random.default_rng(0)
    return Contender(
        name=OURS,
        threads=threads,
        prepare=lambda: learner.prepare(X, rng, n_jobs=threads),
        run=lambda data: learner.learn(data, z, None, np.random.default_rng(0))[0].encode,
    )


def lightgbm_booster(
    X: Any, z: Any, *, n_trees: int, k: int, subset: str, threads: int, quantised: bool = False
) -> Contender:
    """Return LightGBM with real or quantised gradients; `prepare` builds its data set."""
    parameters = {
        "objective": "binary",
        "learning_rate": 0.2,
        "max_depth": DEPTH,
        "num_leaves": 2**DEPTH,
        "max_bin": 255,
        "num_threads": threads,
        "feature_fraction_bynode" if subset == "node" else "feature_fraction": k / X.shape[1],
        "force_col_wise": True,
        "use_quantized_grad": quantised,
        "enable_bundle": False,
        "verbose": -1,
    }

    def prepare() -> Any:
        import lightgbm

        return lightgbm.Dataset(X, z > 0, params=parameters, free_raw_data=False).construct()

    def run(data: Any) -> Any:
        import lightgbm

        booster = lightgbm.train(parameters, data, n_trees)
        return partial(booster.predict, raw_score=True, num_threads=threads)

    note = "quantised gradients" if quantised else ""
    return Contender(name="LightGBM", needs="lightgbm", threads=threads, prepare=prepare, run=run, note=note)


def xgboost_booster(X: Any, z: Any, *, n_trees: int, k: int, subset: str, threads: int) -> Contender:
    """Return XGBoost with histograms; `prepare` builds its quantised matrix."""
    parameters = {
        "objective": "binary:logistic",
        "learning_rate": 0.2,
        "max_depth": DEPTH,
        "max_bin": 256,
        "tree_method": "hist",
        "nthread": threads,
        f"colsample_by{subset}": k / X.shape[1],
    }

    def prepare() -> Any:
        import xgboost

        return xgboost.QuantileDMatrix(X, z > 0, max_bin=256, nthread=threads)

    def run(data: Any) -> Any:
        import xgboost

        booster = xgboost.train(parameters, data, n_trees)
        return partial(booster.inplace_predict, predict_type="margin")

    return Contender(name="XGBoost", needs="xgboost", threads=threads, prepare=prepare, run=run)


def hist_gradient_boosting(X: Any, z: Any, *, n_trees: int, k: int, subset: str, threads: int) -> Contender:
    """Return HistGradientBoosting of scikit-learn, which can only draw features per node and bins in its `fit`."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingClassifier(
        learning_rate=0.2,
        max_iter=n_trees,
        max_depth=DEPTH,
        max_leaf_nodes=2**DEPTH,
        max_features=k / X.shape[1],
        early_stopping=False,
        random_state=0,
    )

    def run(_: None) -> Any:
        with threadpool_limits(threads):
            return model.fit(X, z).decision_function

    return Contender(name="HistGradientBoosting", threads=threads, run=run, note="binning included")


def adaboost(X: Any, z: Any, *, n_trees: int, k: int, subset: str, threads: int) -> Contender:
    """Return AdaBoost of scikit-learn on exact trees; it runs few rounds, because every round costs the same."""
    from sklearn.ensemble import AdaBoostClassifier
    from sklearn.tree import DecisionTreeClassifier

    rounds = min(ADABOOST_ROUNDS, n_trees)
    model = AdaBoostClassifier(DecisionTreeClassifier(max_depth=DEPTH, max_features=k), n_estimators=rounds)
    return Contender(
        name="AdaBoost",
        run=lambda _: model.fit(X, z).decision_function,
        share=rounds / n_trees,
        note=f"timed on {rounds} of the rounds (accuracy of these)",
    )


def training(
    n: int, n_features: int, n_trees: int, k: int, subset: str, threads: int, factor: float | None, peer_rounds: int
) -> Contest:
    """Train one ensemble; "agreement" is the accuracy on training rows and on new rows."""
    X, z = noisy_labels(n, n_features)
    settings: dict[str, Any] = {"k": k, "subset": subset, "threads": threads}

    def make(learner: Callable[..., Contender], rounds: int = n_trees, **options: Any) -> Contender:
        contender = learner(X[:n], z[:n], n_trees=rounds, **settings, **options)
        return contender if rounds == n_trees else shortened(contender, rounds / n_trees)

    contenders = [make(our_learner), make(lightgbm_booster, peer_rounds)]
    contenders += [make(xgboost_booster, peer_rounds)]
    if n_features < WIDE:  # it bins in its fit, so that it cannot be timed on a share of the rounds
        contenders += [make(lightgbm_booster, peer_rounds, quantised=True)]
        contenders += [make(hist_gradient_boosting)] if subset == "node" else []
    contenders += [make(adaboost)] if threads == 1 and subset == "node" else []
    entries = race(contenders, patience=5)
    for entry in entries:
        trained, new = (accuracy(entry.answer, X[rows], z[rows]) for rows in (slice(0, N_TEST), slice(n, None)))
        entry.agreement = f"accuracy {trained:.3f} trained, {new:.3f} new"
    others = [entry for entry in entries if entry.name not in (OURS, "LightGBM")]
    slowest_win = min((entry.seconds / entries[0].seconds for entry in others), default=None)
    if factor is None:
        return Contest(entries)
    targets = [
        faster_than(entries, "LightGBM", factor),
        Target(f"at least {factor:g}x every other peer", factor, slowest_win),
    ]
    return Contest(entries, targets)


def kinds_of_leaves(n: int, n_features: int, threads: int, share: float) -> Contest:
    """Compare trees with real leaves with the paper's; "agreement" is the accuracy on training rows and on new rows."""
    X, z = noisy_labels(n, n_features)
    newton = partial(BoostedTrees, leaves="newton", features_per_node=32)
    learners = {
        OURS: BoostedTrees.paper(),
        "hashgrove, Newton leaves, depth 4": newton(n_trees=290),
        "hashgrove, Newton leaves, depth 4, features per tree": newton(n_trees=290, subset="tree"),
        "hashgrove, Newton leaves, depth 6": newton(n_trees=200, max_depth=6),
    }
    data = BoostedTrees().prepare(X[:n], np.random.default_rng(0), n_jobs=threads)

    def contender(name: str, learner: BoostedTrees) -> Contender:
        note = f"{learner.n_trees} trees, {learner.features_per_node} features" + ", leaves -1 and +1" * (name == OURS)
        learner.set_params(n_trees=max(int(learner.n_trees * share), 1))
        return Contender(
            name=name,
            threads=threads,
            run=lambda _: learner.learn(data, z[:n], None, np.random.default_rng(0))[0].encode,
            note=note,
        )

    entries = race([contender(*item) for item in learners.items()], patience=5)
    for entry in entries:
        trained, new = (accuracy(entry.answer, X[rows], z[rows]) for rows in (slice(0, N_TEST), slice(n, None)))
        entry.agreement = f"accuracy {trained:.3f} trained, {new:.3f} new"
    return Contest(entries)


def shortened(peer: Contender, share: float) -> Contender:
    """Return a contender that runs a share of the rounds, which all cost the same; `prepare` bins its data."""
    note = f"{peer.note}, " if peer.note else ""
    return replace(peer, share=peer.share * share, note=f"{note}timed on {share:.0%} of the rounds (accuracy of these)")


def accuracy(predict: Callable[[Any], Any], X: NDArray[np.float32], z: NDArray[np.int8]) -> float:
    """Return the share of rows whose score (or packed bit) has the sign of the label."""
    scores = predict(X)
    positive = scores[:, 0] > 0 if scores.dtype == np.uint8 else scores > 0
    return float((positive == (z > 0)).mean())


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return contests with features drawn per node, as in the paper, and per tree, which suits LightGBM."""
    # points, features, trees, features drawn, factor to reach over the peers, rounds of the peers, threads, subsets
    both, per_node = ("node", "tree"), ("node",)
    sizes = [(50_000, 512, 200, 51, 4, 100, (1, 2), both), (50_000, 512, 200, 200, 4, 20, (1,), per_node)]
    sizes += [(10_000, 11_200, 200, 1120, 15, 10, (1,), per_node)]
    if setting.tiny:
        sizes = [(500, 40, 5, 16, 4, 2, (1, 2), both)]
    found: dict[str, Callable[[], Contest]] = {}
    for n, d, n_trees, k, factor, rounds, counts, subsets in sizes:
        for subset, threads in product(subsets, counts):
            name = f"{n:,} x {d:,}, {n_trees} trees of depth {DEPTH}, {k:,} features per {subset}, {counted(threads)}"
            needed = factor if subset == "node" else None
            found[name] = partial(training, n, d, n_trees, k, subset, threads, needed, rounds)
    n, d, _, _, _, _, counts, _ = sizes[0]
    for threads in counts:
        share = 0.01 if setting.tiny else 1.0
        found[f"{n:,} x {d:,}, kinds of leaves, {counted(threads)}"] = partial(kinds_of_leaves, n, d, threads, share)
    held = [] if setting.tiny else [f"{n:,} x {d:,}, kinds of leaves, {counted(1)}"]
    return with_held(found, held, __file__, setting)


if __name__ == "__main__":
    main("training", contests)
