"""MNIST and Fashion-MNIST, from files that this test writes byte by byte."""

from __future__ import annotations

import gzip
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damage import damaged, few, one_line_error, reads_or_says_why
from experiments.datasets import DATASETS, load_dataset
from experiments.datasets.idx import FILES, read_idx
from hashgrove.storage import formats

RNG = np.random.default_rng(0)
IMAGES = {
    "train": RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8),
    "t10k": RNG.integers(0, 256, (4, 28, 28), dtype=np.uint8),
}
LABELS = {"train": [3, 0, 9, 1, 1, 2], "t10k": [7, 7, 0, 5]}


def idx(values, shape):
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + bytes(values)


def contents():
    for part in ("train", "t10k"):
        yield f"{part}-images-idx3-ubyte", idx(IMAGES[part].tobytes(), IMAGES[part].shape)
        yield f"{part}-labels-idx1-ubyte", idx(LABELS[part], (len(LABELS[part]),))


def write(folder, suffix):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents():
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "place", "class_of_9"),
    [("mnist", "mnist", "9"), ("mnist", "MNIST/raw", "9"), ("fashion-mnist", "fashion-mnist", "Ankle boot")],
)
def test_reads(tmp_path, suffix, name, place, class_of_9):
    write(tmp_path / place, suffix)
    dataset = DATASETS[name].read(tmp_path)
    np.testing.assert_array_equal(dataset.images, np.concatenate([*IMAGES.values()]))
    assert dataset.labels.tolist() == LABELS["train"] + LABELS["t10k"]
    assert dataset.train.tolist() == [*range(6)]
    assert dataset.query.tolist() == [*range(6, 10)]
    assert dataset.names[9] == class_of_9
    assert (dataset.name, dataset.licence) == (name, DATASETS[name].licence)


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path):
    write(tmp_path, "")
    write(tmp_path / "mnist", "")
    with pytest.raises(formats.MissingFileError, match="datasets fetch fashion-mnist"):
        load_dataset("fashion-mnist", root=tmp_path)


def test_too_few_rows(tmp_path):
    write(tmp_path / "mnist", "")
    with pytest.raises(formats.FileError, match=r"must have 60000 training rows and 10000 queries. Got 6 and 4"):
        load_dataset("mnist", root=tmp_path)


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path / "mnist", ".gz")
    (tmp_path / "mnist" / f"{FILES[3]}.gz").unlink()
    with pytest.raises(formats.MissingFileError, match=r"mnist/t10k-labels-idx1-ubyte.gz: no such file"):
        load_dataset("mnist", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("train-labels-idx1-ubyte", b"", "Got nothing"),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0", "IDX file"),
        ("train-labels-idx1-ubyte", idx([1] * 5, (5,)), "must have 6 labels, one per image. Got 5"),
        ("train-labels-idx1-ubyte", idx([1] * 5, (6,)), "must hold 6 more bytes"),
        ("train-labels-idx1-ubyte", idx([1] * 7, (6,)), "must end after 6 more bytes"),
        ("train-labels-idx1-ubyte", idx([10] * 6, (6,)), "from 0 to 9. Got 10"),
        ("train-labels-idx1-ubyte", b"\0\0\x0d\x01" + bytes(28), "starts with 00 00 08 01. Got 00 00 0d 01"),
        ("train-images-idx3-ubyte", idx([1] * 6, (6,)), "in 3 dimensions"),
        ("train-images-idx3-ubyte", idx([], (2**32 - 1, 2**32 - 1, 2**32 - 1)), "possible shape"),
        ("train-images-idx3-ubyte", idx([], (0, 2**32 - 1, 2**32 - 1)), "possible shape"),
        ("train-images-idx3-ubyte", idx([], (2**16, 2**16, 2**16)), "as its header declares"),
        ("t10k-images-idx3-ubyte", idx(bytes(4 * 27 * 28), (4, 27, 28)), r"size \(28, 28\)"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_wrong_files(tmp_path, name, content, match, suffix):
    write(tmp_path / "mnist", suffix)
    path = tmp_path / "mnist" / f"{name}{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    one_line_error(lambda: DATASETS["mnist"].read(tmp_path), path, match)


def test_what_a_small_gz_cannot_hold_is_not_allocated(tmp_path, monkeypatch):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(idx([], (2**30,))))
    one_line_error(lambda: read_idx(path, ndim=1), path, "must hold 1073741824 more bytes")
    path.write_bytes(gzip.compress(idx(bytes(1000), (1000,))))
    monkeypatch.setattr(formats, "MEMORY_LIMIT", 999)
    one_line_error(lambda: read_idx(path, ndim=1), path, "at most 999 bytes here")


@few
@given(data=st.data())
def test_damage(tmp_path, data):
    path = tmp_path / "labels"
    path.write_bytes(data.draw(damaged(idx(range(40), (5, 8)))))
    array = reads_or_says_why(lambda: read_idx(path, ndim=2), path)
    assert array is None or array.size + 12 == path.stat().st_size


@few
@given(data=st.data())
def test_damage_of_gz(tmp_path, data):
    path = tmp_path / "labels.gz"
    content = data.draw(damaged(gzip.compress(idx(range(40), (5, 8)))))
    path.write_bytes(content)
    array = reads_or_says_why(lambda: read_idx(path, ndim=2), path)
    if array is not None:
        unpacked = zlib.decompressobj(wbits=31).decompress(content)
        assert array.tobytes() == unpacked[12:]
