"""Index folders of strangers: checksums that are right and content that is not, and links in place of files."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import fuzz_folders
import numpy as np
import pytest

from hashgrove import index as indexes
from hashgrove.index import FlatIndex, Rerank
from hashgrove.index.folder import Folder
from hashgrove.index.manifest import Manifest
from hashgrove.index.stored_features import table_type
from hashgrove.index.tables import Tables
from hashgrove.storage.formats import FileError
from hashgrove.storage.modelfile import ModelFileError
from indexes import ByTables

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
        [b"a", b"b\0b", b"c"],
        [b"a", b"b\xc3", b"\xa9"],  # one character that begins in one text and ends in the next
        [b"a", b"\xed\xa0\x80", b"z"],  # half of a surrogate pair
        [b"a", b"b" * 1025, b"c"],
    ],
)
@pytest.mark.parametrize("writable", [False, True])
def test_texts_that_are_none(folder, ids, writable):
    save(folder, ["a", "b", "c"])
    write_texts(folder, b"".join(ids), np.cumsum([len(text) for text in ids]))
    with indexes.load_index(folder, writable=writable) as index:
        for use in (lambda: index.ids, lambda: index.search(CODES, 1), lambda: index.add(CODES[:1], ids=["d"])):
            refused(use, folder / "ids-1.bin", "damaged: its ids must be texts")


@pytest.mark.parametrize("ends", [[1, 2, 2**62], [-5, 2, 3], [2, 1, 3], [1, 2, 4], [2**63 - 1, -(2**63), 3], [1, 2, 2]])
@pytest.mark.parametrize("ordered", [True, False])
def test_texts_that_end_elsewhere(folder, ends, ordered):
    """No search reads beyond the texts, also if the ids are sorted when the index is loaded."""
    save(folder, ["a", "b", "c"])
    set_values(folder, ordered=ordered)
    write_texts(folder, b"abc", ends)
    refused(lambda: indexes.load_index(folder).search(CODES, 1), folder / "ids-1.bin", "its ids must be texts")


def write_texts(folder, content, ends):
    set_values(folder, n_text_bytes=len(content))
    sign(folder, "texts-1.bin", content)
    sign(folder, "ids-1.bin", np.array(ends, "<i8").tobytes())


@pytest.mark.parametrize("ids", [[1, 3, 2], [1, 2, 2]])
def test_ids_out_of_order(folder, ids):
    save(folder, [1, 2, 9])
    sign(folder, "ids-1.bin", np.array(ids, "<i8").tobytes())
    refused(lambda: indexes.load_index(folder).ids, folder / "ids-1.bin", "damaged: its ids must ascend")


def test_ids_out_of_order_behind_those_that_were_verified(folder):
    """The first id of an addition is compared with the last one before it."""
    save(folder, [1, 2, 9])
    reader = indexes.load_index(folder)
    assert reader.ids.tolist() == [1, 2, 9]
    with indexes.load_index(folder, writable=True) as index:
        index.add(CODES[:1], ids=[10])
    sign(folder, "ids-1.bin", np.array([1, 2, 9, 0], "<i8").tobytes())
    assert reader.refresh()
    refused(lambda: reader.ids, folder / "ids-1.bin", "damaged: its ids must ascend")


def test_an_id_twice(folder):
    save(folder, [1, 2, 9])
    with indexes.load_index(folder, writable=True) as index:
        index.update(CODES[:1], ids=[2])
        assert index.ids.tolist() == [1, 2, 9]
    assert indexes.load_index(folder).ids.tolist() == [1, 2, 9]
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


def tables_of(folder):
    """The path of the tables in a folder, and their arrays, which can be changed."""
    now = Manifest.read(Folder(folder))
    layout = Tables.layout(8 * now.n_bytes, now.n_tables, now.n_distinct, now.n_tabled)
    path, start, arrays = folder / f"tables-{now.tables_generation}.bin", 0, {}
    content = bytearray(path.read_bytes())
    for name, (type_, shape) in layout.items():
        arrays[name] = np.frombuffer(content, type_, math.prod(shape), start).reshape(shape)
        start += arrays[name].nbytes
    assert start == len(content)
    return path, content, arrays


@pytest.fixture
def tabled(folder):
    index = ByTables(np.random.default_rng(0).integers(0, 256, (500, 3), np.uint8))
    index.prepare()
    index.save(folder)
    return folder


@pytest.mark.parametrize("value", [-1, 501, 2**31])
@pytest.mark.parametrize("place", [0, 7, -1])
@pytest.mark.parametrize("name", ["bits", "starts", "order", "offsets", "numbers"])
def test_tables_that_lead_out_of_bounds_are_not_used(tabled, caplog, name, place, value):
    path, content, arrays = tables_of(tabled)
    flat = arrays[name].reshape(-1)
    flat[place] = np.array(value).astype(flat.dtype)
    sign(tabled, path.name, bytes(content))
    queries = np.arange(30, dtype=np.uint8).reshape(10, 3)
    found = ByTables.load(tabled)
    truth = FlatIndex(found.codes)
    np.testing.assert_array_equal(found.search(queries, 9).ids, truth.search(queries, 9).ids)
    assert f"{path}: damaged: " in caplog.text


@pytest.mark.parametrize("seed", range(8))
def test_tables_of_lies_do_no_harm(tabled, seed):
    """Every number is possible, and none is right: the results are wrong, but they are items of the index."""
    path, content, arrays = tables_of(tabled)
    rng = np.random.default_rng(seed)
    n, n_distinct = len(arrays["order"]), len(arrays["starts"]) - 1
    arrays["words"][:] = rng.integers(0, 4, arrays["words"].shape)
    arrays["order"][:] = rng.integers(0, n if seed % 2 else 1, n)
    arrays["numbers"][:] = rng.integers(0, n_distinct if seed % 3 else 1, arrays["numbers"].shape)
    sign(tabled, path.name, bytes(content))
    index, queries = ByTables.load(tabled), np.zeros((5, 3), np.uint8)
    for _ in range(2):
        for k in (1, 10, 400):
            assert (index.search(queries, k).ids < 500).all()
        index.search_radius(queries, 12)
        index.remove(index.ids[:40])


@pytest.mark.parametrize("damage", ["cut", "longer", "flip", "gone"])
def test_damaged_tables_are_built_anew(tabled, caplog, damage):
    path, content, _ = tables_of(tabled)
    if damage == "gone":
        path.unlink()
    else:
        content[900] ^= damage == "flip"
        path.write_bytes({"cut": content[:-1], "longer": content + b"0", "flip": content}[damage])
    with ByTables.load(tabled, writable=True) as index:
        index.prepare()
    assert (f"{path}: damaged" in caplog.text) == (damage != "gone")
    caplog.clear()
    ByTables.load(tabled).prepare()
    assert not caplog.text


@pytest.mark.parametrize(
    "change", [{"n_tables": 25}, {"n_tables": 10**6}, {"n_distinct": 0}, {"n_distinct": 501}, {"n_tabled": 501}]
)
def test_tables_that_cannot_be_are_refused(tabled, change):
    set_values(tabled, **change)
    refused(lambda: indexes.load_index(tabled), tabled / "manifest.json", "its numbers must be possible")


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="the system ends the process in another way, if at all")
def test_a_file_cut_under_a_reader_ends_the_process(folder):
    """As docs/security.md says; replacing it by another file does no harm, and a new reader refuses both."""
    code = """
        import os, sys
        from hashgrove.index import load_index
        index = load_index(sys.argv[1])
        index.codes.sum()
        name = sys.argv[1] + "/codes-1.bin"
        if sys.argv[2] == "replace":
            open(name + "-new", "wb").close()
            os.replace(name + "-new", name)
        else:
            os.truncate(name, 0)
        index.codes.sum()
    """
    for how, status in ("replace", 0), ("cut", -signal.SIGBUS):
        save(folder, ["a", "b", "c"])
        script = [sys.executable, "-c", textwrap.dedent(code), folder, how]
        assert subprocess.run(script, stderr=subprocess.DEVNULL, check=False).returncode == status
        refused(lambda: indexes.load_index(folder), folder / "codes-1.bin", "damaged: must have 6 bytes. Got 0")
        shutil.rmtree(folder)
