"""Codebook features of CIFAR-10: a file of bytes that stays on disk, beside the labels."""

from __future__ import annotations

import re

import numpy as np
import pytest

from experiments.datasets import load_dataset
from hashgrove.storage.formats import FileError, MissingFileError

FILE = "cifar10_codebook11200_u8.npy"


def write_features(folder, shape=(60_000, 11_200), dtype=np.uint8):
    """Zeros but for one value, most of them in no block of the disk: the file is sparse."""
    features = np.lib.format.open_memmap(folder / FILE, mode="w+", dtype=dtype, shape=shape)
    features[0, 5] = 7


def write_labels(folder, n=60_000):
    np.savez(folder / "cifar10_gist512_u8.npz", y=np.arange(n, dtype=np.uint8) % 10)


def test_rows_are_read_when_they_are_used(tmp_path):
    write_features(tmp_path)
    write_labels(tmp_path)
    data = load_dataset("cifar10-codebook800", root=tmp_path)
    assert repr(data).endswith("11200 features, 10 classes; 50000 to train, 50000 to search, 10000 queries)")
    assert isinstance(data.features, np.memmap)
    assert (data.features[0, 5], data.y_query[3]) == (7, 3)


def test_labels_of_the_images_do_too(tmp_path):
    write_features(tmp_path)
    np.savez(tmp_path / "cifar10.npz", labels=np.full(60_000, 4))
    assert load_dataset("cifar10-codebook800", root=tmp_path).y_train[0] == 4


def test_missing_features_say_what_makes_them(tmp_path):
    write_labels(tmp_path)
    with pytest.raises(MissingFileError, match="hashgrove features codebook"):
        load_dataset("cifar10-codebook1600", root=tmp_path)


@pytest.mark.parametrize(
    ("features", "n_labels", "match"),
    [
        ({"shape": (60_000, 11_199)}, 60_000, "must be uint8 with 11200 columns"),
        ({"dtype": np.int8}, 60_000, "must be uint8 with 11200 columns"),
        ({}, 59_999, "must have 60000 labels"),
        ({"shape": (49_000, 11_200)}, 49_000, "must have more than 50000 rows"),
        ({"shape": (50_001, 11_200)}, 50_001, "must have 50000 training rows and 10000 queries"),
    ],
)
def test_other_files_are_refused(tmp_path, features, n_labels, match):
    write_features(tmp_path, **features)
    write_labels(tmp_path, n_labels)
    with pytest.raises(FileError, match=re.escape(match)):
        load_dataset("cifar10-codebook800", root=tmp_path)
