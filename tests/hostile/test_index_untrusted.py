"""Index folders of strangers: checksums that are right and content that is not, and links in place of files."""

from __future__ import annotations

import json
import os
import shutil

import fuzz_folders
import numpy as np
import pytest

from hashgrove import index as indexes
from hashgrove.index import FlatIndex, Rerank
from hashgrove.index.stored_features import table_type
from hashgrove.storage.formats import FileError
from hashgrove.storage.modelfile import ModelFileError

CODES = np.arange(6, dtype=np.uint8).reshape(3, 2)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index.hgi"


def save(folder, ids, **options):
    FlatIndex(CODES, ids=ids, **options).save(folder)


def sign(folder, name, payload):
    """Change a file, or the values of the manifest, and compute the checksums again."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    for changed, content in fuzz_folders.signed(files, name, payload).items():
        (folder / changed).write_bytes(content)


def set_values(folder, **values):
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    sign(folder, "manifest.json", json.dumps(json.loads(fuzz_folders.values_of(files)) | values).encode())


def refused(use, path, match):
    with pytest.raises(ModelFileError, match=match) as caught:
        use()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "ids",
    [
        [b"a", b"b\xff", b"c"],
        [b"a", b"", b"c"],
        [b"a", b"b\0b", b"c"],
        [b"fifteen bytes..\xc3", b"\xa9", b"c"],  # one character that begins in one row and ends in the next
        [b"a", b"\xed\xa0\x80", b"z"],  # half of a surrogate pair
    ],
)
@pytest.mark.parametrize("writable", [False, True])
def test_texts_that_are_none(folder, ids, writable):
    save(folder, ["a", "b", "c"])
    sign(folder, "ids-1.bin", np.array(ids, "S16").tobytes())
    with indexes.load_index(folder, writable=writable) as index:
        for use in (lambda: index.ids, lambda: index.search(CODES, 1), lambda: index.add(CODES[:1], ids=["d"])):
            refused(use, folder / "ids-1.bin", "damaged: its ids must be texts")


@pytest.mark.parametrize("ids", [[1, 3, 2], [1, 2, 2]])
def test_ids_out_of_order(folder, ids):
    save(folder, [1, 2, 3])
    sign(folder, "ids-1.bin", np.array(ids, "<i8").tobytes())
    refused(lambda: indexes.load_index(folder).ids, folder / "ids-1.bin", "damaged: its ids must ascend")


def test_ids_out_of_order_behind_those_that_were_verified(folder):
    """The first id of an addition is compared with the last one before it."""
    save(folder, [1, 2, 3])
    reader = indexes.load_index(folder)
    assert reader.ids.tolist() == [1, 2, 3]
    with indexes.load_index(folder, writable=True) as index:
        index.add(CODES[:1], ids=[4])
    sign(folder, "ids-1.bin", np.array([1, 2, 3, 0], "<i8").tobytes())
    assert reader.refresh()
    refused(lambda: reader.ids, folder / "ids-1.bin", "damaged: its ids must ascend")


def test_an_id_twice(folder):
    save(folder, [1, 2, 3])
    with indexes.load_index(folder, writable=True) as index:
        index.update(CODES[:1], ids=[2])
        assert index.ids.tolist() == [1, 2, 3]
    assert indexes.load_index(folder).ids.tolist() == [1, 2, 3]
    sign(folder, "removed-1.bin", np.array([0, 3], "<i8").tobytes())  # and not the first of the two rows with the id 2
    refused(lambda: indexes.load_index(folder), folder / "ids-1.bin", "damaged: an id must not occur twice")


@pytest.mark.parametrize("rows", [[7, -1], [-1, -1], [0, 9], [2, 1], [1, 1], [0, -2], [0, 1]])
def test_removed_rows_that_are_none(folder, rows):
    save(folder, [1, 2, 3])
    with indexes.load_index(folder, writable=True) as index:
        index.remove([3])
    sign(folder, "removed-1.bin", np.array(rows, "<i8").tobytes())
    refused(lambda: indexes.load_index(folder), folder / "removed-1.bin", "damaged: (it must name rows|a row must be)")


@pytest.mark.parametrize("scale", [np.inf, -1])
def test_features_that_are_none(folder, scale):
    save(folder, [1, 2, 3])
    with indexes.load_index(folder, writable=True) as index:
        index.keep_features(np.ones((3, 4)))
    (path,) = folder.glob("features-*.bin")
    table = np.frombuffer(bytearray(path.read_bytes()), table_type(4))
    table["scale"][1] = scale
    sign(folder, path.name, table.tobytes())
    index = indexes.load_index(folder)
    queries = np.ones((3, 4))
    refused(lambda: index.search(CODES, 1, rerank=Rerank(), features=queries), path, "damaged: a scale must be")


@pytest.mark.parametrize("version", ["two\nlines", [3] * 1000, None, True])
def test_another_format_is_named_in_one_short_line(folder, version):
    save(folder, [1, 2, 3])
    set_values(folder, format=version)
    path = folder / "manifest.json"
    refused(lambda: indexes.load_index(folder), path, "format version must be 1")
    with pytest.raises(ModelFileError) as caught:
        indexes.load_index(folder)
    assert len(str(caught.value)) < len(str(path)) + 300


@pytest.mark.parametrize(
    "name", ["manifest.json", "codes-1.bin", "ids-1.bin", "removed-1.bin", "writer.lock", "features-2.bin",
             "model.hashgrove"]
)  # fmt: skip
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_only_files_are_written_to(folder, tmp_path, name, kind):
    """A link could make a change overwrite a file elsewhere, and a pipe would hold it up for ever."""
    save(folder, [1, 2, 3])
    path, outside = folder / name, tmp_path / "outside"
    if path.exists() and kind == "link":
        shutil.move(path, outside)
    elif kind == "link":
        outside.write_bytes(b"mine")
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # so that a writer would not wait for a reader
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(outside)
    before = outside.read_bytes() if kind == "link" else None
    for write in (lambda: indexes.load_index(folder, writable=True), lambda: FlatIndex(CODES).save(folder)):
        with pytest.raises(FileError, match="index") as caught:
            write()
        assert "\n" not in str(caught.value)
    assert (outside.read_bytes() if outside.exists() else None) == before
    if kind == "link":
        assert indexes.load_index(folder).ids.tolist() == [1, 2, 3]
    if kind == "pipe":
        os.close(reading)
