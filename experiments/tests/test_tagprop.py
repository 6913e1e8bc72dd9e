"""TagProp's tagged images, from vector files that this test writes number by number."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damage import damaged, few, one_line_error, reads_or_says_why
from experiments.datasets import DATASETS, load_dataset
from experiments.datasets.tagprop import read_vectors
from hashgrove.storage.formats import FileError, MissingFileError

FORMS = {".hvecs": ("H", "H"), ".hvecs32": ("I", "I"), ".fvec": ("I", "f")}
RNG = np.random.default_rng(0)
ANNOTATIONS = {"train": [[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]], "test": [[1, 0, 0], [0, 1, 1]]}
FEATURES = {
    "Gist.fvec": RNG.random((6, 4)).astype(np.float32),
    "DenseSift.hvecs": RNG.integers(0, 2**16, (6, 5)),
    "HsvV3H1.hvecs32": RNG.integers(0, 2**24, (6, 2)),
}


def vectors(path, rows):
    head, value = FORMS[path.suffix]
    path.write_bytes(b"".join(struct.pack(f"<{head}{len(row)}{value}", len(row), *row) for row in rows))


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "iaprtc12", "iaprtc12")
    return tmp_path


def write(folder, stem, tags="annot.hvecs"):
    folder.mkdir()
    for part, rows in (("train", slice(0, 4)), ("test", slice(4, 6))):
        vectors(folder / f"{stem}_{part}_{tags}", ANNOTATIONS[part])
        for feature, values in FEATURES.items():
            vectors(folder / f"{stem}_{part}_{feature}", values[rows])
    (folder / f"{stem}_dictionary.txt").write_text("sky\nsea\r\nsand\n")


@pytest.mark.parametrize(
    ("name", "stem", "folder"),
    [
        ("iaprtc12", "iaprtc12", "iaprtc12.20091111"),
        ("espgame", "espgame", "espgame"),
        ("corel5k-tagprop", "corel5k", "corel5k.20091111"),
    ],
)
def test_reads(tmp_path, name, stem, folder):
    write(tmp_path / folder, stem)
    dataset = DATASETS[name].read(tmp_path)
    assert dataset.labels.tolist() == ANNOTATIONS["train"] + ANNOTATIONS["test"]
    assert dataset.names == ("sky", "sea", "sand")
    assert dataset.train.tolist() == [0, 1, 2, 3]
    assert dataset.query.tolist() == [4, 5]
    np.testing.assert_array_equal(dataset.features, FEATURES["Gist.fvec"])
    assert dataset.features.dtype == np.float32


def test_features(root):
    entry = DATASETS["iaprtc12"]
    for feature in FEATURES:
        X = entry.read(root, features=feature.split(".")[0]).features
        np.testing.assert_array_equal(X, FEATURES[feature])
    X = entry.read(root, features=["DenseSift", "Gist"]).features
    np.testing.assert_array_equal(X[:, :5], FEATURES["DenseSift.hvecs"])
    np.testing.assert_array_equal(X[:, 5:], FEATURES["Gist.fvec"])
    for wrong in ("gist", [], ["Gist", "Sift"]):
        with pytest.raises(ValueError, match=r"must be one of .*, or a tuple of"):
            entry.read(root, features=wrong)
    with pytest.raises(MissingFileError, match=r"iaprtc12_train_Lab.hvecs32: no such file"):
        entry.read(root, features="Lab")


def test_mirflickr_has_tags_and_classes(tmp_path):
    folder = tmp_path / "mirflickr"
    write(folder, "mirflickr", tags="tags.hvecs")
    (folder / "mirflickr_classes.txt").write_text("animals\nclouds\n")
    (folder / "mirflickr_train_classes.txt").write_text("1 0\n0 0\n1 1\n0 1\n")
    (folder / "mirflickr_test_classes.txt").write_text("1,-1\n0,0\n")
    assert load_dataset("mirflickr", root=tmp_path).names == ("sky", "sea", "sand")
    dataset = load_dataset("mirflickr", root=tmp_path, labels="classes")
    assert dataset.labels.tolist() == [[1, 0], [0, 0], [1, 1], [0, 1], [1, 0], [0, 0]]
    assert dataset.names == ("animals", "clouds")
    with pytest.raises(ValueError, match=r"must be one of .'tags', 'classes'.. Got 'annot'"):
        load_dataset("mirflickr", root=tmp_path, labels="annot")
    path = folder / "mirflickr_test_classes.txt"
    for text in ("1 0\n1\n", "a b\n", "", "1 0 1\n1 0 1\n", "\xff"):
        path.write_text(text, encoding="latin-1")
        one_line_error(lambda: load_dataset("mirflickr", root=tmp_path, labels="classes"), path, "must")


def test_rows_of_the_original(root):
    with pytest.raises(FileError, match=r"must have 17665 training rows and 1962 queries. Got 4 and 2"):
        load_dataset("iaprtc12", root=root)


@pytest.mark.parametrize(
    ("file", "rows", "match"),
    [
        ("iaprtc12_train_Gist.fvec", [[1] * 4] * 3, "must have 4 rows, as many as the annotations have. Got 3"),
        ("iaprtc12_test_Gist.fvec", [[1] * 3] * 2, "must have 4 columns, as iaprtc12_train_Gist.fvec has. Got 3"),
        ("iaprtc12_test_annot.hvecs", [[1] * 4] * 2, "must have 3 columns"),
        ("iaprtc12_test_annot.hvecs", [[1] * 3, [1] * 2, [1] * 4], "length 3 of the first. Got 2 in row 1"),
        ("iaprtc12_test_annot.hvecs", [[], []], "0 as the first length"),
        ("iaprtc12_test_annot.hvecs", [], "Got 0 bytes"),
    ],
)
def test_wrong_files(root, file, rows, match):
    path = root / "iaprtc12" / file
    vectors(path, rows)
    one_line_error(lambda: DATASETS["iaprtc12"].read(root), path, match)


def test_wrong_dictionary(root):
    path = root / "iaprtc12" / "iaprtc12_dictionary.txt"
    path.write_text("sky\nsea\n")
    one_line_error(lambda: DATASETS["iaprtc12"].read(root), path, "must have 3 lines")
    path.unlink()
    with pytest.raises(MissingFileError, match=r"iaprtc12_dictionary.txt: no such file.*guillaumin/data.php"):
        load_dataset("iaprtc12", root=root)


def test_a_length_that_the_file_cannot_have_is_not_allocated(tmp_path):
    path = tmp_path / "a.fvec"
    path.write_bytes(b"\xff\xff\xff\xff" + bytes(100))
    one_line_error(lambda: read_vectors(path), path, "Got 104 bytes, and 4294967295 as the first length")


@few
@given(data=st.data())
def test_damage(tmp_path, data):
    suffix = data.draw(st.sampled_from([*FORMS]))
    path = tmp_path / f"a{suffix}"
    vectors(path, [[1, 2, 3]] * 5)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    rows = reads_or_says_why(lambda: read_vectors(path), path)
    if rows is not None:
        head, kind = (struct.calcsize(form) for form in FORMS[suffix])
        assert len(rows) * (head + rows.shape[1] * kind) == path.stat().st_size
