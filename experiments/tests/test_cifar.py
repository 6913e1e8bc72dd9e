"""CIFAR-10 and CIFAR-100 from batches as Python 2 and Python 3 pickle them, and as bytes."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damage import damaged, few, one_line_error, reads_or_says_why
from experiments.datasets import DATASETS, load_dataset, raw
from experiments.datasets.batches import read_batch
from hashgrove.storage.formats import FileError, MissingFileError

RNG = np.random.default_rng(0)
FILES = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
PIXELS = {file: RNG.integers(0, 256, (2, 3072), dtype=np.uint8) for file in FILES}
LABELS = {file: RNG.integers(0, 10, 2).tolist() for file in FILES}
PIXELS100 = {
    "train": RNG.integers(0, 256, (5, 3072), dtype=np.uint8),
    "test": RNG.integers(0, 256, (2, 3072), dtype=np.uint8),
}
FINE = {"train": [99, 0, 3, 4, 5], "test": [7, 98]}
COARSE = {"train": [19, 0, 1, 2, 3], "test": [4, 18]}
FINE_NAMES, COARSE_NAMES = [f"fine_{i}" for i in range(100)], [f"coarse_{i}" for i in range(20)]


def python2(batch):
    """The bytes of Python 2's ``cPickle.dump(batch, file, 2)``, which is what the original files are."""
    out, memo = [b"\x80\x02"], [0]

    def put():
        memo[0] += 1
        out.append(b"q" + bytes([memo[0]]) if memo[0] < 256 else b"r" + struct.pack("<I", memo[0]))

    def text(value):
        value = value if isinstance(value, bytes) else value.encode()
        out.append(
            b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<I", len(value)) + value
        )
        put()

    def number(value):
        small = b"K" + bytes([value]) if 0 <= value < 256 else None
        out.append(
            small or (b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value))
        )

    def array(value):
        out.append(b"cnumpy.core.multiarray\n_reconstruct\n")
        put()
        out.append(b"cnumpy\nndarray\n")
        put()
        out.append(b"K\x00\x85")
        put()
        text("b")
        out.append(b"\x87")
        put()
        out.append(b"R")
        put()
        out.append(b"(K\x01")
        for size in value.shape:
            number(size)
        out.append(b"\x86")
        put()
        out.append(b"cnumpy\ndtype\n")
        put()
        text("u1")
        out.append(b"K\x00K\x01\x87")
        put()
        out.append(b"R")
        put()
        out.append(b"(K\x03")
        text("|")
        out.append(b"NNN")
        number(-1)
        number(-1)
        out.append(b"K\x00t")
        put()
        out.append(b"b\x89")
        text(value.tobytes())
        out.append(b"t")
        put()
        out.append(b"b")

    out.append(b"}")
    put()
    out.append(b"(")
    for key, value in batch.items():
        text(key)
        if isinstance(value, str):
            text(value)
        elif isinstance(value, list):
            out.append(b"]")
            put()
            out.append(b"(")
            for item in value:
                (text if isinstance(item, str) else number)(item)
            out.append(b"e")
        else:
            array(value)
    out.append(b"u.")
    return b"".join(out)


PICKLERS = {
    "python 2": python2,
    "python 3, protocol 2": lambda batch: pickle.dumps(batch, 2),
    "python 3, protocol 4": lambda batch: pickle.dumps(batch, 4),
    "python 3, Fortran": lambda batch: pickle.dumps(
        {k: np.asfortranarray(v) if isinstance(v, np.ndarray) else v for k, v in batch.items()}, 2
    ),
}


def python10(pickler):
    for file in FILES:
        names = [f"thing_{i}.png" for i in range(2)]
        yield file, pickler({"batch_label": file, "labels": LABELS[file], "data": PIXELS[file], "filenames": names})


def binary10():
    for file in FILES:
        rows = zip(LABELS[file], PIXELS[file], strict=True)
        yield f"{file}.bin", b"".join(bytes([label]) + row.tobytes() for label, row in rows)


def python100(pickler):
    yield "meta", pickler({"fine_label_names": FINE_NAMES, "coarse_label_names": COARSE_NAMES})
    for file in ("train", "test"):
        yield file, pickler({"data": PIXELS100[file], "fine_labels": FINE[file], "coarse_labels": COARSE[file]})


def binary100():
    yield "fine_label_names.txt", "\n".join(FINE_NAMES).encode()
    yield "coarse_label_names.txt", "\n".join(COARSE_NAMES).encode()
    for file in ("train", "test"):
        rows = zip(COARSE[file], FINE[file], PIXELS100[file], strict=True)
        yield f"{file}.bin", b"".join(bytes([coarse, fine]) + row.tobytes() for coarse, fine, row in rows)


def write(root, place, files):
    """Write into a folder, or into a .tar.gz archive with a folder in it as the original ones have."""
    root.mkdir(parents=True, exist_ok=True)
    if not place.endswith(".tar.gz"):
        (root / place).mkdir(exist_ok=True)
        for name, content in files:
            (root / place / name).write_bytes(content)
        return
    with tarfile.open(root / place, "w:gz") as archive:
        folder = tarfile.TarInfo("cifar-10-batches-py")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in [("readme.html", b"hello"), *sorted(files, reverse=True)]:
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def pictures(pixels):
    """Rows of the files as height x width x colour, pixel by pixel."""
    out = np.empty((len(pixels), 32, 32, 3), np.uint8)
    for row, column, colour in np.ndindex(32, 32, 3):
        out[:, row, column, colour] = pixels[:, colour * 1024 + row * 32 + column]
    return out


def is_cifar10(dataset):
    np.testing.assert_array_equal(dataset.images, pictures(np.concatenate([PIXELS[file] for file in FILES])))
    assert dataset.labels.tolist() == [label for file in FILES for label in LABELS[file]]
    assert dataset.train.tolist() == [*range(10)]
    assert dataset.query.tolist() == [10, 11]
    assert dataset.names[3] == "cat"


@pytest.mark.parametrize("place", ["cifar-10-python.tar.gz", "cifar-10-batches-py"])
@pytest.mark.parametrize("pickler", PICKLERS)
@pytest.mark.parametrize("below", ["", "cifar10"])
def test_python_version(tmp_path, place, pickler, below):
    write(tmp_path / below, place, python10(PICKLERS[pickler]))
    is_cifar10(DATASETS["cifar10"].read(tmp_path))


@pytest.mark.parametrize("place", ["cifar-10-binary.tar.gz", "cifar-10-batches-bin"])
def test_binary_version(tmp_path, place):
    write(tmp_path, place, binary10())
    is_cifar10(DATASETS["cifar10"].read(tmp_path))


def test_npz(tmp_path):
    images = pictures(np.concatenate([PIXELS[file] for file in FILES]))
    labels = np.array([label for file in FILES for label in LABELS[file]], np.uint8)
    path = tmp_path / "cifar10.npz"
    np.savez(path, images=images, labels=labels)
    is_cifar10(DATASETS["cifar10"].read(tmp_path))
    for wrong in (
        {"images": images[:, :31], "labels": labels},
        {"images": images.astype(float), "labels": labels},
        {"images": images, "labels": labels[:-1]},
        {"images": images, "labels": labels + 10},
        {"images": images},
    ):
        np.savez(path, **wrong)
        one_line_error(lambda: DATASETS["cifar10"].read(tmp_path), path, "must be")


@pytest.mark.parametrize(
    "place", ["cifar-100-python.tar.gz", "cifar-100-python", "cifar-100-binary.tar.gz", "cifar-100-binary"]
)
def test_cifar100(tmp_path, place):
    write(tmp_path, place, binary100() if "binary" in place else python100(python2))
    entry = DATASETS["cifar100"]
    for options, labels, names in (
        ({}, FINE, FINE_NAMES),
        ({"labels": "fine"}, FINE, FINE_NAMES),
        ({"labels": "coarse"}, COARSE, COARSE_NAMES),
    ):
        dataset = entry.read(tmp_path, **options)
        assert dataset.labels.tolist() == labels["train"] + labels["test"]
        assert list(dataset.names) == names
        np.testing.assert_array_equal(dataset.images, pictures(np.concatenate([*PIXELS100.values()])))
        assert dataset.query.tolist() == [5, 6]
    with pytest.raises(ValueError, match=r"must be one of .'fine', 'coarse'.. Got 'both'"):
        entry.read(tmp_path, labels="both")
    with pytest.raises(ValueError, match=r"must be of \[labels\].*Got 'place'"):
        entry.read(tmp_path, place="elsewhere")


def test_rows_and_files_that_are_missing(tmp_path):
    write(tmp_path, "cifar-10-batches-bin", binary10())
    with pytest.raises(FileError, match=r"data_batch_1.bin: cifar10 must have 50000 .* Got 10 and 2"):
        load_dataset("cifar10", root=tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(
        MissingFileError, match=r"data_batch_3.bin: no such file.*python -m experiments datasets fetch cifar10"
    ):
        load_dataset("cifar10", root=tmp_path)
    write(tmp_path, "cifar-10-python.tar.gz", [*python10(python2)][1:])
    path = tmp_path / "cifar-10-python.tar.gz"
    one_line_error(lambda: load_dataset("cifar10", root=tmp_path), path, "must hold the file data_batch_1")


@pytest.mark.parametrize(
    ("batch", "match"),
    [
        ({"labels": [1]}, "array 'data' of 1 rows"),
        ({"data": PIXELS["test_batch"], "labels": [1]}, "array 'data' of 1 rows"),
        ({"data": PIXELS["test_batch"], "labels": ["1", "2"]}, "list of integers"),
        ({"data": PIXELS["test_batch"], "labels": [1, 10]}, "from 0 to 9"),
        ({"data": PIXELS["test_batch"][:, :5], "labels": [1, 2]}, "3072 columns"),
        ([1, 2], "no dictionary"),
        ({"data": PIXELS["test_batch"].astype(float), "labels": [1, 2]}, "of 'f8', not of uint8"),
        ({"data": PIXELS["test_batch"][0], "labels": [1, 2]}, "two dimensions"),
        ({1: 2}, "a int where a str is expected"),
        ({"labels": {1, 2}}, "which is not run"),
    ],
)
def test_wrong_batches(tmp_path, batch, match):
    write(tmp_path, "cifar-10-batches-py", python10(python2))
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(pickle.dumps(batch, 2))
    one_line_error(lambda: DATASETS["cifar10"].read(tmp_path), path, match)


class TestNothingIsUnpickled:
    class Bomb:
        def __reduce__(self):
            return os.mkdir, ("was-unpickled",)

    @pytest.mark.parametrize("protocol", range(6))
    def test_calls(self, tmp_path, monkeypatch, protocol):
        monkeypatch.chdir(tmp_path)
        content = pickle.dumps({"labels": self.Bomb()}, protocol)
        with pytest.raises(FileError, match="which is not run"):
            read_batch(Path("batch"), content)
        assert os.listdir() == []

    @pytest.mark.parametrize(
        "name", [b"os\nsystem", b"builtins\neval", b"numpy\nload", b"numpy.core.multiarray\nscalar"]
    )
    def test_names(self, name):
        with pytest.raises(FileError, match="which is not run"):
            read_batch(Path("batch"), b"\x80\x02c" + name + b"\n(U\x02idtR.")

    def test_names_that_are_known_cannot_be_called_otherwise(self):
        for call in (
            b"cnumpy\nndarray\n)R.",
            b"c_codecs\nencode\nU\x01aU\x05utf-8\x86R.",
            b"cnumpy\ndtype\nU\x01O\x85R.",
        ):
            with pytest.raises(FileError, match="python version"):
                read_batch(Path("batch"), b"\x80\x02" + call)

    @pytest.mark.parametrize("text", [b"X\x40\x42\x0f\x00" + b"a" * 1_000_000, b"T\x40\x42\x0f\x00" + b"a" * 1_000_000])
    def test_copies_of_one_text_are_counted(self, text):
        """Ten megabytes of such a file would ask for twenty gigabytes."""
        start = b"\x80\x02}" + text + b"q\x01c_codecs\nencode\nq\x02U\x06latin1q\x03]("
        tracemalloc.start()
        with pytest.raises(FileError, match="copies more bytes than it has"):
            read_batch(Path("batch"), start + b"h\x02h\x01h\x03\x86R" * 1000 + b"es.")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8_000_000

    def test_too_many_instructions(self):
        with pytest.raises(FileError, match="more than 524288 instructions"):
            read_batch(Path("batch"), b"\x80\x02" + b"}" * 2**20)

    def test_deep_nesting_is_harmless(self):
        nested = b"\x80\x02}N" + b"\x85" * 300_000
        for end in (b"K\x01s.", b"."):  # as a key, whose hash would overflow the stack; and as the result
            with pytest.raises(FileError, match="python version"):
                read_batch(Path("batch"), nested + end)


BATCH = python2({"batch_label": "b", "labels": [1, 2], "data": RNG.integers(0, 256, (2, 6), dtype=np.uint8)})


@few
@given(data=st.data())
def test_damaged_batch(data):
    content = data.draw(st.one_of(damaged(BATCH), st.binary(max_size=100).map(lambda end: b"\x80\x02" + end)))
    batch = reads_or_says_why(lambda: read_batch(Path("batch"), content), "batch")
    assert batch is None or all(type(key) is str for key in batch)


@few
@given(data=st.data())
def test_damaged_archive(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("root")
    place = data.draw(st.sampled_from(["cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"]))
    write(root, place, binary100() if "binary" in place else python100(python2))
    path = root / place
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    reads_or_says_why(lambda: DATASETS["cifar100"].read(root), path)


@few
@given(data=st.data())
def test_damaged_tar(tmp_path_factory, data):
    """Damage below the checksum of gzip, so that it reaches the tar archive."""
    import gzip

    root = tmp_path_factory.mktemp("root")
    path = root / "cifar-100-binary.tar.gz"
    write(root, path.name, binary100())
    path.write_bytes(gzip.compress(data.draw(damaged(gzip.decompress(path.read_bytes()))), 1))
    reads_or_says_why(lambda: DATASETS["cifar100"].read(root), path)


def test_archive_that_goes_on(tmp_path, monkeypatch):
    write(tmp_path, "cifar-10-binary.tar.gz", [*binary10(), ("zeros", bytes(200_000))])
    path = tmp_path / "cifar-10-binary.tar.gz"
    is_cifar10(DATASETS["cifar10"].read(tmp_path))
    monkeypatch.setattr(raw, "UNPACKED_LIMIT", 150_000)
    one_line_error(lambda: DATASETS["cifar10"].read(tmp_path), path, "must unpack to at most 150000 bytes")


def test_member_that_is_too_large(tmp_path, monkeypatch):
    from experiments.datasets import cifar

    monkeypatch.setattr(cifar, "MEMBER_LIMIT", 6000)
    for place in ("cifar-10-binary.tar.gz", "cifar-10-batches-bin"):
        write(tmp_path / place, place, binary10())
        one_line_error(
            lambda place=place: DATASETS["cifar10"].read(tmp_path / place), tmp_path / place, "at most 6000 bytes"
        )


def test_links_and_devices_in_an_archive_are_not_followed(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file in FILES:
            member = tarfile.TarInfo(f"{file}.bin")
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    one_line_error(lambda: DATASETS["cifar10"].read(tmp_path), path, "must hold the file")
