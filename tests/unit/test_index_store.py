"""An index in a folder: what survives a kill, what readers see, and what is said about damaged files."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from hashgrove import index as indexes
from hashgrove.codes import MAX_BYTES
from hashgrove.index import INDEXES, FlatIndex, MultiIndex, reader
from hashgrove.index.folder import Folder
from hashgrove.index.manifest import Manifest
from hashgrove.index.tables import table_limits
from hashgrove.storage.formats import FileError
from hashgrove.storage.modelfile import ModelFileError
from index_writer import codes_of, content, features_of, killed
from indexes import at_once
from makers import random_codes
from paths import TESTS
from processes import kills

WRITER = TESTS / "index_writer.py"
every_class = pytest.mark.parametrize("make", INDEXES.values(), ids=INDEXES)


def saved(path, n=100, make=FlatIndex, **options):
    make(random_codes(n), **options).save(path)
    return path


@pytest.mark.parametrize("features", [False, True], ids=["codes", "codes and features"])
@pytest.mark.parametrize("part", range(3))
def test_what_has_returned_survives_a_kill(tmp_path, part, features):
    """Killed in the middle of any change: everything before is there, and all or nothing of it."""
    folder, items, sizes, pauses = tmp_path / "index", {}, [], random.Random(part)
    empty = FlatIndex()
    empty.add(codes_of([], 0), features=features_of([], 0) if features else None)
    empty.save(folder)
    for run in range(-(-kills(60) // 6)):
        n_done, seconds = pauses.randint(1, 4), pauses.uniform(0, 0.1)
        possible = killed(folder, items, seed=100 * part + run, n_done=n_done, seconds=seconds, features=features)
        with indexes.load_index(folder, writable=True) as index:
            found = content(index)
            assert found in possible
            distances, ids = index.search(codes_of([7], 3), 5)
            expected = FlatIndex(index.codes, ids=index.ids).search(codes_of([7], 3), 5) if len(index) else (None, None)
            assert len(index) == 0 or (distances.tolist(), ids.tolist()) == tuple(part.tolist() for part in expected)
        items, sizes = found, [*sizes, len(found)]
        first_id = Manifest.read(Folder(folder)).first_id
        n_files = 5 + features - (first_id is not None)  # the manifest, the lock, and files of rows
        assert len(os.listdir(folder)) == n_files
    assert max(sizes) > 0


def test_readers_see_whole_changes_while_another_process_writes(tmp_path):
    """The code of an item tells its id, so codes and ids of different moments would show."""
    folder = saved(tmp_path / "index", 0)
    process = subprocess.Popen([sys.executable, WRITER, folder, "1"], stdout=subprocess.PIPE, text=True)
    sizes, errors = set(), []

    def watch():
        index = indexes.load_index(folder)
        stop = time.monotonic() + 600  # only if something is wrong
        while len(sizes) < 8 and time.monotonic() < stop:
            try:
                index.refresh()
                ids, codes = index.items()
                sizes.add(len(ids))
                parts = codes.view("<u4").reshape(-1, 2) if len(ids) else np.zeros((0, 2), int)
                distances, found = index.search(codes[:3], 2) if len(ids) else (np.zeros((0, 1)), ids)
                versions = np.unique(parts[:, 1], return_counts=True)[1]
                if parts[:, 0].tolist() != ids.tolist() or (versions > 50).any() or distances[:, :1].any():
                    errors.append(f"torn: {ids} {found}")
            except Exception as error:
                errors.append(repr(error))
                return

    threads = [threading.Thread(target=watch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    process.kill()
    process.wait()
    process.stdout.close()
    assert not errors
    assert len(sizes) >= 8


@every_class
def test_a_reader_keeps_its_moment_until_it_refreshes(tmp_path, make):
    folder = saved(tmp_path / "index", make=make)
    reader = make.load(folder)
    before = content(reader)
    with make.load(folder, writable=True) as writer:
        writer.remove([3, 4])
        writer.add(random_codes(5, seed=1))
        writer.update(random_codes(1, seed=2), ids=[7])
        assert content(reader) == before
        writer.compact()
        assert content(reader) == before
        assert reader.search(random_codes(2), 3).ids[0, 0] == 0
        now = content(writer)
        assert not writer.refresh()
    assert reader.refresh()
    assert content(reader) == now == content(make.load(folder))
    assert not reader.refresh()


@every_class
def test_one_writer_at_a_time(tmp_path, make):
    folder = saved(tmp_path / "index", make=make)
    writer = make.load(folder, writable=True)
    for attempt in (lambda: make.load(folder, writable=True), lambda: make().save(folder)):
        with pytest.raises(FileError, match="another process is writing to the index"):
            attempt()
    writer.close()
    with pytest.raises(ValueError, match="must not be closed when it is changed"):
        writer.add(random_codes(1))
    with pytest.raises(ValueError, match="must not be closed when it is compacted"):
        writer.compact()
    assert len(writer.search(random_codes(1), 3).ids[0]) == 3
    make.load(folder, writable=True).close()


@every_class
def test_changes_of_a_reader_stay_in_memory(tmp_path, make):
    folder = saved(tmp_path / "index", make=make)
    index = make.load(folder)
    index.add(random_codes(2, seed=1))
    index.remove([0])
    assert (len(index), len(make.load(folder))) == (101, 100)
    with pytest.raises(ValueError, match="must come from a folder and be unchanged to be refreshed"):
        index.refresh()
    index.save(folder)
    assert content(make.load(folder)) == content(index)


@every_class
def test_appends_do_not_rewrite(tmp_path, make):
    folder = saved(tmp_path / "index", make=make)
    files = {path.name: path.stat().st_ino for path in folder.glob("*.bin")}
    with make.load(folder, writable=True) as index:
        for number in range(5):
            index.add(random_codes(10, seed=number))
        assert Manifest.read(Folder(folder)).ordered
        index.remove([120])
    assert {path.name: path.stat().st_ino for path in folder.glob("*.bin")} == files
    assert len(make.load(folder)) == 149


@pytest.mark.parametrize("ids", [range(100), [f"photo {i}" for i in range(100)]])
def test_the_order_of_the_items_is_that_in_which_they_were_added(tmp_path, ids):
    rng, codes, folder = np.random.default_rng(0), random_codes(100), tmp_path / "index"
    FlatIndex(model="m").save(folder)
    order, ids = rng.permutation(100), np.array(ids)
    with FlatIndex.load(folder, writable=True) as index:
        for part in np.array_split(order, 4):
            index.add(codes[part], ids=ids[part], model="m")
        index.remove(ids[:3])
        index.update(codes[:2], ids=ids[5:7], model="m")
        truth = content(index)
        assert not Manifest.read(Folder(folder)).ordered
        assert content(FlatIndex.load(folder)) == truth
        expected = [i for i in ids[order].tolist() if i not in ids[:3].tolist()]
        for opened in (index, FlatIndex.load(folder)):
            assert opened.ids.tolist() == expected
        index.compact()
        assert (Manifest.read(Folder(folder)).n_rows, Manifest.read(Folder(folder)).n_removed) == (97, 0)
        assert index.ids.tolist() == FlatIndex.load(folder).ids.tolist() == expected
        index.add(codes[:1], ids=ids[:1], model="m")
        index.remove(ids[:1])
        assert content(index) == truth
    loaded = FlatIndex.load(folder)
    assert (content(loaded), loaded.model) == (truth, "m")


def test_copies_and_pickles_are_in_memory(tmp_path):
    with MultiIndex.load(saved(tmp_path / "index", make=MultiIndex), writable=True) as index:
        for twin in (copy.copy(index), copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
            twin.add(random_codes(1))
            assert (len(twin), len(index)) == (101, 100)
    assert len(MultiIndex.load(tmp_path / "index")) == 100


def test_only_an_index_is_replaced_or_loaded(tmp_path):
    index = FlatIndex(random_codes(3))
    index.save(tmp_path / "an.index")
    (tmp_path / "notes.txt").write_text("mine")
    for taken in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(FileError, match="must be an index, or not exist"):
            index.save(taken)
    with pytest.raises(FileNotFoundError, match="none: no such file or folder"):
        indexes.load_index(tmp_path / "none")
    with pytest.raises(FileError, match="must be the folder of an index"):
        indexes.load_index(tmp_path / "notes.txt")
    with pytest.raises(FileError, match="cannot be written"):
        index.save(tmp_path / "no" / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["an.index", "notes.txt"]


@every_class
@pytest.mark.parametrize("ids", [None, range(0, 200, 2), [f"é{i:04}" for i in range(100)]])
@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_damaged_files_are_refused(tmp_path, make, ids, damage):
    """Whatever byte is flipped and wherever a file is cut, loading or the first use says which file it is."""
    whole = saved(tmp_path / "whole", make=make, ids=ids)
    with make.load(whole, writable=True) as index:
        index.remove(index.ids[:5])
    rng = np.random.default_rng(0)
    for name in sorted(set(os.listdir(whole)) - {"writer.lock"}):
        size = (whole / name).stat().st_size
        for place in rng.integers(size, size=12).tolist():
            folder = tmp_path / "damaged"
            shutil.copytree(whole, folder)
            data = bytearray((folder / name).read_bytes())
            if damage == "flip":
                data[place] ^= 1 << int(rng.integers(8))
            (folder / name).write_bytes(data[:place] if damage == "cut" else data)
            if damage == "remove":
                (folder / name).unlink()
            with pytest.raises((ModelFileError, FileError)) as caught:
                indexes.load_index(folder).search(random_codes(1), 1)
            assert name in str(caught.value) or damage == "remove"
            assert "\n" not in str(caught.value)
            shutil.rmtree(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"n_rows": 101}, {"n_rows": -1}, {"n_bytes": 9000}, {"text_width": 5000}, {"n_rows": 2**70}, {"index": 3},
        {"ordered": 1}, {"index": "Other"}, {"codes_crc": 1}, {"more": 1}, {"n_rows": 50}, {"n_bytes": 0},
    ],
)  # fmt: skip
def test_manifests_with_a_right_checksum_are_checked_all_the_same(tmp_path, change):
    import hashlib

    folder = saved(tmp_path / "index")
    values = json.loads((folder / "manifest.json").read_text())["hashgrove-index"] | change
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"hashgrove-index": values, "sha256": digest}))
    with pytest.raises(ModelFileError):
        indexes.load_index(folder).search(random_codes(1), 1)


def test_what_was_verified_is_not_read_again(tmp_path, monkeypatch):
    folder = saved(tmp_path / "index", 1000, ids=range(0, 2000, 2))
    read = []
    original = reader._crc

    def crc(array, start):
        read.extend([len(array)] * (len(array) > 0))
        return original(array, start)

    monkeypatch.setattr(reader, "_crc", crc)
    with FlatIndex.load(folder, writable=True) as index:
        assert read == []
        index.search(random_codes(1), 1)
        assert read == [1000, 1000]
        index.add(random_codes(7))
        index.search(random_codes(1), 1)
        assert read == [1000, 1000, 7, 7]


@every_class
@pytest.mark.parametrize("place", ["memory", "folder"])
def test_features_kept_from_many_threads_are_all_there(tmp_path, make, place):
    ids = np.arange(80)
    index = make(codes_of(ids, 0), ids=ids)
    if place == "folder":
        index.save(tmp_path / "index")
        index = make.load(tmp_path / "index", writable=True)
    parts = [ids[thread::8].reshape(5, 2) for thread in range(8)]
    at_once(*(lambda part=part: [index.keep_features(features_of(two, 1), ids=two) for two in part] for part in parts))
    assert index.features.of(ids).tolist() == features_of(ids, 1).tolist()
    index.close()
    if place == "folder":
        assert make.load(tmp_path / "index").features.of(ids).tolist() == features_of(ids, 1).tolist()


@every_class
def test_an_index_without_features_replaces_one_with_features(tmp_path, make):
    index = make(codes_of([1, 2], 0), ids=[1, 2])
    index.keep_features(features_of([1, 2], 0))
    index.save(tmp_path / "index")
    make(codes_of([1, 2], 1), ids=[1, 2]).save(tmp_path / "index")
    assert make.load(tmp_path / "index").features is None
    assert not [name for name in os.listdir(tmp_path / "index") if name.startswith("features")]


@every_class
@pytest.mark.parametrize("place", ["memory", "folder"])
@pytest.mark.parametrize("removed", [[2], [1, 2, 3]], ids=["one", "all"])
def test_an_item_that_is_added_again_does_not_get_its_old_features(tmp_path, make, place, removed):
    index = make(codes_of([1, 2, 3], 0), ids=[1, 2, 3])
    index.keep_features(features_of([1, 2, 3], 0))
    if place == "folder":
        index.save(tmp_path / "index")
        index = make.load(tmp_path / "index", writable=True)
    index.remove(removed)
    index.add(codes_of([2], 1), ids=[2])
    left = [i for i in (1, 3) if i not in removed]
    assert index.features.ids.tolist() == left
    index.close()
    if place == "folder":
        assert make.load(tmp_path / "index").features.ids.tolist() == left


@every_class
@pytest.mark.parametrize("place", ["memory", "folder"])
@pytest.mark.parametrize("kinds", [(["b", "a"], [5, 3]), ([5, 3], ["b", "a"])], ids=["texts first", "integers first"])
def test_an_index_without_items_takes_ids_of_the_other_type(tmp_path, make, place, kinds):
    index = make(codes_of([1, 2], 0), ids=kinds[0])
    if place == "folder":
        index.save(tmp_path / "index")
        index = make.load(tmp_path / "index", writable=True)
    index.remove(kinds[0])
    index.add(codes_of([7, 8], 1), ids=kinds[1])
    assert index.ids.tolist() == kinds[1]
    assert index.search(codes_of([8], 1), 1).ids.tolist() == [kinds[1][1:]]
    index.close()
    if place == "folder":
        again = make.load(tmp_path / "index")
        assert content(again) == content(index)
        assert len(os.listdir(tmp_path / "index")) == (6 if isinstance(kinds[1][0], str) else 5)


@every_class
def test_a_long_id_takes_its_own_room_only(tmp_path, make):
    """In memory and in the folder, before and after it is removed."""
    ids = [f"item {i}" for i in range(500)]
    n_bytes = len("".join(ids))
    index = make(codes_of(range(501), 0), ids=[*ids, "x" * 1024])
    assert index._items.ids.data.nbytes == n_bytes + 1024
    index.save(tmp_path / "index")
    index.remove(["x" * 1024])
    index.compact()
    assert index._items.ids.data.nbytes == n_bytes

    def sizes():
        return [next((tmp_path / "index").glob(f"{name}-*")).stat().st_size for name in ("texts", "ids")]

    assert sizes() == [n_bytes + 1024, 8 * 501]
    with make.load(tmp_path / "index", writable=True) as index:
        index.remove(["x" * 1024])
        index.compact()
        assert sizes() == [n_bytes, 8 * 500]
        index.add(codes_of([7], 0), ids=["y" * 20])
        assert sizes() == [n_bytes + 20, 8 * 501]
    assert make.load(tmp_path / "index").ids.tolist() == [*ids, "y" * 20]


@every_class
@pytest.mark.parametrize("first", [0, -3, 2**62])
def test_consecutive_ids_are_stated_and_not_stored(tmp_path, make, first):
    """Until one comes that does not go on; an index of all these steps is what one without a folder is."""
    folder, plain = tmp_path / "index", make(codes_of(range(5), 0), ids=np.arange(first, first + 5))
    plain.save(folder)

    def changed(*changes):
        with make.load(folder, writable=True) as index:
            for change in changes:
                change(plain)
                change(index)
            assert content(index) == content(plain)
        assert content(make.load(folder)) == content(plain)
        now = Manifest.read(Folder(folder))
        stored = {path.name for path in folder.glob("ids-*")}
        assert stored == (set() if now.first_id is not None else {f"ids-{now.ids_generation}.bin"})
        return now.first_id

    assert changed(lambda index: index.add(codes_of(range(5, 8), 0))) == first
    assert changed(lambda index: index.remove([first + 2])) == first
    assert changed(lambda index: index.add(codes_of([9], 0), ids=[first + 20])) is None
    assert changed(lambda index: index.add(codes_of([9], 0)), lambda index: index.remove([first, first + 7])) is None
    assert changed(lambda index: index.compact()) is None
    others = plain.ids[:-2]
    assert changed(lambda index: index.remove(others), make.compact) == first + 20
    assert changed(lambda index: index.update(codes_of([3], 1), ids=[first + 20])) is None
    assert changed(make.compact) == first + 20


@every_class
def test_an_empty_folder_states_ids_once_it_has_some(tmp_path, make):
    make().save(tmp_path / "index")
    with make.load(tmp_path / "index", writable=True) as index:
        index.add(codes_of([4, 5], 0))
        index.add(codes_of([6], 0))
    again = make.load(tmp_path / "index")
    assert again.ids.tolist() == [0, 1, 2]
    assert Manifest.read(Folder(tmp_path / "index")).first_id == 0


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"n_rows": -1}, "whole and not negative"),
        ({"n_rows": 1.0}, "whole and not negative"),
        ({"n_rows": True}, "whole and not negative"),
        ({"n_rows": 2**62}, "whole and not negative"),
        ({"ordered": 1}, "right types"),
        ({"model": 5}, "right types"),
        ({"index": None}, "right types"),
        ({"n_bytes": MAX_BYTES + 1}, "possible"),
        ({"text_width": 1025}, "possible"),
        ({"text_width": 4}, "possible"),
        ({"first_id": 2**63 - 4}, "possible"),
        ({"first_id": -(2**63) - 1}, "possible"),
        ({"first_id": 0.5}, "right types"),
        ({"first_id": True}, "right types"),
        ({"n_text_bytes": 5}, "possible"),
        ({"first_id": None, "n_text_bytes": 4}, "possible"),
        ({"first_id": None, "n_text_bytes": 5 * 1024 + 1}, "possible"),
        ({"ordered": False}, "possible"),
        ({"n_features": 2**31}, "possible"),
        ({"n_bytes": 0}, "possible"),
        ({"more": 1}, "must have the fields"),
        ({"format": 3}, "format version must be 1 or 2"),
        ({"format": 0}, "format version must be 1 or 2"),
        ({"format": True}, "format version must be 1 or 2"),
        ({"index": "MultiIndex"}, "must hold an index of type 'FlatIndex'"),
    ],
)
def test_a_manifest_with_a_right_checksum_and_wrong_values(tmp_path, values, match):
    FlatIndex(random_codes(5, 16, 0)).save(tmp_path / "index")
    path = tmp_path / "index" / "manifest.json"
    content = json.loads(path.read_text())["hashgrove-index"] | values
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"hashgrove-index": content, "sha256": digest}))
    with pytest.raises(ModelFileError, match=match):
        FlatIndex.load(tmp_path / "index")


def test_a_new_manifest_has_no_tables():
    assert Manifest("FlatIndex") == Manifest("FlatIndex").without_tables()


def test_a_manifest_with_tables_is_read_as_it_was_written_and_checked(tmp_path):
    few, many = table_limits(32)
    good = Manifest("MultiIndex", n_bytes=4, n_rows=9, n_tables=many, n_tabled=5, n_distinct=5)
    path, folder = tmp_path / "manifest.json", Folder(tmp_path)
    for change in ({}, {"n_tables": few}, {"n_distinct": 1}, {"n_tabled": 9, "ordered": False}):
        for ids in ({}, {"ordered": True, "first_id": 3}, {"n_text_bytes": 9}, {"text_width": 7}):
            path.write_bytes(replace(good, **change | ids).content())
            assert Manifest.read(folder) == replace(good, **change | ids)
    wrong = {"n_tables": many + 1}, {"n_distinct": 0}, {"n_distinct": 6}, {"n_tabled": 10}, {"ordered": False}
    for change in (*wrong, *({"n_tables": number} for number in range(1, few))):
        path.write_bytes(replace(good, **change).content())
        with pytest.raises(ModelFileError, match="its numbers must be possible"):
            Manifest.read(folder)
