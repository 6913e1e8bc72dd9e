"""On the real data of ../shared/data, small enough for every run; the full figures are in docs/results.md."""

from __future__ import annotations

import os

import numpy as np
import pytest
from sklearn.datasets import load_sample_image

from hashgrove import ITQ, LSH, BoostedTrees, FastHash, FlatIndex, Gist, LinearSVM, OnnxFeatures, evaluate, load

pytestmark = pytest.mark.data


def scaled(file, name):
    return (file[name] * file["scale"] + file["lo"]).astype(np.float32)


def measure(hasher, X_database, X_query, y_database, y_query):
    index = FlatIndex(hasher.transform(X_database))
    return evaluate(index, hasher.transform(X_query), y_queries=y_query, y_database=y_database, k=100)


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


def sharp_cubic(images, size):
    """Images scaled up by the cubic filter of a = -0.75: half-pixel centres, borders repeated, rounded."""

    def weight(t, a=-0.75):
        if t <= 1:
            return (a + 2) * t**3 - (a + 3) * t**2 + 1
        return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0

    n = images.shape[1]
    W = np.zeros((size, n))
    for i in range(size):
        centre = (i + 0.5) * n / size - 0.5
        for j in range(int(np.floor(centre)) - 1, int(np.floor(centre)) + 3):
            W[i, np.clip(j, 0, n - 1)] += weight(abs(centre - j))
    scaled = np.einsum("ij,njkc,lk->nilc", W, images.astype(float), W, optimize=True)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def cifar_images():
    """CIFAR-10 as shared/data/get_cifar10.py writes it, from the file that HASHGROVE_CIFAR10 names."""
    path = os.environ.get("HASHGROVE_CIFAR10")
    if not path:
        pytest.skip("HASHGROVE_CIFAR10 must name the file that ../shared/data/get_cifar10.py wrote")
    with np.load(path) as file:
        return np.concatenate([file["images"][:300], file["images"][50_000:50_100]])


def quantised(shared_data, name):
    """Features of the same rows, size of a step, and where they are not cut off at the ends of the range."""
    with np.load(shared_data / name) as file:
        levels = np.concatenate([file["X"][:300], file["X"][50_000:50_100]])
        return levels * file["scale"] + file["lo"], file["scale"], (levels > 0) & (levels < 255)


def test_gist_is_that_of_the_shared_features(shared_data, cifar_images):
    """They were made by LMgist's settings on 32 x 32 pixels, and rounded to 256 levels."""
    expected, step, inside = quantised(shared_data, "cifar10_gist512_u8.npz")
    X = Gist().fit_transform(cifar_images)
    assert (np.abs(X - expected) / step)[inside].max() < 0.51
    correlations = [np.corrcoef(X[:, j], expected[:, j])[0, 1] for j in range(512)]
    assert min(correlations) > 0.99


def test_network_features_are_those_of_the_shared_ones(shared_data, cifar_images):
    """They fit images that a cubic filter of a = -0.75 brought to 128 pixels; Pillow's has a = -0.5."""
    expected, step, inside = quantised(shared_data, "cifar10_effnetlite0_1280_u8.npz")
    settings = {"output": "feat", "image_size": 128, "mean": 127.0, "std": 128.0}
    network = OnnxFeatures(shared_data / "effnet_lite0_feat.onnx", **settings, resampling="bicubic")
    rows = slice(0, 24)
    X = network.fit_transform(sharp_cubic(cifar_images[rows], 128))
    assert X.shape == (24, 1280)
    assert (np.abs(X - expected[rows]) / step)[inside[rows]].max() < 0.75
    near = network.transform(cifar_images[rows])
    assert np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(near, expected[rows], strict=True)]) > 0.97


def test_a_real_network_in_a_model_file(shared_data, tmp_path):
    settings = {"output": "feat", "image_size": 64, "mean": 127.0, "std": 128.0}
    network = OnnxFeatures(shared_data / "effnet_lite0_feat.onnx", **settings)
    images = np.stack([load_sample_image("china.jpg")[::4, ::4][:64, :64], load_sample_image("flower.jpg")[:64, :64]])
    X = network.fit_transform(images)
    LSH(16, random_state=0).fit(X).save(tmp_path / "m", features=network)
    model = load(tmp_path / "m")
    np.testing.assert_array_equal(model.features.transform(images), X)
    assert model.encode(images).shape == (2, 2)
    with pytest.raises(ValueError, match=r"one of \['feat', 'logits'\]"):
        network.set_params(output="features").fit(images)
