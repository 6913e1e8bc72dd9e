"""On the real data of ../shared/data, small enough for every run; the full figures are in docs/results.md."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove import ITQ, LSH, BoostedTrees, FastHash, FlatIndex, LinearSVM, evaluate

pytestmark = pytest.mark.data


def scaled(file, name):
    return (file[name] * file["scale"] + file["lo"]).astype(np.float32)


def measure(hasher, X_database, X_query, y_database, y_query):
    index = FlatIndex(hasher.transform(X_database))
    return evaluate(index, hasher.transform(X_query), y_query, y_database, k=100)


@pytest.fixture(scope="module")
def cifar(shared_data):
    """3,000 training points that are the database, and 500 queries."""
    with np.load(shared_data / "cifar10_gist512_u8.npz") as file:
        X, y = scaled(file, "X"), file["y"]
    return X[:3000], X[50_000:50_500], y[:3000], y[50_000:50_500]


def test_fasthash_beats_unsupervised_codes_and_trees_beat_hyperplanes(cifar):
    X, _, y, _ = cifar
    trees = FastHash(24, hash_function=BoostedTrees(n_trees=60), random_state=0).fit(X, y)
    linear = FastHash(24, hash_function=LinearSVM(), random_state=0).fit(X, y)
    maps = {
        "trees": measure(trees, *cifar).map,
        "linear": measure(linear, *cifar).map,
        "itq": measure(ITQ(24, random_state=0).fit(X), *cifar).map,
        "lsh": measure(LSH(24, random_state=0).fit(X), *cifar).map,
    }
    assert maps["trees"] > maps["linear"] > maps["itq"] > maps["lsh"] > 0.1
    assert maps["trees"] > 0.35


def test_tags(shared_data):
    """Corel5k: 374 tags, similar when two are shared; chance is the share of similar pairs."""
    with np.load(shared_data / "corel5k.npz") as file:
        X, Y, test = file["gist"].astype(np.float32), file["Y"], file["is_test"].astype(bool)
    hasher = FastHash(24, hash_function=BoostedTrees(n_trees=60), random_state=0).fit(X[~test], Y[~test])
    report = measure(hasher, X[~test], X[test], Y[~test], Y[test])
    chance = (Y[test].astype(int) @ Y[~test].astype(int).T >= 2).mean()
    unsupervised = measure(ITQ(24, random_state=0).fit(X[~test]), X[~test], X[test], Y[~test], Y[test])
    assert report.map > 2 * chance
    assert report.map > unsupervised.map
