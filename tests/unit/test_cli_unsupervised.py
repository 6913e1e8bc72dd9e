"""``hashgrove train --method``: codes that are learned without labels."""

from __future__ import annotations

import numpy as np
import pytest

from command import call, fails
from hashgrove import ITQ, LSH, Gist, ImageEncoder, load
from hashgrove.baselines import BASELINES, SignThreshold
from hashgrove.cli.unsupervised import METHODS
from hashgrove.hasher import SupervisedHasher

X = np.random.default_rng(0).normal(size=(60, 10))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    np.save("y.npy", np.arange(60) % 3)
    return tmp_path


def test_methods_are_those_that_need_no_labels():
    assert set(METHODS) == {name for name, kind in BASELINES.items() if not issubclass(kind, SupervisedHasher)}


@pytest.mark.parametrize(("method", "kind"), [("itq", ITQ), ("lsh", LSH), ("sign", SignThreshold)])
def test_model_is_that_of_the_library(folder, capsys, method, kind):
    status, out, _ = call(
        capsys, "train", "X.npy", "-o", "m.hashgrove", "--method", method, "--bits", "8", "--seed", "3"
    )
    assert status == 0
    assert f"method               {kind.__name__}, without labels" in out
    assert load("m.hashgrove").digest == kind(8, random_state=3).fit(X).digest


def test_default_length_is_at_most_what_the_method_allows(folder, capsys):
    assert call(capsys, "train", "X.npy", "-o", "m", "--method", "itq", "--quiet")[:2] == (0, "")
    assert load("m").n_bits == 10
    fails(
        capsys,
        "train",
        "X.npy",
        "-o",
        "m",
        "--method",
        "itq",
        "--bits",
        "11",
        code=1,
        match="--bits must be at most 10",
    )


def test_columns_and_images(folder, capsys):
    with open("X.csv", "w", encoding="utf-8") as file:
        file.write("key,kind,a,b\n" + "".join(f"k{row},x,{row},{row % 7}\n" for row in range(20)))
    columns = "--id-column", "key", "--label-column", "kind"
    assert call(capsys, "train", "X.csv", "-o", "m", "--method", "lsh", "--bits", "8", *columns)[0] == 0
    assert load("m").n_features == 2
    images = np.random.default_rng(1).integers(0, 256, (20, 16, 16)).astype(np.uint8)
    gist = Gist(n_cells=2).fit(images)
    gist.save("gist.hashgrove")
    np.save("G.npy", gist.transform(images))
    assert call(capsys, "train", "G.npy", "-o", "m", "--method", "itq", "--features", "gist.hashgrove")[0] == 0
    assert isinstance(load("m"), ImageEncoder)


def test_what_needs_labels_is_refused(folder, capsys):
    command = "train", "X.npy", "y.npy", "-o", "m", "--method", "itq", "--loss", "ksh", "--validate", "0.2"
    fails(
        capsys, *command, code=2, match="LABELS and --validate and --loss: not for --method itq, which learns without"
    )
    assert not (folder / "m").exists()
