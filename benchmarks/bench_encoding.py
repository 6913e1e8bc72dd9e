"""Encoding rows with boosted trees, including quantising, against other engines that run the same trees."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tree_formats
from bench_search import read
from contest import (
    OURS,
    Contender,
    Contest,
    Entry,
    Setting,
    Target,
    faster_than,
    main,
    on_one_thread,
    race,
    timed,
    with_held,
)
from hashgrove import ITQ, BoostedTrees, FastHash, PosteriorBits, pack
from hashgrove.encoders import Trees
from hashgrove.trees.binning import bin_tiles

SKETCH = 2.1e-6  # seconds per row of a first sketch: 64 bits of 200 trees of depth 4, without quantising


@lru_cache(maxsize=1)
def model(n_features: int, n_bits: int, n_trees: int) -> Trees:
    """Grow real trees of depth 4 on noisy labels of 2,000 rows."""
    return trained(n_features, n_bits, BoostedTrees.paper(n_trees=n_trees, features_per_node=8))


def trained(n_features: int, n_bits: int, learner: BoostedTrees) -> Any:
    """Train an encoder on noisy labels of 2,000 rows."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2000, n_features), np.float32)
    data = learner.prepare(X, rng, n_jobs=1)
    labels = np.where(X @ rng.standard_normal((n_features, n_bits)) + rng.normal(size=(2000, n_bits)) > 0, 1, -1)
    bits = [learner.learn(data, z, None, rng)[0] for z in labels.astype(np.int8).T]
    return type(bits[0]).concatenate(bits)


def peers(encoder: Trees, X: NDArray[np.float32], share: float) -> list[Contender]:
    """Return contenders that run the same trees in other engines; each computes scores (rows, bits)."""

    def lightgbm_model() -> Any:
        import lightgbm

        return lightgbm.Booster(model_str=tree_formats.to_lightgbm(encoder))

    def xgboost_model() -> Any:
        import xgboost

        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(tree_formats.to_xgboost(encoder)))
        return booster

    def onnx_session() -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(tree_formats.to_onnx(encoder), options, providers=["CPUExecutionProvider"])

    def treelite_model() -> Any:
        import treelite

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.txt"
            path.write_text(tree_formats.to_lightgbm(encoder))
            return treelite.frontend.load_lightgbm_model(path)

    def with_treelite(booster: Any) -> NDArray[Any]:
        from treelite import gtil

        return gtil.predict(booster, X, nthread=1, pred_margin=True).reshape(len(X), -1)

    runs: list[tuple[str, str, Callable[[], Any], Callable[[Any], Any]]] = [
        ("LightGBM", "lightgbm", lightgbm_model, lambda b: b.predict(X, raw_score=True, num_threads=1)),
        ("XGBoost", "xgboost", xgboost_model, lambda b: b.inplace_predict(X, predict_type="margin")),
        ("onnxruntime", "onnx", onnx_session, lambda session: session.run(None, {"x": X})[0]),
        ("treelite", "treelite", treelite_model, with_treelite),
    ]
    note = f"timed on {len(X):,} rows" if share < 1 else ""
    return [
        Contender(name=name, needs=needs, prepare=prepare, run=run, share=share, note=note)
        for name, needs, prepare, run in runs
    ]


class Quantiser(Trees):
    """An encoder that reads and quantises its rows like any other, but runs no tree."""

    def _bits(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        bin_tiles(X, self.low, self.scale)
        return np.zeros((len(X), 1), np.bool_)


def encoding(n: int, n_features: int, n_bits: int, n_trees: int, peer_rows: int) -> Contest:
    """Go from float32 rows to packed codes; the peers stop at scores, which is a little less work."""
    encoder = model(n_features, n_bits, n_trees)
    quantiser = Quantiser(**encoder.arrays())
    X = np.random.default_rng(2).standard_normal((n, n_features), np.float32)
    entries = race(
        [
            Contender(name=OURS, run=lambda _: encoder.encode(X, n_jobs=1), note="quantising included"),
            Contender(name=OURS, threads=2, run=lambda _: encoder.encode(X, n_jobs=2)),
            Contender(name="quantising alone", run=lambda _: quantiser.encode(X, n_jobs=1)),
            *peers(encoder, X[:peer_rows], peer_rows / n),
        ],
    )
    codes = entries[0].answer
    for entry in entries[3:]:
        entry.agreement = f"{differing(entry, codes):.2g} of the bits differ"
    trees_only = (entries[0].seconds - entries[2].seconds) / n
    targets = [
        faster_than(on_one_thread(entries), peer, 100, how=", one thread") for peer in ("LightGBM", "onnxruntime")
    ]
    if (n_features, n_bits, n_trees) == (512, 64, 200):
        what = "trees within 1.3x of 2.1 us per row (time without quantising)"
        targets.append(Target(what, 1.3, trees_only / SKETCH, at_most=True))
    reading = min(timed(lambda: read(X.reshape(-1).view(np.uint64)))[1] for _ in range(5))
    facts = {
        "bound": f"the rows read once, {reading / n * 1e6:.2f} us each ({X.nbytes / reading / 1e9:.1f} GB/s)",
        "per row, one thread": f"{entries[0].seconds / n * 1e6:.2f} us, of which quantising alone is "
        f"{entries[2].seconds / n * 1e6:.2f} us",
        "trees": f"{len(encoder.weights):,}, {len(encoder.feature):,} nodes",
    }
    return Contest(entries, targets, facts)


def kinds_of_leaves(n: int, n_features: int, n_bits: int, share: float) -> Contest:
    """Compare trees with real leaves with the paper's 200 trees of depth 4; ``share`` is that of the trees that run."""
    X = np.random.default_rng(2).standard_normal((n, n_features), np.float32)
    newton = partial(BoostedTrees, leaves="newton", features_per_node=8, min_hessian=0.5)
    learners = {
        OURS: BoostedTrees.paper(n_trees=200, features_per_node=8),
        "hashgrove, Newton leaves, depth 4": newton(n_trees=290),
        "hashgrove, Newton leaves, depth 6": newton(n_trees=200, max_depth=6),
    }
    contenders = []
    for name, learner in learners.items():
        note = f"{learner.n_trees} trees" + ", leaves -1 and +1" * (name == OURS)
        encoder = trained(n_features, n_bits, learner.set_params(n_trees=max(int(learner.n_trees * share), 1)))
        contenders.append(Contender(name=name, run=lambda _, e=encoder: e.encode(X, n_jobs=1), note=note))
    return Contest(race(contenders, rounds=5))


def hash_functions(n: int, n_features: int, n_bits: int, n_train: int, n_trees: int) -> Contest:
    """Encode network features with the hash functions that ``hash_function="auto"`` chooses from."""
    rng = np.random.default_rng(1)
    y = rng.integers(100, size=n_train)
    X_train = rng.standard_normal((100, n_features), np.float32)[y] + 3 * rng.standard_normal((n_train, n_features))
    X = np.random.default_rng(2).standard_normal((n, n_features), np.float32)
    learners = {
        OURS: PosteriorBits(),
        "hashgrove, trees with a linear start": BoostedTrees(start="linear", n_trees=n_trees),
        "hashgrove, trees with a kernel start": BoostedTrees(start="kernel", n_trees=n_trees),
    }
    contenders = []
    for name, learner in learners.items():
        hasher = FastHash(n_bits, hash_function=learner, random_state=0, n_jobs=1).fit(X_train.astype(np.float32), y)
        contenders.append(Contender(name=name, run=lambda _, e=hasher.encoder_: e.encode(X, n_jobs=1)))
    itq = ITQ(n_bits, random_state=0).fit(X_train)
    contenders.append(Contender(name="ITQ, one product in float64", run=lambda _: itq.encoder_.encode(X, n_jobs=1)))
    entries = race(contenders, rounds=5)
    per_row = [entry.seconds / n * 1e6 for entry in entries]
    targets = [Target("posterior bits at most 10 us per row", 10.0, per_row[0], at_most=True)] if n >= 10_000 else []
    facts = {entry.name: f"{micro:.1f} us per row" for entry, micro in zip(entries, per_row, strict=True)}
    return Contest(entries, targets, facts)


def differing(entry: Entry, codes: NDArray[np.uint8]) -> float:
    """Return the share of bits in which a peer's scores give another code."""
    theirs = pack(np.asarray(entry.answer) > 0)
    return float(np.bitwise_count(theirs ^ codes[: len(theirs)]).sum() / (8 * theirs.size))


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return contests for short and long codes and for few and many features."""
    if setting.tiny:
        return {
            "tiny": partial(encoding, 100, 20, 16, 5, 50),
            "tiny leaves": partial(kinds_of_leaves, 100, 20, 2, 0.01),
            "tiny hash functions": partial(hash_functions, 100, 40, 16, 400, 3),
        }
    found: dict[str, Callable[[], Contest]] = {
        f"10,000 x {d:,} -> {bits:,} bits, 200 trees of depth 4 per bit": partial(encoding, 10_000, d, bits, 200, rows)
        for d, bits, rows in ((512, 64, 500), (512, 256, 100), (11_200, 64, 500))
    }
    found |= {
        "10,000 x 512 -> 64 bits, kinds of leaves": partial(kinds_of_leaves, 10_000, 512, 64, 1.0),
        "10,000 x 1,280 -> 64 bits, hash functions": partial(hash_functions, 10_000, 1280, 64, 3000, 290),
    }
    return with_held(found, ["10,000 x 512 -> 64 bits, kinds of leaves"], __file__, setting)


if __name__ == "__main__":
    main("encoding", contests)
