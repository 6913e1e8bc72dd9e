"""`hashgrove train` with unlabelled rows, triplets and weights: the options reach `FastHash.fit` unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from command import call, fails
from hashgrove import BoostedTrees, FastHash, load

N = 200
TRAIN = ("--bits", "8", "--trees", "5", "--seed", "0", "--quiet")


@pytest.fixture
def digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = load_digits(return_X_y=True)
    np.save("X.npy", X[:N])
    return X[:N], y[:N]


def codes_of(capsys, X, *arguments):
    status, _, err = call(capsys, "train", "X.npy", *arguments, "-o", "m.hashgrove", *TRAIN)
    assert status == 0, err
    return load("m.hashgrove").encode(X)


def expected_codes(X, y=None, **supervision):
    hasher = FastHash(8, hash_function=BoostedTrees(n_trees=5), random_state=0)
    return hasher.fit(X, y, **supervision).transform(X)


def test_unlabelled_value_of_numbers(digits, capsys):
    X, y = digits
    labels = np.where(np.arange(N) % 3 == 0, -1, y)
    np.save("y.npy", labels)
    codes = codes_of(capsys, X, "y.npy", "--unlabelled", "-1")
    np.testing.assert_array_equal(codes, expected_codes(X, labels, unlabelled=-1))
    assert not np.array_equal(codes, expected_codes(X, labels))  # otherwise -1 is a class


def test_unlabelled_value_of_texts(digits, capsys):
    X, y = digits
    labels = np.where(np.arange(N) % 3 == 0, "?", y.astype(str))
    np.save("y.npy", labels)
    codes = codes_of(capsys, X, "y.npy", "--unlabelled", "?")
    np.testing.assert_array_equal(codes, expected_codes(X, labels, unlabelled="?"))


def test_unlabelled_rows_of_a_column(digits, capsys):
    X, y = digits
    labels = np.where(np.arange(N) % 3 == 0, "none", y.astype(str))
    rows = [",".join([*map(str, x), label]) for x, label in zip(X, labels, strict=True)]
    header = ",".join([*(f"p{j}" for j in range(X.shape[1])), "digit"])
    Path("X.csv").write_text("\n".join([header, *rows]) + "\n")
    arguments = ("train", "X.csv", "--label-column", "digit", "--unlabelled", "none", "-o", "m.hashgrove", *TRAIN)
    status, _, err = call(capsys, *arguments)
    assert status == 0, err
    np.testing.assert_array_equal(load("m.hashgrove").encode(X), expected_codes(X, labels, unlabelled="none"))


def test_labels_that_are_nan_are_unlabelled(digits, capsys):
    X, y = digits
    labels = np.where(np.arange(N) % 3 == 0, np.nan, y)
    np.save("y.npy", labels)
    np.testing.assert_array_equal(codes_of(capsys, X, "y.npy"), expected_codes(X, labels))


@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_triplets(digits, capsys, ending):
    X, y = digits
    rng = np.random.default_rng(0)
    anchors = rng.integers(N, size=3000)
    positive = np.array([rng.choice(np.flatnonzero(y == y[anchor])) for anchor in anchors])
    negative = np.array([rng.choice(np.flatnonzero(y != y[anchor])) for anchor in anchors])
    triplets = np.stack([anchors, positive, negative], axis=1)[positive != anchors]
    np.save("t.npy", triplets)
    np.savetxt("t.csv", triplets, fmt="%d", delimiter=",")
    codes = codes_of(capsys, X, "--triplets", f"t.{ending}")
    np.testing.assert_array_equal(codes, expected_codes(X, triplets=triplets))


def test_sample_weight(digits, capsys):
    X, y = digits
    weights = np.random.default_rng(0).random(N) + 0.1
    np.save("y.npy", y)
    np.save("w.npy", weights)
    codes = codes_of(capsys, X, "y.npy", "--sample-weight", "w.npy")
    np.testing.assert_array_equal(codes, expected_codes(X, y, sample_weight=weights))
    assert not np.array_equal(codes, expected_codes(X, y))


def test_triplets_of_rows_that_are_not_there(digits, capsys):
    np.save("t.npy", np.array([[0, 1, N]]))
    fails(capsys, "train", "X.npy", "--triplets", "t.npy", "-o", "m", *TRAIN, code=1, match="triplets")


def test_rows_in_files(digits, capsys):
    X, y = digits
    np.save("y.npy", y)
    Path("shards").mkdir()
    for number, part in enumerate(np.array_split(X, 3)):
        np.save(f"shards/{number}.npy", part)
    expected = expected_codes(X, y)
    np.testing.assert_array_equal(codes_of(capsys, X, "y.npy", "--cache", "cache"), expected)
    assert [file.name.split("-")[0] for file in Path("cache").iterdir()] == ["bins"]
    status, _, err = call(capsys, "train", "shards", "y.npy", "-o", "m.hashgrove", *TRAIN)
    assert status == 0, err
    np.testing.assert_array_equal(load("m.hashgrove").encode(X), expected)
    wanted = r"X\.npy: must be read as a whole to choose columns\. Leave --cache out"
    arguments = ("train", "X.npy", "--label-column", "3", "-o", "m.hashgrove", "--cache", "cache")
    fails(capsys, *arguments, code=1, match=wanted)


def test_large_files_stay_on_the_disk(digits, capsys, monkeypatch):
    monkeypatch.setattr("hashgrove.cli.inputs.memory_limit", lambda: 1000)
    monkeypatch.setattr("hashgrove.cli.inputs.read_rows", None)
    np.save("y.npy", digits[1])
    np.testing.assert_array_equal(codes_of(capsys, digits[0], "y.npy"), expected_codes(*digits))
