"""Model cards: what they say, that bytes do not change, and that a file from elsewhere cannot make them say more."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from command import call, fails
from hashgrove import ITQ, FastHash, Gist, ModelFileError, model_card
from hashgrove.storage.modelfile import read, write

X, y = load_digits(return_X_y=True)
X, y = X[:400], y[:400]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("cards") / "digits.hashgrove"
    labels = [None if row % 4 == 0 else int(label) for row, label in enumerate(y)]
    FastHash(16, generic_bits=2, random_state=0).fit(X, labels, validation=0.25).save(path)
    return path


def test_it_says_what_was_learned_and_how_good_it_is(model):
    card = model_card(model)
    assert card.startswith("# digits.hashgrove\n\n16-bit codes by FastHash, 2 bytes per item.\n")
    assert "- 400 rows of 64 features\n- 300 of them with labels: one class each, 10 different ones\n" in card
    assert "- 14 bits learned from labels, 2 generic bits" in card
    assert "It has the highest mean average precision" in card
    assert card.count("| PosteriorBits(") == 2
    assert "75 rows, each searched for among the others" in card
    row = next(line for line in card.splitlines() if line.startswith("| float vectors, cosine | 256 |"))
    assert " to " in row
    assert 'model = load("digits.hashgrove")' in card


def test_same_bytes_for_the_same_fit(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        FastHash(8, hash_function="posterior", random_state=0).fit(X, y).save(tmp_path / name / "m.hashgrove")
    assert model_card(tmp_path / "a" / "m.hashgrove") == model_card(tmp_path / "b" / "m.hashgrove")


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (
            {"y": (np.arange(400)[:, None] % 5 == np.arange(5)) | (y[:, None] == np.arange(5))},
            "with labels: tags, 5 diff",
        ),
        (
            {"affinity": [[0, 1, 1], [0, 2, -1], [1, 2, -1]]},
            "3 of them with labels: pairs of similar and of other rows",
        ),
    ],
)
def test_tags_and_pairs(tmp_path, given, match):
    FastHash(4, hash_function="linear-svm", random_state=0).fit(X, **given).save(tmp_path / "m.hashgrove")
    card = model_card(tmp_path / "m.hashgrove")
    assert match in card
    assert "Not measured." in card


def test_without_labels_and_with_images(tmp_path):
    images = load_digits().images[:60].astype(np.uint8)
    gist = Gist(n_cells=2).fit(images)
    ITQ(8, random_state=0).fit(gist.transform(images)).save(tmp_path / "m.hashgrove", features=gist)
    card = model_card(tmp_path / "m.hashgrove")
    assert "- learned without labels\n" in card
    assert "features of images by gist" in card
    assert "hashgrove query items.hgi new.jpg" in card
    assert "near items have similar features" in card


def test_files_of_earlier_versions(model, tmp_path):
    header, arrays = read(model, kind="encoder")
    del header["learned"]
    write(tmp_path / "old.hashgrove", kind="encoder", header=header, arrays=arrays)
    card = model_card(tmp_path / "old.hashgrove")
    assert "rows of 64 features; the file does not say how many" in card
    assert "`hashgrove drift` cannot compare" in card


def test_texts_of_a_file_cannot_make_markdown(model, tmp_path):
    header, arrays = read(model, kind="encoder")
    header["hasher"] = "A](http://x)\n# head <script> `code` | cell \x1b[2J"
    write(tmp_path / "bad.hashgrove", kind="encoder", header=header, arrays=arrays)
    line = model_card(tmp_path / "bad.hashgrove").splitlines()[2]
    assert not set("<>`|]\x1b") & set(line)


@pytest.mark.parametrize(
    "change",
    [
        {"learned": []},
        {"n_bits": "16"},
        {"n_bits": None},
        {"learned": {"data": {"labels": ["x"], "labelled": 1}}},
        {"learned": {"choice": {"trials": 3}, "data": {"labels": "classes", "n_labels": {}}, "validation": 1}},
        {"learned": {"validation": {"n_rows": 1, "rows": 3}}},
    ],
)
def test_damaged_facts_are_an_error_of_one_line(model, tmp_path, change):
    header, arrays = read(model, kind="encoder")
    write(tmp_path / "bad.hashgrove", kind="encoder", header=header | change, arrays=arrays)
    with pytest.raises(ModelFileError, match=r"bad\.hashgrove: damaged: what it says about its"):
        model_card(tmp_path / "bad.hashgrove")


def test_command(capsys, model, tmp_path):
    assert call(capsys, "info", str(model), "--card")[1] == model_card(model)
    np.save(tmp_path / "X.npy", X)
    folder = str(tmp_path / "a.hgi")
    assert call(capsys, "index", "build", str(tmp_path / "X.npy"), "--model", str(model), "-o", folder)[0] == 0
    assert call(capsys, "info", folder, "--card")[1].startswith("# model.hashgrove\n")
    fails(capsys, "info", str(model), "--card", "--json", code=2, match="not both")
    Gist().fit(np.zeros((1, 16, 16), np.uint8)).save(tmp_path / "gist.hashgrove")
    fails(
        capsys,
        "info",
        str(tmp_path / "gist.hashgrove"),
        "--card",
        code=1,
        match="must be a model. Got a file of the kind",
    )
